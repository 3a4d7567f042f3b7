from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from tests.blocking import Blocking, LoopThread
from tests.hosts import HOSTS, Host

# These differ from the server in how they are reached; one client each is enough, except in full, and a Hub is
# reached through a proxy, for which the tests of access must do.
_ONE_CLIENT = {"server-base-url": "sync", "lab": "async", "hub": None}
_IN_FULL = int(os.environ.get("EXEC_FAULT_SCALE", "1")) >= 10


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other clients on those hosts."""

    def is_left_out(item: pytest.Item) -> bool:
        params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        return "client" in params and params["client"] != _ONE_CLIENT.get(params["host"], params["client"])

    if not _IN_FULL:
        config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
        items[:] = [item for item in items if not is_left_out(item)]


@pytest.fixture(scope="session", params=[*HOSTS, "hub"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    """Each host in turn."""
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="session", params=["sync", "async"])
def client(request: pytest.FixtureRequest, host: Host) -> Iterator[Any]:
    """Each client in turn, with the synchronous one's calls."""
    if request.param == "sync":
        with ExecClient(host.info) as client:
            yield client
        return
    loop = LoopThread()

    async def make() -> AsyncExecClient:
        return AsyncExecClient(host.info)

    with Blocking(loop.run(make()), loop) as wrapped:
        yield wrapped
    loop.close()


@pytest.fixture(scope="session")
def _shared(client: Any) -> Iterator[list[Any]]:
    kept: list[Any] = []
    yield kept
    for session in kept:
        session.close()


@pytest.fixture
def session(client: Any, _shared: list[Any]) -> Any:
    """A session whose kernel other tests use too; a test that harms the kernel takes `fresh`."""
    if not _shared:
        _shared.append(client.session(name="shared"))
    return _shared[0]


@pytest.fixture
def fresh(client: Any) -> Iterator[Any]:
    """A session of the test's own."""
    with client.session() as session:
        yield session
