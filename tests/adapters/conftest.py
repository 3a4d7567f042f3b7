from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jupyter_exec_ext import ExecClient, LocalJupyterServer

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


@pytest.fixture
def client(local_server: LocalJupyterServer) -> Iterator[ExecClient]:
    """What looks at the server beside the framework."""
    with ExecClient(local_server) as client:
        yield client
