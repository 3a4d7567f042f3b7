from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from tests.contract import pool_exceptions
from tests.contract.aca_exceptions import BY_LUCK, EXCEPTIONS
from tests.support.aca_pool import HOSTS_OF_SESSIONS
from tests.support.bearers import mint
from tests.support.blocking_client import Blocking, LoopThread
from tests.support.full import IS_FULL
from tests.support.hosts import HOSTS, Host

#: Part of the suite that a commit runs, by host: one client, and the modules where it is not all of them. The server
#: and the gateway have the whole suite; the others differ in how they are reached or where their kernels are, for which
#: the results are enough. `python -m tests.full contract` runs all hosts with both clients.
_PER_COMMIT: dict[str, tuple[str, set[str]]] = {
    "server": ("sync", set()),
    "gateway": ("async", set()),
    "server-base-url": ("async", {"test_results"}),
    "lab": ("sync", {"test_results"}),
    "hub": ("async", {"test_results"}),
    "token": ("sync", {"test_results", "test_requests"}),
    "restored": ("sync", {"test_results"}),
    "aca": ("sync", {"test_results", "test_streams"}),
    "aca-envelope": ("async", {"test_results"}),
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests in all their places; `_PER_COMMIT` chooses among these."""
    item.add_marker("every_place")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the full run has, and for a scoped token and a pool's user what only the owner may do."""

    def is_left_out(item: pytest.Item) -> bool:
        params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("host") in ("token", "hub-pool") and item.get_closest_marker("owner") is not None:
            return True
        if params.get("host") == "hub-pool" and not IS_FULL:  # tests/fleet/test_pool.py has one of each kind
            return True
        if IS_FULL or params.get("host") not in _PER_COMMIT:
            return False
        client, modules = _PER_COMMIT[params["host"]]
        return params.get("client", client) != client or bool(modules and module_of(item) not in modules)

    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = [item for item in items if not is_left_out(item)]
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        reason = EXCEPTIONS.get(f"{module_of(item)}::{getattr(item, 'originalname', '')}")
        if params.get("host") == "hub-pool":
            name = f"{module_of(item)}::{getattr(item, 'originalname', '')}"
            reason = pool_exceptions.EXCEPTIONS.get(name) or pool_exceptions.MODULES.get(module_of(item))
            if reason is not None:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=reason != pool_exceptions.BY_LUCK))
        elif params.get("host") in HOSTS_OF_SESSIONS and reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=reason not in BY_LUCK))


def module_of(item: pytest.Item) -> str:
    """Return the name of the module that a test is in."""
    return item.path.stem


@pytest.fixture(scope="session", params=[*HOSTS, "hub", "hub-pool", "token", "restored", *HOSTS_OF_SESSIONS])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    """Each host in turn, one whose API is used with a token, and one whose sessions are restored before a test."""
    if request.param == "restored":
        used: Host = hosts["server"]
        return replace(used, name="restored")
    if request.param != "token":
        return hosts[request.param]  # type: ignore[no-any-return]
    server: Host = hosts["server"]
    bearer = mint(server, policy="trusted", name="contract")
    return replace(server, name="token", info=replace(server.info, token=bearer.token), owner_info=server.info)


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
def session(client: Any, host: Host, _shared: list[Any]) -> Any:
    """A session whose kernel other tests use too; a test that harms the kernel takes `fresh`."""
    if not _shared:
        _shared.append(client.session(name="shared"))
    if host.name == "restored":
        restore(_shared[0])
    return _shared[0]


@pytest.fixture
def fresh(client: Any, host: Host) -> Iterator[Any]:
    """A session of the test's own."""
    with client.session() as session:
        if host.name == "restored":
            restore(session)
        yield session


def restore(session: Any) -> None:
    """Make a checkpoint of a session, and restore it, so that its kernel is one from a checkpoint."""
    checkpoint = session.checkpoint(force=True)  # an earlier test may have left a thread
    session.restore(checkpoint)
    session.delete_checkpoint(checkpoint)
