"""`HubFleet` at a real JupyterHub, and at one that is away or answers nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from jupyter_exec_ext.errors import MissingScope, NoServerStarted, Unavailable
from jupyter_exec_ext.fleet import hub_fleet
from jupyter_exec_ext.fleet.fleet import FleetServer
from jupyter_exec_ext.fleet.hub_fleet import HubFleet
from tests.support.full import only_in_full
from tests.support.hosts import free_port
from tests.support.hubs import HubHost, running_hub

USER = "exec-pool"
TOKEN = "a-token-of-the-pool"  # of no Hub but the test's
LIGHT = Path(__file__).parents[1] / "hub" / "light_server.py"
SCOPES = [
    *(f"{scope}!user={USER}" for scope in ("servers", "read:servers", "read:users:name", "access:servers")),
    "proxy",
]
RECIPE = f"""
import sys

from jupyterhub.spawner import SimpleLocalProcessSpawner


class Obliging(SimpleLocalProcessSpawner):
    async def start(self):
        if "fail" in self.user_options:
            raise RuntimeError(self.user_options["fail"])
        if self.name:
            self.cmd = [sys.executable, {str(LIGHT)!r}]
        return await super().start()


c.JupyterHub.spawner_class = Obliging
c.JupyterHub.allow_named_servers = True
c.JupyterHub.services.append({{"name": "pool", "api_token": {TOKEN!r}}})
c.JupyterHub.load_roles.append({{"name": "pool", "scopes": {SCOPES!r}, "services": ["pool"]}})
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    home = tmp_path_factory.mktemp("hub")
    recipe = home / "recipe.py"
    recipe.write_text(RECIPE)
    with running_hub(home, recipe=recipe) as host:
        host.api("POST", f"/users/{USER}")
        yield host


@asynccontextmanager
async def fleet_at(api_url: str, **options: Any) -> AsyncIterator[HubFleet]:
    fleet = HubFleet(api_url, TOKEN, USER, options)
    try:
        yield fleet
    finally:
        await fleet.close()


@only_in_full
async def test_servers_of_a_real_hub_are_started_found_and_removed(hub: HubHost) -> None:
    async with fleet_at(f"{hub.hub_url}api") as fleet, aiohttp.ClientSession() as http:
        assert await fleet.list() == []
        await asyncio.gather(fleet.start("w1"), fleet.start("w2"))
        first, second = sorted(await fleet.list(), key=lambda server: server.name)
        assert (first.name, first.is_ready, second.name) == ("w1", True, "w2")
        assert first.address.endswith(f"/user/{USER}/w1/")
        assert f":{hub.info.port}/" not in first.address  # not through the proxy
        async with http.get(first.address) as answer:
            assert answer.status == 200
        await fleet.stop("w1", removes=False)
        stopped = next(server for server in await fleet.list() if server.name == "w1")
        assert stopped.is_stopped
        assert stopped.address == ""
        for name in ("w1", "w2", "w3"):  # the last one never was
            await fleet.stop(name)
        assert await fleet.list() == []


@only_in_full
async def test_start_that_fails_at_a_real_hub_has_its_reason(hub: HubHost) -> None:
    async with fleet_at(f"{hub.hub_url}api", fail="no room on the cluster") as fleet:
        with pytest.raises(NoServerStarted, match="no room on the cluster"):
            await fleet.start("w1")
        assert [server.name for server in await fleet.list() if server.is_stopped] == ["w1"]
        await fleet.stop("w1")


@only_in_full
async def test_token_without_the_scope_of_the_routes_is_told_which(hub: HubHost) -> None:
    hub.api("POST", "/users/meg")
    token = hub.token_of("meg", "servers!user=meg", "read:users:name!user=meg")
    fleet = HubFleet(f"{hub.hub_url}api", token, "meg", {})
    try:
        await fleet.start("w1")
        with pytest.raises(MissingScope, match="proxy"):
            await fleet.list()
    finally:
        await fleet.stop("w1")
        await fleet.close()


# --- a Hub that fails -----------------------------------------------------------------------------------------------


@dataclass
class SimulatedHub:
    """Answers as a Hub with one server."""

    api_url: str = ""
    routes: Callable[[], Any] | None = None
    started: str = "2026-01-01T00:00:00Z"
    silent: asyncio.Event = field(default_factory=asyncio.Event)

    async def user(self, request: web.Request) -> web.StreamResponse:
        if self.silent.is_set():
            await asyncio.sleep(3600)
        assert request.headers["Authorization"] == f"token {TOKEN}"
        server = {"ready": True, "pending": None, "url": f"/user/{USER}/w1/", "started": self.started}
        return web.json_response({"name": USER, "servers": {"": server, "w1": server}})

    async def proxy(self, request: web.Request) -> web.StreamResponse:
        if self.routes is None:
            raise web.HTTPInternalServerError
        return web.json_response(self.routes())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get(f"/base/hub/api/users/{USER}", self.user)
        app.router.add_get("/base/hub/api/proxy", self.proxy)
        async with TestServer(app) as server:
            self.api_url = str(server.make_url("/base/hub/api"))
            yield


def routes(target: str = "http://10.0.0.4:40123", spec: str = f"/base/user/{USER}/w1/") -> dict[str, Any]:
    other = {"target": "http://10.0.0.9:1", "data": {"user": "ada", "server_name": "w1"}}
    return {
        "/base/": {"target": "http://10.0.0.1:8081", "data": {"hub": True}},
        "/base/user/ada/w1/": other,
        spec: {"target": target, "data": {"user": USER, "server_name": "w1"}},
    }


async def test_address_is_kept_while_the_routes_are_away() -> None:
    hub = SimulatedHub(routes=routes)
    async with hub.running(), fleet_at(hub.api_url) as fleet:
        address = f"http://10.0.0.4:40123/base/user/{USER}/w1/"
        assert await fleet.list() == [FleetServer("w1", address, hub.started, True)]
        hub.routes = None
        assert [server.address for server in await fleet.list()] == [address]
        hub.started = "2026-01-02T00:00:00Z"  # another server of the same name is elsewhere
        assert [server.address for server in await fleet.list()] == [""]
        hub.routes = lambda: routes("https://10.0.0.5:1/")
        assert [server.address for server in await fleet.list()] == [f"https://10.0.0.5:1/base/user/{USER}/w1/"]


async def test_route_of_a_hub_with_subdomains_has_a_host() -> None:
    hub = SimulatedHub(routes=lambda: routes(spec=f"exec-pool.hub.example/base/user/{USER}/w1/"))
    async with hub.running(), fleet_at(hub.api_url) as fleet:
        assert [server.address for server in await fleet.list()] == [f"http://10.0.0.4:40123/base/user/{USER}/w1/"]


async def test_hub_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_fleet, "_ANSWER_SECONDS", 0.1)
    hub = SimulatedHub()
    hub.silent.set()
    async with hub.running(), fleet_at(hub.api_url) as fleet:
        with pytest.raises(Unavailable, match="did not answer"):
            await fleet.list()
    async with fleet_at(f"http://127.0.0.1:{free_port()}/hub/api") as fleet:
        for asking in (fleet.list, lambda: fleet.start("w1"), lambda: fleet.stop("w1")):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await asking()


@pytest.mark.parametrize("status", [302, 500, 502, 503])
async def test_proxy_in_the_place_of_the_hub_is_unavailable(status: int) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": "/hub/login"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app) as server, fleet_at(str(server.make_url("/hub/api"))) as fleet:
        with pytest.raises(Unavailable):
            await fleet.list()
        with pytest.raises(Unavailable):
            await fleet.stop("w1")
