"""Requests of the ACA sessions' protocol and of MCP: which server each belongs to."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from multidict import CIMultiDictProxy

from ..errors import Forbidden, Gone, InvalidRequest, NotFound, Unavailable, UnexpectedAnswer
from ..protocol.strict_json import dump_bytes, loads_strict
from .callers import PoolCaller, require_runner
from .directory import Directory, server_in_mcp
from .keeper import Keeper
from .pool_server import AWAY, Server, ServerState
from .router import PREFIX, NothingSent, Router, unreachable
from .server_tokens import ServerTokens
from .sessions import SessionRequests, read_body

_POOL = re.compile(r"exec/aca(/(?:subscriptions/[^/]+/resourceGroups/[^/]+/)?sessionPools/[^/]+)?/(.+)")
# What may make a session. All else is about one that is there.
_MAKES_SESSION = re.compile(r"code/execute|python/execute|executions|files/upload|files")
_LISTS = frozenset({"listSessions", ".management/listSessions"})
_SESSION_HEADER = "Mcp-Session-Id"


class AcaAndMcpRequests:
    """Handlers of ``exec/aca`` and ``exec/mcp``.

    Parameters
    ----------
    keeper, tokens, directory, router, sessions
        The parts of the pool.
    """

    def __init__(
        self, keeper: Keeper, tokens: ServerTokens, directory: Directory, router: Router, sessions: SessionRequests
    ) -> None:
        self._keeper = keeper
        self._tokens = tokens
        self._directory = directory
        self._router = router
        self._sessions = sessions
        # Two first requests with one identifier must not make two sessions.
        self._locks: defaultdict[tuple[str, str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    # --- the ACA sessions' protocol ---

    async def aca(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``exec/aca``: a session is named by an identifier of the caller's."""
        require_runner(caller)
        match = _POOL.search(request.path)
        pool, operation = (match[1] or "", match[2]) if match else ("", "")
        identifier = request.query.get("identifier", "")
        if operation in _LISTS:
            return await self._list_aca(request, caller)
        name = (caller.principal, pool, identifier)
        if not identifier:  # the server says what is wrong, or describes itself
            return await self._sessions.forward(request, caller, self._any_server())
        server = self._known(name)
        if server is not None:
            return await self._sessions.forward(request, caller, server)
        lock = self._locks[name]
        try:
            async with lock:
                server = self._known(name) or await self._find_aca(request, caller, pool, identifier)
                if server is None and not (request.method == "POST" and _MAKES_SESSION.fullmatch(operation)):
                    return await self._sessions.forward(request, caller, self._any_server())
                if server is None:
                    reservation = await self._sessions.reserve(caller, request)
                    reservation.done(is_kept=True)
                    server = reservation.server
                    self._directory.audit_placement(caller.principal, server.name, request.path)
                self._directory.names[name] = server.name
        finally:
            if not lock.locked():
                self._locks.pop(name, None)
        return await self._sessions.forward(request, caller, server)

    def _known(self, name: tuple[str, str, str]) -> Server | None:
        """Return the server that has the session of an identifier, as far as it is known and not lost.

        Raises
        ------
        ServerUnreachable
            If the server may come back.
        """
        server = self._keeper.servers.get(self._directory.names.get(name, ""))
        if server is not None and server.state is ServerState.UNREACHABLE:
            raise unreachable(server)
        return None if server is None or server.state in AWAY else server

    async def _find_aca(self, request: web.Request, caller: PoolCaller, pool: str, identifier: str) -> Server | None:
        """Return the server that has a session from before the pool was started."""

        async def has(server: Server) -> bool:
            if not server.is_adopted or not await self._tokens.has_token(server, caller):
                return False
            try:
                query = urlencode({"identifier": identifier, "api-version": request.query.get("api-version", "")})
                await self._tokens.call_as(caller, server, "GET", f"../aca{pool}/session?{query}")
            except NothingSent as error:
                raise unreachable(server) from error
            # The protocol's errors have no code of ours. A token that may not read its sessions gets another one.
            except (NotFound, Gone, Forbidden, UnexpectedAnswer):
                return False
            return True

        servers = self._sessions.answering()
        found = await asyncio.gather(*map(has, servers))
        return next((server for server, is_there in zip(servers, found, strict=True) if is_there), None)

    async def _list_aca(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        path = "../" + request.rel_url.raw_path.removeprefix(f"{request[PREFIX]}exec/")
        if request.rel_url.raw_query_string:
            path += f"?{request.rel_url.raw_query_string}"
        items: list[Any] = []
        answer: dict[str, Any] = {"value": []}
        for server in self._sessions.answering():
            if await self._tokens.has_token(server, caller):
                answer = await self._tokens.call_as(caller, server, request.method, path)
                items += answer["value"]
        return web.Response(body=dump_bytes({**answer, "value": items}), content_type="application/json")

    # --- MCP ---

    async def mcp(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``exec/mcp``: what a message names decides; a client that names nothing stays on one server."""
        require_runner(caller)
        stream_id = request.headers.get(_SESSION_HEADER, "")
        body = await read_body(request) if request.method == "POST" else None
        name = self._directory.streams.get(stream_id) if stream_id else None
        if name is None and body is not None:
            try:
                name = server_in_mcp(loads_strict(body))
            except ValueError:
                raise InvalidRequest("the request body must be a JSON object in UTF-8") from None
        server = self._keeper.servers.get(name or self._directory.homes.get(caller.principal, ""))
        if server is not None and server.state is ServerState.UNREACHABLE:
            raise unreachable(server)
        if server is None or server.state in AWAY:
            server = await self._new_home(request, caller)
        secret = await self._tokens.secret(server, caller)

        def note(status: int, headers: CIMultiDictProxy[str], server: Server = server) -> None:
            if _SESSION_HEADER in headers:
                self._directory.streams[headers[_SESSION_HEADER]] = server.name

        return await self._router.forward(request, server, secret, body=body, on_answer=note)

    async def _new_home(self, request: web.Request, caller: PoolCaller) -> Server:
        """Return the server for MCP requests that name nothing: one where the caller has a session, or the best one."""
        for server in self._sessions.answering():
            if server.is_adopted and await self._tokens.has_token(server, caller):
                self._directory.homes[caller.principal] = server.name
                return server
        reservation = await self._sessions.reserve(caller, request)
        reservation.done(is_kept=False)
        self._directory.homes[caller.principal] = reservation.server.name
        self._directory.audit_placement(caller.principal, reservation.server.name, request.path)
        return reservation.server

    def _any_server(self) -> Server:
        servers = self._sessions.answering()
        if not servers:
            raise Unavailable("no server of the pool answers now", retry_after_seconds=5)
        return servers[0]
