from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo, LocalJupyterServer
from tests.adapters.doorbell import Doorbell
from tests.support.bearers import UNPROTECTED, mint
from tests.support.hosts import running_host


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have a session that was left open fail the test."""
    item.add_marker(pytest.mark.filterwarnings("error:.*was not closed.*:ResourceWarning"))


TESTS = Path(__file__).parent
ADAPTERS = TESTS.parent.parent / "jupyter_exec_ext" / "adapters"


def frameworks_of(adapter: Path) -> set[str]:
    """Return the packages that an adapter imports from elsewhere."""
    found: set[str] = set()
    for node in ast.parse(adapter.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


# `python -m tests.adapters` runs them all, each in an environment that has its framework.
collect_ignore = [
    directory.name
    for directory in TESTS.iterdir()
    if (adapter := ADAPTERS / f"{directory.name}.py").is_file() and not all(map(find_spec, frameworks_of(adapter)))
]


@pytest.fixture(scope="session")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJupyterServer]:
    with LocalJupyterServer(log_file=str(tmp_path_factory.mktemp("gateway") / "gateway.log")) as server:
        yield server


@pytest.fixture(scope="session")
def restricted_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterConnectionInfo]:
    """A server, by a token whose policy allows 100 bytes of code."""
    with running_host("server", tmp_path_factory.mktemp("restricted"), UNPROTECTED) as host:
        token = mint(host, max_code_bytes=100).token
        yield replace(host.info, token=token)


@pytest.fixture
def client(local_server: LocalJupyterServer) -> Iterator[ExecClient]:
    """What looks at the server beside the framework."""
    with ExecClient(local_server) as client:
        yield client


@pytest.fixture
def doorbell() -> Iterator[Doorbell]:
    doorbell = Doorbell()
    yield doorbell
    doorbell.close()


@pytest.fixture
def run_example(tmp_path: Path) -> Callable[[str], str]:
    """Runs an example in a process of its own and returns what it printed."""

    def run(name: str) -> str:
        example = TESTS.parent.parent / "examples" / f"{name}.py"
        done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
