"""Runs autogen-ext's own executor tests, from its sdist, with its classes and with ours: ``python -m tests.peers``.

A test that fails with ours and not with theirs is a failure, but for those in `EXPECTED`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

from tests.support.environments import ROOT, TOOLS, environment

VERSION = "0.7.5"
#: What AutoGen's tests use beside it.
USED = ["ipykernel", "nbclient", "pillow", "polars"]
TESTS = ["test_jupyter_code_executor.py", "test_aca_dynamic_sessions.py", "test_aca_user_defined_functions.py"]
#: Tests that are known to fail with ours, and why.
EXPECTED: dict[str, str] = {}


def unpacked(home: Path) -> Path:
    """Return the directory of the sdist, which is downloaded if it is not there."""
    directory = home / f"autogen_ext-{VERSION}"
    if not directory.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        wanted = [f"autogen-ext=={VERSION}", "--no-binary=autogen-ext", "--no-deps", f"--dest={home}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        with tarfile.open(home / f"autogen_ext-{VERSION}.tar.gz") as sdist:
            sdist.extractall(home, filter="data")
    return directory


def failed(python: Path, directory: Path, *, swapped: bool) -> set[str]:
    """Run the tests and return the names of those that fail."""
    report = directory / f"report-{'ours' if swapped else 'theirs'}.xml"
    command = [str(python), "-m", "pytest", "-q", "-c", os.devnull, "--rootdir=.", f"--junitxml={report}"]
    plugin = ["-p", "autogen_swap"] if swapped else []
    tests = [f"tests/code_executors/{name}" for name in TESTS]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # the sdist has a package `tests`, too
    report.unlink(missing_ok=True)
    subprocess.run([*command, *plugin, *tests], cwd=directory, env=environ, check=False)
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find("failure") is not None}


def main() -> int:
    """Run both, print what differs, and return the exit code."""
    argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__).parse_args()
    home = ROOT / ".adapters"
    requirements = ["-e", ".[autogen]", f"autogen-ext[azure]=={VERSION}", *USED, *TOOLS]
    python = environment(home / "peers", requirements)
    directory = unpacked(home / "sdists")
    theirs = failed(python, directory, swapped=False)
    ours = failed(python, directory, swapped=True)
    for name in sorted(ours - theirs):
        print(f"fails with ours only: {name}{' (known: ' + EXPECTED[name] + ')' if name in EXPECTED else ''}")
    print(f"{len(ours - theirs)} fail with ours only, {len(theirs)} with theirs")
    return 1 if ours - theirs - set(EXPECTED) else 0


if __name__ == "__main__":
    sys.exit(main())
