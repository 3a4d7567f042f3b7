"""Servers with and without our API, executors on them, and executors without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import CodeBlock, EmbeddedIPythonCodeExecutor, JupyterCodeExecutor
from jupyter_exec_ext.executors.containers.container_image import find_or_build_default_image
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from tests.executors.images import build_the_documents
from tests.support.container_engines import running_engine
from tests.support.hosts import Host, running_host


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have a session that was left open fail the test."""
    item.add_marker(pytest.mark.filterwarnings("error:.*was not closed.*:ResourceWarning"))


def python(*codes: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python") for code in codes]


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Jupyter Server without our API."""
    home = tmp_path_factory.mktemp("plain")
    with running_host("server-base-url", home, "--ExecExtensionApp.enabled=False") as host:
        yield host


SERVERS = ["server", "gateway", "plain server"]
Make = Callable[..., StatefulCodeExecutor]


def _server(name: str, request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = request.getfixturevalue("plain_server") if name == "plain server" else hosts[name]
    return started


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, hosts: Any) -> Host:
    return _server(request.param, request, hosts)


@pytest.fixture(params=[*SERVERS, "embedded"])
def make(request: pytest.FixtureRequest, hosts: Any, tmp_path: Path) -> Iterator[Make]:
    """Make executors of each kind; they are stopped at the end."""
    made: list[StatefulCodeExecutor] = []

    def make(timeout: int = 20, **options: Any) -> StatefulCodeExecutor:
        options = {"timeout": timeout, "output_dir": tmp_path, **options}
        if request.param == "embedded":
            made.append(EmbeddedIPythonCodeExecutor(**options))
        else:
            made.append(JupyterCodeExecutor(_server(request.param, request, hosts).info, **options))
        return made[-1]

    yield make
    for executor in made:
        executor.stop()


@pytest.fixture
def executor(make: Make) -> StatefulCodeExecutor:
    return make()


@pytest.fixture(scope="session")
def bare_engine() -> Iterator[Any]:
    """A client of a container engine."""
    with running_engine() as client:
        yield client


@pytest.fixture(scope="session")
def engine(bare_engine: Any) -> Any:
    """The same, with the default image built: over this machine's network, since no other may lead to packages."""
    find_or_build_default_image(bare_engine, print, "host")
    return bare_engine


@pytest.fixture(scope="session")
def seeds_image(bare_engine: Any) -> str:
    """The seed's own image, which has nothing of ours and meets what the seed asks of one, and no more."""
    return build_the_documents(bare_engine, "jupyter-exec-test-seed")
