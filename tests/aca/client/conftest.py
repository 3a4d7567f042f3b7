from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_exec_ext import ACAClient, AsyncACAClient
from tests.aca.client.pool_service import ACAService, AsyncTokens, Tokens
from tests.support.blocking_client import Blocking, LoopThread

MakeACA = Callable[..., Any]


@pytest.fixture
def service() -> Iterator[ACAService]:
    with ACAService() as service:
        yield service


@pytest.fixture(params=["sync", "async", "async with an async credential"])
def aca(request: pytest.FixtureRequest, service: ACAService) -> Iterator[MakeACA]:
    """Make clients of each kind in turn, with the synchronous one's calls; close them at the end."""
    loop = None if request.param == "sync" else LoopThread()
    made: list[Any] = []

    def make(endpoint: str | None = None, credential: Any = None, **options: Any) -> Any:
        if credential is None:
            credential = AsyncTokens(service) if "credential" in request.param else Tokens(service)
        if loop is None:
            client: Any = ACAClient(endpoint or service.endpoint, credential, **options)
            made.append(client.close)
        else:
            asynchronous = AsyncACAClient(endpoint or service.endpoint, credential, **options)
            client = Blocking(asynchronous, loop)
            made.append(lambda: loop.run(asynchronous.aclose()))
        return client

    yield make
    for close in made:
        close()
    if loop is not None:
        loop.close()
