"""Outages of a JupyterHub's proxy: it comes back without its routes, which the Hub adds some seconds later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from jupyter_exec_ext import AsyncExecClient
from jupyter_exec_ext.models import StreamEvent
from tests.support.bearers import UNPROTECTED
from tests.support.full import only_in_full
from tests.support.hosts import free_port
from tests.support.hubs import HubHost, HubProxy, running_hub

COUNT = 10
CODE = "import time\nfor i in range(30):\n    print(i, flush=True)\n    time.sleep(0.1)"
PRINTED = "".join(f"{number}\n" for number in range(30))
# What the proxy answers until the Hub has noticed is the Hub's page for a server that does not run.
RECIPE = f"{HubProxy.RECIPE}c.JupyterHub.last_activity_interval = 10\n"
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.timeout(300),
    only_in_full,
]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("port", "hub_port", "proxy_port")}


@pytest.fixture(scope="module")
def proxy(ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProxy]:
    proxy = HubProxy(ports, tmp_path_factory.mktemp("proxy") / "proxy.log")
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def hub(proxy: HubProxy, ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    home = tmp_path_factory.mktemp("hub")
    recipe = home / "recipe.py"
    recipe.write_text(RECIPE)
    with running_hub(home, UNPROTECTED, recipe=recipe, ports=ports) as host:
        yield host


async def collect(session: Any) -> str:
    """Return what a stream printed; its events have all numbers once."""
    events = [event async for event in session.stream(CODE)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


async def route_is_back(hub: HubHost) -> float:
    """Wait until the user's server can be reached again; return after how many seconds."""
    began = time.monotonic()
    while True:
        try:
            answer = await asyncio.to_thread(
                requests.get, f"{hub.info.url}exec/v1", headers=hub.info.auth_headers, timeout=5, allow_redirects=False
            )
            if answer.status_code == 200:
                return time.monotonic() - began
        except requests.RequestException:
            pass  # the proxy does not listen yet
        assert time.monotonic() - began < 60
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("down_seconds", [0.3, 1.0, 5.0, 20.0])
async def test_runs_and_streams_outlive_an_outage_of_the_hubs_proxy(
    hub: HubHost, proxy: HubProxy, down_seconds: float
) -> None:
    async with AsyncExecClient(hub.info) as client:
        sessions = [await client.session() for _ in range(2 * COUNT)]
        work = [asyncio.ensure_future(session.run(CODE)) for session in sessions[:COUNT]]
        streams = [asyncio.ensure_future(collect(session)) for session in sessions[COUNT:]]
        await asyncio.sleep(1.0)  # into the middle of them
        await asyncio.to_thread(proxy.stop)
        await asyncio.sleep(down_seconds)
        await asyncio.to_thread(proxy.start)
        back = asyncio.ensure_future(route_is_back(hub))
        assert [(await one).stdout for one in work] == [PRINTED] * COUNT
        assert [await one for one in streams] == [PRINTED] * COUNT
        for session in sessions:
            await session.close()
        print(f"\nproxy down {down_seconds:g} s, route back {await back:.1f} s later: {2 * COUNT} of {2 * COUNT} whole")
