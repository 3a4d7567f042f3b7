"""Pool: puts the parts of `fleet` together, and runs them until it is stopped. `pool_web_app` has its routes."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from ..errors import ExecError, Unavailable
from ..store.store import ExecStore
from .aca_and_mcp import AcaAndMcpRequests
from .approvals import Approvals
from .callers import Callers
from .credential_watch import CredentialWatch
from .fleet import Fleet
from .issued_tokens import IssuedTokens
from .metrics import PoolMetrics
from .pool_server import Server
from .pool_settings import ExecPool
from .pool_web_app import PoolWebApp
from .router import NothingSent, Router
from .searches import Searches
from .server_checks import check_servers
from .server_keeper import Keeper
from .server_lookup import ServerLookup
from .server_requests import ServerRequests
from .server_tokens import LIFE_SECONDS, ServerTokens
from .sessions import SessionRequests
from .token_requests import TokenRequests

_CONNECT_SECONDS = 2.0
_HUB_SECONDS = 5.0
_RENEW_SECONDS = LIFE_SECONDS / 12


class Pool:
    """A pool of servers.

    Parameters
    ----------
    settings : ExecPool
        Its settings.
    fleet : Fleet
        Starts and stops its servers.
    ask_hub : callable
        See `Callers`.
    pool_token : callable
        Returns the token with which the pool is the owner of its servers.
    prefix : str
        A path that it is served below, beside ``/``, with a slash at both ends.
    tls : ssl.SSLContext, optional
        For servers of a Hub with ``internal_ssl``.
    """

    def __init__(
        self,
        settings: ExecPool,
        fleet: Fleet,
        ask_hub: Any,
        pool_token: Any,
        prefix: str = "/",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._ask_hub = ask_hub
        self._pool_token = pool_token
        self._prefix = prefix
        self._tls = tls

    #: Ends once the servers have been checked; raises `PoliciesInvalid`.
    checking: asyncio.Task[None]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[web.Application]:
        """Run the pool beside the block, which gets its application."""
        settings, log = self._settings, self._settings.log
        store = ExecStore(path=settings.state_directory)
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls is not None else True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
        )
        metrics, requests = PoolMetrics(), ServerRequests(http, self._pool_token)
        tokens = ServerTokens(requests, log)
        issued = IssuedTokens(store)
        callers = Callers(self._ask_hub, issued, settings.policies, settings.hub_stale_seconds)

        async def note_end(server: Server) -> None:
            tokens.forget(server.name)
            if server.is_loss:
                log.warning("pool: the server %s is gone (%s)", server.name, server.state.value)
                figures: dict[str, Any] = {"state": server.state.value, "reason": server.problem}
                if server.load is not None:
                    figures |= {"sessions": server.load.sessions, "running": server.load.running}
                store.audit.record("server", "lost", "", server.name, **figures)

        keeper = Keeper(self._fleet, requests, settings, on_end=note_end)
        metrics.watch(keeper)

        async def end_work(principal: str, credential: str) -> None:
            await issued.revoke_made_with(credential)
            await token_requests.end_work_of(principal)

        watch = CredentialWatch(callers, tokens, end_work, log)
        lookup, router = ServerLookup(store.accepted, store.audit), Router(http, tokens.note_refused)
        sessions = SessionRequests(settings, keeper, tokens, lookup, router, metrics)
        others = AcaAndMcpRequests(keeper, tokens, lookup, router, sessions)
        token_requests = TokenRequests(issued, requests, tokens, sessions, log)
        service = PoolWebApp(
            keeper,
            tokens,
            sessions,
            others,
            Searches(keeper, tokens, sessions),
            Approvals(keeper, requests, sessions),
            callers,
            token_requests,
            watch,
            metrics,
            log,
        )
        self.checking = asyncio.create_task(sessions.open_when(check_servers(keeper, requests, settings)))
        works = (keeper.run(), watch.run(), _renew(keeper, tokens, log))
        tasks = [self.checking, *(asyncio.create_task(work) for work in works)]
        try:
            yield service.application("/", self._prefix)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await http.close()
            store.close()

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with self.running() as application:
            # A client that goes away ends its request here, and with it the one to the server.
            runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            try:
                await web.TCPSite(runner, self._settings.ip, self._settings.port).start()
                for address in runner.addresses:
                    self._settings.log.info("pool: serving at http://%s:%s%s", *address[:2], self._prefix)
                stopping = asyncio.create_task(stopped.wait())
                await asyncio.wait({stopping, self.checking}, return_when=asyncio.FIRST_COMPLETED)
                if self.checking.done():
                    self.checking.result()  # raises the problem with the servers, with which the pool must not go on
                await stopping
            finally:
                await runner.cleanup()


async def _renew(keeper: Keeper, tokens: ServerTokens, log: logging.Logger) -> None:
    """Renew the tokens on all servers, again and again."""
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        servers = list(keeper.servers.values())
        results = await asyncio.gather(*map(tokens.renew_due, servers), return_exceptions=True)
        for server, problem in zip(servers, results, strict=True):
            if isinstance(problem, (NothingSent, ExecError)):
                log.warning("pool: tokens on %s could not be renewed now: %s", server.name, problem)
            elif isinstance(problem, Exception):  # a defect, or an answer that cannot be read
                log.error("pool: tokens on %s could not be renewed now", server.name, exc_info=problem)


def make_ask_hub(api_url: str, api_token: str) -> Any:
    """Return what `Callers` asks the Hub with: JupyterHub's own `HubAuth`."""
    from jupyterhub.services.auth import HubAuth
    from tornado.web import HTTPError

    auth = HubAuth(api_url=api_url, api_token=api_token)

    async def ask(text: str) -> Mapping[str, Any] | None:
        try:
            # By itself it tries for minutes, and a Hub that hangs would hold up the bearers of known tokens.
            asking = auth.user_for_token(text, use_cache=False, sync=False)
            model: Mapping[str, Any] | None = await asyncio.wait_for(asking, _HUB_SECONDS)
        except (HTTPError, asyncio.TimeoutError):
            raise Unavailable("the JupyterHub cannot be asked about this token now", retry_after_seconds=5) from None
        return model

    return ask
