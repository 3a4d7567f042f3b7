"""Runs the tests of the adapters, each inside its framework: ``python -m tests.adapters [NAME…]``.

Frameworks do not agree on the versions of what they stand on, so each has a virtual environment of its own in
``.adapters/NAME``, made when first needed and kept until what it should hold changes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent.parent
# Hypothesis is for the configuration that all tests share.
TOOLS = ["hypothesis>=6.100", "pytest>=8.3", "pytest-asyncio>=0.25", "pytest-timeout>=2.3"]

#: What each environment holds beside this package: our extras, by name, and further requirements.
FRAMEWORKS: dict[str, list[str]] = {
    "ag2": ["ag2"],
    "ag2v0": ["ag2v0", "docker", "ag2[openai]>=0.14,<1"],
    "ag2v0-autogen": ["autogen[openai]>=0.14.1,<1", "docker"],  # where ag2's 0.x goes on, with the same modules
    "agent_framework": ["agent-framework"],
    "autogen": ["autogen", "docker", "autogen-agentchat>=0.7.5,<0.8", "autogen-ext>=0.7.5,<0.8"],
    "autogen02": ["autogen02", "docker"],
    "langchain": ["langchain", "langchain>=1.4.7,<2", "langgraph>=1.2.22,<2"],
    "openai_agents": ["openai-agents"],
    "pydantic_ai": ["pydantic-ai"],
    "smolagents": ["smolagents"],
}
#: The frameworks whose tests are another's.
SAME_TESTS = {"ag2v0": "autogen02", "ag2v0-autogen": "autogen02"}


def pip_arguments(requirements: Sequence[str], extras: Collection[str]) -> list[str]:
    """Return what pip is to install: this package with those of its extras that are named, and the rest."""
    named = ",".join(name for name in requirements if name in extras)
    return ["-e", f".[{named}]" if named else ".", *(name for name in requirements if name not in extras), *TOOLS]


def environment_for(name: str) -> Path:
    """Return the Python of a framework's environment, which is made if it is not there or not the one it should be."""
    home = ROOT / ".adapters" / name
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    arguments = pip_arguments(FRAMEWORKS[name], extras)
    named = [extras[extra] for extra in FRAMEWORKS[name] if extra in extras]
    wanted = repr([sys.version, project["dependencies"], named, arguments])
    stamp = home / "installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"{name}: installing {' '.join(FRAMEWORKS[name])}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], cwd=ROOT, check=True)
        stamp.write_text(wanted)
    return python


def tests_pass(name: str) -> bool:
    """Run the tests of one framework; whether all of them passed."""
    tests = ROOT / "tests" / "adapters" / SAME_TESTS.get(name, name)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        subprocess.run([environment_for(name), "-m", "pytest", tests], cwd=ROOT, env=environ, check=True)
    except subprocess.CalledProcessError as error:  # of pip or of pytest, which has said why
        print(f"{name}: {error}", flush=True)
        return False
    return True


def main() -> int:
    """Test the adapters that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.adapters", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of {', '.join(FRAMEWORKS)}; without any, all")
    names = parser.parse_args().names or list(FRAMEWORKS)
    if unknown := [name for name in names if name not in FRAMEWORKS]:
        parser.error(f"no adapter is called {unknown[0]}; there are {', '.join(FRAMEWORKS)}")
    failed = [name for name in names if not tests_pass(name)]
    print(f"adapters: {len(names) - len(failed)} of {len(names)} passed{': not ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
