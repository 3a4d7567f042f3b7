"""Virtual environments for packages that cannot be installed beside those of the other tests."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Hypothesis is for the configuration that all tests share.
TOOLS = ["hypothesis>=6.100", "pytest>=8.3", "pytest-asyncio>=0.25", "pytest-timeout>=2.3"]
# Sixteen of them are made for a whole run, with much in common: several times as fast as by pip.
_UV = [sys.executable, "-m", "uv"]


def environment(home: Path, requirements: Sequence[str], depends_on: object = None, alone: str | None = None) -> Path:
    """Return the Python of an environment, which is made if it is not there or not the one it should be.

    Parameters
    ----------
    requirements : sequence of str
        What is to be installed.
    depends_on : object
        Whatever else the environment depends on: it is made anew when the `repr` of this is another.
    alone : str, optional
        What is installed last, without anything that it requires.
    """
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    wanted = repr([sys.version, list(requirements), alone, depends_on])
    stamp = home / "installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"{home.name}: installing {' '.join([*requirements, alone or ''])}", flush=True)
        subprocess.run([*_UV, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, home], check=True)
        # A build of this package is only as new as its pyproject.toml, if uv is not told otherwise.
        install = [*_UV, "pip", "install", "--quiet", f"--python={python}", "--refresh-package=jupyter-exec-ext"]
        subprocess.run([*install, *requirements], cwd=ROOT, check=True)
        if alone is not None:
            subprocess.run([*install, "--no-deps", alone], check=True)
        stamp.write_text(wanted)
    return python


def run_named(
    program: str,
    about: str | None,
    known: Collection[str],
    test: Callable[[str], object],
    prepare: Callable[[str], object],
) -> int:
    """Test what the command line names, or all that is known; return the exit code.

    Parameters
    ----------
    program : str
        The module's name, such as ``tests.adapters``.
    about : str, optional
        What the command's help says.
    known : collection of str
        What can be named.
    test : callable
        Tests one of them; raises `subprocess.CalledProcessError` where that fails.
    prepare : callable
        Makes the environment of one of them, and no more.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of {', '.join(known)}; without any, all")
    parser.add_argument("--prepare", action="store_true", help="only make the environments, and test nothing")
    args = parser.parse_args()
    names = args.names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"nothing is called {unknown[0]}; there are {', '.join(known)}")
    work, verb = (prepare, "made") if args.prepare else (test, "passed")
    failed = [name for name in names if not _passes(work, name)]
    what = program.rpartition(".")[2]
    print(f"{what}: {len(names) - len(failed)} of {len(names)} {verb}{': not ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def _passes(work: Callable[[str], object], name: str) -> bool:
    try:
        work(name)
    except subprocess.CalledProcessError as error:  # of pip or of pytest, which has said why
        print(f"{name}: {error}", flush=True)
        return False
    return True
