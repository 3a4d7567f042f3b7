"""Fixtures of tests with a server: a Jupyter Server, and each kind of client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient
from tests.support.blocking_client import Blocking, LoopThread
from tests.support.hosts import Host


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Each client in turn, with the synchronous one's calls."""
    clients: list[Any] = []
    loop = LoopThread() if request.param == "async" else None

    async def make(info: Any) -> AsyncExecClient:
        return AsyncExecClient(info)

    def client(info: Any) -> Any:
        clients.append(ExecClient(info) if loop is None else Blocking(loop.run(make(info)), loop))
        return clients[-1]

    yield client
    for opened in clients:
        opened.close()
    if loop is not None:
        loop.close()
