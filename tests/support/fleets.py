"""A fleet of simulated servers: each answers the keeper's requests, and can be full, hang, refuse or die."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from jupyter_exec_ext.errors import NoServerStarted, Unavailable
from jupyter_exec_ext.fleet import server_keeper as keeper_module
from jupyter_exec_ext.fleet import server_requests, server_watch
from jupyter_exec_ext.fleet.fleet import FleetServer
from jupyter_exec_ext.fleet.pool_server import Server
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.fleet.server_keeper import Keeper
from jupyter_exec_ext.fleet.server_requests import ServerRequests

USER = "exec-pool"
TOKEN = "the-token-of-the-pool"  # of no Hub
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SimulatedServer:
    """A server with sessions that are names alone."""

    def __init__(self, name: str, started: str, max_sessions: int | None = None) -> None:
        self.name, self.started, self.max_sessions = name, started, max_sessions
        self.sessions: list[str] = []
        self.deleted: list[str] = []
        self.running = 0
        self.is_ready, self.is_draining, self.is_known_as = True, False, name
        self.requests = self.drains = 0
        self.can_drain = asyncio.Event()
        self.can_drain.set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._numbers = itertools.count()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/user/{USER}/{self.name}/"

    @property
    def runs(self) -> bool:
        return self._runner is not None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._answer_if_alive])
        base = f"/user/{USER}/{self.name}/exec/v1"
        app.router.add_get(f"{base}/ready", self._ready)
        app.router.add_get(f"{base}/load", self._load)
        app.router.add_post(f"{base}/drain", self._drain)
        app.router.add_get(f"{base}/tokens", self._list_tokens)
        app.router.add_get(f"{base}/sessions", self._list)
        app.router.add_post(f"{base}/sessions", self._create)
        app.router.add_delete(f"{base}/sessions/{{id}}", self._delete)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def die(self) -> None:
        """End as after a kill: connections are refused."""
        runner, self._runner = self._runner, None
        for event in (self._flows, self.can_drain):
            event.set()
        if runner is not None:
            await runner.cleanup()

    def fall_silent(self) -> None:
        """Be as a host without a network: requests arrive, and no answer comes."""
        self._flows.clear()

    def come_back(self) -> None:
        self._flows.set()

    @web.middleware
    async def _answer_if_alive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests += 1
        has_token = request.headers.get("Authorization") == f"token {TOKEN}"
        assert has_token != request.path.endswith("/ready")
        await self._flows.wait()
        return await handler(request)

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        ready = self.is_ready and not self.is_draining
        return web.json_response({"ready": ready, "draining": self.is_draining}, status=200 if ready else 503)

    async def _load(self, request: web.Request) -> web.StreamResponse:
        free = None if self.max_sessions is None else self.max_sessions - len(self.sessions)
        load = {
            "server_name": self.is_known_as,
            "draining": self.is_draining,
            "sessions": len(self.sessions),
            "running": self.running,
            "queued": 0,
            "free_places": 0 if self.is_draining else free,
            "pooled_kernels": 0,
            "descriptors_used": None,
            "descriptors_allowed": None,
            "kernels_pss_bytes": 0,
        }
        return web.json_response(load)

    async def _drain(self, request: web.Request) -> web.StreamResponse:
        self.drains += 1
        await self.can_drain.wait()
        self.is_draining = True
        return web.json_response({"ready": False, "draining": True})

    async def _list_tokens(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"tokens": []})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"sessions": [{"id": session} for session in self.sessions]})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if self.is_draining:
            return web.json_response({"code": "draining", "message": "it drains", "request_id": "r"}, status=503)
        session = f"ses_{self.name}_{next(self._numbers)}"
        self.sessions.append(session)
        return web.json_response({"id": session}, status=201)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        self.sessions.remove(request.match_info["id"])
        self.deleted.append(request.match_info["id"])
        return web.Response(status=204)


class SimulatedFleet:
    """Starts simulated servers, as a Hub would.

    Attributes
    ----------
    is_away : bool
        Whether the Hub cannot be reached.
    lists : int
        How often it was asked for its servers.
    failure : str
        Why starts fail; empty if they succeed.
    believed_dead : set of str
        Servers that run, and of which the Hub says that they do not.
    """

    def __init__(self, max_sessions: int | None = None) -> None:
        self.servers: dict[str, SimulatedServer] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.believed_dead: set[str] = set()
        self.lists = 0
        self.is_away, self.failure = False, ""
        self.can_start = asyncio.Event()
        self.can_start.set()
        self._max_sessions = max_sessions
        self._starts: list[tuple[SimulatedServer, asyncio.Task[None]]] = []

    def __getitem__(self, name: str) -> SimulatedServer:
        return self.servers[name]

    async def list(self) -> list[FleetServer]:
        self.lists += 1
        self._check()
        return [
            FleetServer(server.name, server.address, server.started, is_ready=True)
            if server.runs and server.name not in self.believed_dead
            else FleetServer(server.name)
            for server in self.servers.values()
        ]

    async def start(self, name: str) -> None:
        self._check()
        self.started.append(name)
        await self.can_start.wait()
        if self.failure:
            raise NoServerStarted(self.failure)
        server = SimulatedServer(name, f"start {len(self.started)}", self._max_sessions)
        # To the end, also if the keeper is cancelled meanwhile.
        self._starts.append((server, asyncio.create_task(server.start())))
        await asyncio.shield(self._starts[-1][1])
        self.servers[name] = server

    async def stop(self, name: str, *, removes: bool = True) -> None:
        self._check()
        self.stopped.append(name)
        if name in self.servers:
            await self.servers[name].die()
            if removes:
                del self.servers[name]

    def _check(self) -> None:
        if self.is_away:
            raise Unavailable("the JupyterHub cannot be reached: it is away")

    async def close(self) -> None:
        await asyncio.gather(*(task for _, task in self._starts))
        for server in {*(server for server, _ in self._starts), *self.servers.values()}:
            await server.die()


async def pool_token() -> str:
    return TOKEN


class RunningKeeper(Keeper):
    """A keeper with the servers that it has reported as ended."""

    def __init__(self, fleet: SimulatedFleet, http: aiohttp.ClientSession, settings: ExecPool) -> None:
        super().__init__(fleet, ServerRequests(http, pool_token), settings, on_end=self._note_end)
        self.ended: list[Server] = []

    async def _note_end(self, server: Server) -> None:
        self.ended.append(server)


@asynccontextmanager
async def running_keeper(fleet: SimulatedFleet, **settings: Any) -> AsyncIterator[RunningKeeper]:
    """Run a keeper, and stop it and all servers at the end."""
    async with aiohttp.ClientSession() as http:
        keeper = RunningKeeper(fleet, http, ExecPool(**settings))
        task = asyncio.create_task(keeper.run())
        try:
            yield keeper
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])
            await fleet.close()


@contextmanager
def short_times(
    monkeypatch: pytest.MonkeyPatch, probe_seconds: float = 0.04, answer_seconds: float = 0.2
) -> Iterator[None]:
    """Probe often, so that what takes a minute is over in a second."""
    with monkeypatch.context() as patch:
        patch.setattr(server_watch, "PROBE_SECONDS", probe_seconds)
        patch.setattr(server_requests, "ANSWER_SECONDS", answer_seconds)
        patch.setattr(keeper_module, "START_PAUSE_SECONDS", 10 * probe_seconds)
        yield
