"""Runs Jupyter Server's own tests, from its sdist, on this package: ``python -m tests.jupyter_suite``.

``standard``: the tests of kernels, kernelspecs and sessions, sent to ``exec/jupyter/`` of a server and of a gateway,
with a scoped token. A test that fails is a failure, but for those in `EXCEPTIONS`.

``stock``: the tests of all services, with the extension and without it. A test with another outcome is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from tests.jupyter_suite.exceptions import EXCEPTIONS
from tests.support.bearers import UNPROTECTED
from tests.support.environments import ROOT, environment
from tests.support.hosts import Host, running_host

VERSION = version("jupyter_server")
_FILES = ("kernels/test_api", "kernels/test_execution_state", "kernelspecs/test_api", "sessions/test_api")
STANDARD_TESTS = ["tests/services/api/test_api.py::test_get_status", *(f"tests/services/{name}.py" for name in _FILES)]
STOCK_TESTS = ["tests/services"]
_HERE = Path(__file__).parent
_REPEATS = 4


def unpacked(home: Path) -> Path:
    """Return the directory of the sdist, which is downloaded if it is not there."""
    directory = home / f"jupyter_server-{VERSION}"
    if not directory.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        wanted = [f"jupyter_server=={VERSION}", "--no-binary=jupyter_server", "--no-deps", f"--dest={home}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        with tarfile.open(home / f"jupyter_server-{VERSION}.tar.gz") as sdist:
            sdist.extractall(home, filter="data")
    return directory


class Suite:
    """The tests, in an environment of their own."""

    def __init__(self) -> None:
        home = ROOT / ".adapters"
        self._python = environment(home / "jupyter-suite", ["-e", ".", f"jupyter_server[test]=={VERSION}"])
        self._directory = unpacked(home / "sdists")

    def run(self, tests: Sequence[str], fixtures: str | None, **variables: str) -> dict[str, str]:
        """Run tests with a file of fixtures beside them; return their outcomes by name."""
        conftest = self._directory / "tests" / "services" / "conftest.py"
        conftest.unlink(missing_ok=True)
        if fixtures is not None:
            shutil.copyfile(_HERE / fixtures, conftest)
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report.xml")
            options = ["-q", "-c", os.devnull, "--rootdir=.", "--timeout=120", f"--junitxml={report}", "--tb=short"]
            command = [str(self._python), "-m", "pytest", *options, "-p", "no:cacheprovider", *tests]
            subprocess.run(command, cwd=self._directory, env={**os.environ, **variables}, check=False)
            return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of each test of a report: of one with several, the last."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{str(case.get('classname')).removeprefix('tests.services.')}::{case.get('name')}"
        ends = [end for end in ("error", "failure", "skipped") if case.find(end) is not None]
        found[name] = ends[0] if ends else "passed"
    return found


def figures(title: str, found: Mapping[str, str]) -> None:
    print(f"{title}: {dict(sorted(Counter(found.values()).items()))}", flush=True)


def on_standard_api(suite: Suite, host: Host) -> list[str]:
    """Return what does not hold of a host."""
    server = {
        "port": host.info.port,
        "base_url": host.info.base_url,
        "token": host.info.token,
        "scopes": sorted(ALL_SCOPES),
        "is_gateway": host.is_gateway,
        "data_dir": str(host.home / "jupyter_data_dir"),
    }
    found = suite.run(STANDARD_TESTS, "standard_api.py", EXEC_TEST_SERVER=json.dumps(server))
    figures(f"on {host.name}", found)
    failed = {name for name, outcome in found.items() if outcome in ("error", "failure")}
    return [
        *(f"{host.name}: {name} fails" for name in sorted(failed - set(EXCEPTIONS))),
        *(f"{host.name}: {name} is an exception, and passes" for name in sorted(set(EXCEPTIONS) - failed)),
    ]


def check_standard() -> list[str]:
    """Return what does not hold of the standard API."""
    suite, problems = Suite(), []
    for name in ("server", "gateway"):
        with tempfile.TemporaryDirectory(prefix="jex") as home:
            (Path(home) / "jupyter_data_dir" / "kernels").mkdir(parents=True)
            with running_host(name, Path(home), UNPROTECTED, base_url="/a%40b/") as host:
                problems += on_standard_api(suite, host)
    return problems


def check_stock() -> list[str]:
    """Return the tests whose outcome the extension changes.

    Some of them give a kernel a second to start. So those that differ and fail are repeated.
    """
    suite = Suite()
    fixtures = {"without": None, "with": "with_extension.py"}
    found = {side: suite.run(STOCK_TESTS, file) for side, file in fixtures.items()}
    for _ in range(_REPEATS):
        for side, file in fixtures.items():
            if failed := [name for name in differing(found) if found[side].get(name) in ("error", "failure")]:
                found[side] |= suite.run([f"tests/services/{path_of(name)}" for name in failed], file)
    for side, each in found.items():
        figures(f"{side} the extension", each)
    return [
        f"{name}: {', '.join(f'{found[side].get(name)} {side} the extension' for side in found)}"
        for name in differing(found)
    ]


def differing(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of tests with other outcomes on one side than on the other."""
    without, with_it = found["without"], found["with"]
    return sorted(name for name in {**without, **with_it} if without.get(name) != with_it.get(name))


def path_of(name: str) -> str:
    """Return where a test is."""
    module, _, rest = name.partition("::")
    return f"{module.replace('.', '/')}.py::{rest}"


PARTS = {"standard": check_standard, "stock": check_stock}


def main() -> int:
    """Run the parts that the command line names; print what does not hold, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.jupyter_suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' or '.join(PARTS)}; without any, both")
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}")
    problems = [problem for part in chosen for problem in PARTS[part]()]
    for problem in problems:
        print(f"does not hold: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
