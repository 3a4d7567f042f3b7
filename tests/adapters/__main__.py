"""Runs the tests of the adapters, each inside its framework: ``python -m tests.adapters [NAME…]``.

Frameworks do not agree on the versions of what they stand on, so each has a virtual environment of its own in
``.adapters/NAME``, made when first needed and kept until what it should hold changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.support.environments import ROOT, TOOLS, environment, run_named

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: What each environment holds beside this package: our extras, by name, and further requirements.
FRAMEWORKS: dict[str, list[str]] = {
    "ag2": ["ag2"],
    "ag2v0": ["ag2v0", "docker", "ag2[openai]>=0.14,<1"],
    "ag2v0-autogen": ["autogen[openai]>=0.14.1,<1", "docker"],  # where ag2's 0.x goes on, with the same modules
    "agent_framework": ["agent-framework"],
    "autogen": ["autogen", "docker", "autogen-agentchat>=0.7.5,<0.8", "autogen-ext[azure,docker]>=0.7.5,<0.8"],
    "autogen02": ["autogen02", "docker"],
    "langchain": ["langchain", "langchain>=1.4.7,<2", "langgraph>=1.2.22,<2"],
    "mcp": ["mcp"],
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
    """Return the Python of a framework's environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [extras[extra] for extra in FRAMEWORKS[name] if extra in extras]
    wanted = [project["dependencies"], named]
    return environment(ROOT / ".adapters" / name, pip_arguments(FRAMEWORKS[name], extras), wanted)


def test(name: str) -> None:
    """Run the tests of one framework."""
    tests = ROOT / "tests" / "adapters" / SAME_TESTS.get(name, name)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([environment_for(name), "-m", "pytest", tests], cwd=ROOT, env=environ, check=True)


if __name__ == "__main__":
    sys.exit(run_named("tests.adapters", __doc__, FRAMEWORKS, test, environment_for))
