"""The keeper at a real JupyterHub, with real servers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import psutil
import pytest

from jupyter_exec_ext import AsyncExecClient, JupyterConnectionInfo
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.fleet.hub_fleet import HubFleet
from jupyter_exec_ext.fleet.pool_server import Server, ServerState
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.fleet.server_keeper import Keeper
from jupyter_exec_ext.fleet.server_requests import ServerRequests
from tests.support import canaries
from tests.support.bearers import UNPROTECTED
from tests.support.fleets import TOKEN, USER, pool_token
from tests.support.full import only_in_full
from tests.support.hubs import HubHost, running_hub
from tests.support.waiting import until

pytestmark = [only_in_full, pytest.mark.timeout(300)]
SCOPES = [
    *(f"{scope}!user={USER}" for scope in ("servers", "read:servers", "read:users:name", "access:servers")),
    "proxy",
]
RECIPE = f"""
c.JupyterHub.allow_named_servers = True
c.Spawner.poll_interval = 2
c.JupyterHub.services.append({{"name": "pool", "api_token": {TOKEN!r}}})
c.JupyterHub.load_roles.append({{"name": "pool", "scopes": {SCOPES!r}, "services": ["pool"]}})
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    home = tmp_path_factory.mktemp("hub")
    recipe = tmp_path_factory.mktemp("recipe") / "recipe.py"  # has the token
    recipe.write_text(RECIPE)
    with running_hub(home, UNPROTECTED, recipe=recipe) as host:
        host.api("POST", f"/users/{USER}")
        canaries.note(TOKEN)
        yield host
        assert not canaries.look_through(host)


class Pool:
    """A keeper, and what it has reported."""

    def __init__(self, hub: HubHost, http: aiohttp.ClientSession) -> None:
        self.hub = hub
        self.fleet = HubFleet(f"{hub.hub_url}api", TOKEN, USER, {})
        settings = ExecPool(min_servers=2, max_servers=3, lost_after_seconds=30, idle_server_seconds=3600)
        self.keeper = Keeper(self.fleet, ServerRequests(http, pool_token), settings, on_end=self._note_end)
        self.ended: list[Server] = []

    async def _note_end(self, server: Server) -> None:
        self.ended.append(server)

    def client(self, server: Server) -> AsyncExecClient:
        return AsyncExecClient(JupyterConnectionInfo.from_url(server.address, TOKEN))

    def pid(self, server: Server) -> int:
        return int(self.hub.api("GET", f"/users/{USER}")["servers"][server.name]["state"]["pid"])

    async def until_ready(self, number: int) -> list[Server]:
        def ready() -> list[Server]:
            return [server for server in self.keeper.servers.values() if server.state is ServerState.READY]

        await until(lambda: len(ready()) == number, 90)
        return ready()


@asynccontextmanager
async def running_pool(hub: HubHost) -> AsyncIterator[Pool]:
    async with aiohttp.ClientSession() as http:
        pool = Pool(hub, http)
        task = asyncio.create_task(pool.keeper.run())
        try:
            yield pool
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])
            await pool.fleet.close()


async def test_servers_of_a_hub_live_and_end_as_simulated_ones_do(hub: HubHost) -> None:
    async with running_pool(hub) as pool:
        first, second = await pool.until_ready(2)
        place = pool.keeper.reserve_now()
        async with pool.client(place.server) as client:
            session = await client.session()
            place.done(is_kept=True)
            assert session.id.startswith(f"ses_{place.server.name}_")
            await until(lambda: place.server.load is not None and place.server.load.sessions == 1)
            await until(lambda: not place.server.coming)  # counted once from here on
            assert pool.keeper.reserve_now().server is not place.server
    async with running_pool(hub) as pool:  # the pool was restarted, the servers were not
        await asyncio.wait_for(pool.keeper.is_ready.wait(), 30)
        assert {*pool.keeper.servers} == {first.name, second.name}
        used, other = sorted(await pool.until_ready(2), key=lambda server: server.name != place.server.name)
        assert used.load is not None
        assert used.load.sessions == 1

        # Drained: what runs ends, and then the server is removed.
        async with pool.client(used) as client:
            found = await client.get_session(session.id)
            run = asyncio.create_task(found.run("import time; time.sleep(5); print('whole')"))
            await until(lambda: used.load is not None and used.load.running == 1)
            await pool.keeper.drain(used.name)
            await until(lambda: used.state is ServerState.DRAINING)
            with pytest.raises(ExecError, match="drain"):
                await client.session()
            assert (await run).text == "whole"
            await found.close()
        await until(lambda: pool.ended == [used], 60)
        await until(lambda: used.name not in hub.api("GET", f"/users/{USER}?include_stopped_servers=1")["servers"])

        # Killed: the Hub finds out, and another one is started.
        await pool.until_ready(2)
        psutil.Process(pool.pid(other)).send_signal(signal.SIGKILL)
        await until(lambda: pool.ended == [used, other], 10)
        assert other.state is ServerState.ENDED

        # Stopped: silent without an end of its connections.
        (third, *_) = await pool.until_ready(2)
        process = psutil.Process(pool.pid(third))
        process.suspend()
        await asyncio.wait_for(third.away.wait(), 10)
        assert third.state is ServerState.UNREACHABLE
        process.resume()
        await pool.until_ready(2)
        assert pool.ended == [used, other]
        assert pool.keeper.trouble is None
