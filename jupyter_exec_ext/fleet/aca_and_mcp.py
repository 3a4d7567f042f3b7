"""Requests of the ACA sessions' protocol and of MCP: which server each belongs to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from aiohttp import web
from multidict import CIMultiDictProxy

from ..errors import Forbidden, Gone, InvalidRequest, NotFound, UnexpectedAnswer
from ..protocol.strict_json import dump_bytes, loads_strict
from .answers import MAX_KEPT_BODY_BYTES, read_body
from .callers import PoolCaller, require_runner
from .pool_server import AWAY, Server, ServerState
from .router import PREFIX, NothingSent, Refused, Router, unreachable
from .server_keeper import Keeper
from .server_lookup import AcaName, McpClient, ServerLookup, makes_mcp_session, server_in_mcp
from .server_tokens import ServerTokens
from .sessions import TRY_NEXT, SessionRequests

_POOL = re.compile(r"exec/aca(/(?:subscriptions/[^/]+/resourceGroups/[^/]+/)?sessionPools/[^/]+)?/(.+)")
# What may make a session. All else is about one that is there.
_MAKES_SESSION = re.compile(r"code/execute|python/execute|executions|files/upload|files")
_LISTS = frozenset({"listSessions", ".management/listSessions"})
_SESSION_HEADER, _LEASE_HEADER = "Mcp-Session-Id", "Jupyter-Exec-Lease"


class AcaAndMcpRequests:
    """Handlers of ``exec/aca`` and ``exec/mcp``.

    Parameters
    ----------
    keeper, tokens, lookup, router, sessions
        The parts of the pool.
    """

    def __init__(
        self, keeper: Keeper, tokens: ServerTokens, lookup: ServerLookup, router: Router, sessions: SessionRequests
    ) -> None:
        self._keeper = keeper
        self._tokens = tokens
        self._lookup = lookup
        self._router = router
        self._sessions = sessions
        # Two first requests with one identifier must not make two sessions.
        self._locks: WeakValueDictionary[AcaName, asyncio.Lock] = WeakValueDictionary()

    # --- the ACA sessions' protocol ---

    async def aca(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``exec/aca``: a session is named by an identifier of the caller's."""
        require_runner(caller)
        match = _POOL.search(request.path)
        pool, operation = (match[1] or "", match[2]) if match else ("", "")
        identifier = request.query.get("identifier", "")
        if operation in _LISTS:
            return await self._list_aca(request, caller)
        if not identifier:  # the server says what is wrong, or describes itself
            return await self._sessions.forward(request, caller, self._sessions.any_server())
        name = AcaName(caller.principal, pool, identifier)
        makes_session = request.method == "POST" and _MAKES_SESSION.fullmatch(operation) is not None
        # A larger upload is forwarded as it comes, so it can be sent to one server only.
        is_kept = makes_session and request.content_length is not None and request.content_length <= MAX_KEPT_BODY_BYTES
        body = await read_body(request) if is_kept else None
        tried: set[str] = set()
        while True:
            server, is_placed = await self._server_of(name, request, caller, makes_session, tried)
            try:
                return await self._sessions.forward(
                    request, caller, server, body=body, refusals=TRY_NEXT if makes_session else ()
                )
            except (Refused, NothingSent) as error:
                if isinstance(error, NothingSent) and not is_placed:  # it may come back with the session
                    raise unreachable(server) from None
                self._keeper.note_failure(server.name)
                if self._lookup.aca_servers.get(name) == server.name:
                    del self._lookup.aca_servers[name]
                if body is None:
                    raise error.error if isinstance(error, Refused) else unreachable(server) from None
                tried.add(server.name)

    async def _server_of(
        self, name: AcaName, request: web.Request, caller: PoolCaller, makes_session: bool, tried: Collection[str]
    ) -> tuple[Server, bool]:
        """Return the server that has the session of an identifier or is to have it, and whether it was chosen now."""
        server = self._known(name)
        if server is not None:
            return server, False
        async with self._locks.setdefault(name, asyncio.Lock()):
            server = self._known(name) or await self._find_aca(request, caller, name)
            if server is None and not makes_session:
                return self._sessions.any_server(), False
            is_placed = server is None or server.name in tried
            if server is None or server.name in tried:
                reservation = await self._sessions.reserve(caller, request, tried)
                reservation.done(is_kept=True)
                server = reservation.server
                self._lookup.audit_placement(caller.principal, server.name, request.path)
            self._lookup.aca_servers[name] = server.name
            return server, is_placed

    def _known(self, name: AcaName) -> Server | None:
        """Return the server that has the session of an identifier, as far as it is known and not lost.

        Raises
        ------
        ServerUnreachable
            If the server may come back.
        """
        server = self._keeper.servers.get(self._lookup.aca_servers.get(name, ""))
        if server is not None and server.state is ServerState.UNREACHABLE:
            raise unreachable(server)
        return None if server is None or server.state in AWAY else server

    async def _find_aca(self, request: web.Request, caller: PoolCaller, name: AcaName) -> Server | None:
        """Return the server that has a session from before the pool was started.

        Raises
        ------
        ServerUnreachable
            If a server from before may have it, and cannot be asked.
        """

        async def has(server: Server) -> bool:
            if not server.is_adopted or not await self._tokens.has_token(server, caller):
                return False
            try:
                query = urlencode({"identifier": name.identifier, "api-version": request.query.get("api-version", "")})
                await self._tokens.call_as(caller, server, "GET", f"../aca{name.pool}/session?{query}")
            except NothingSent as error:
                raise unreachable(server) from error
            # The protocol's errors have no code of ours. A token that may not read its sessions gets another one.
            except (NotFound, Gone, Forbidden, UnexpectedAnswer):
                return False
            return True

        servers = self._sessions.answering()
        for server in self._keeper.servers.values():
            if server.is_adopted and server.may_come_back and server not in servers:
                raise unreachable(server)
        found = await asyncio.gather(*map(has, servers))
        return next((server for server, is_there in zip(servers, found, strict=True) if is_there), None)

    async def _list_aca(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        path = "../" + request.rel_url.raw_path.removeprefix(f"{request[PREFIX]}exec/")
        if request.rel_url.raw_query_string:
            path += f"?{request.rel_url.raw_query_string}"
        items: list[Any] = []
        answer: dict[str, Any] = {"value": []}
        for server in self._sessions.answering():
            with suppress(NothingSent):  # as in the list of all sessions
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
        name = self._lookup.mcp_streams.get(stream_id) if stream_id else None
        makes_session = False
        if name is None and body is not None:
            try:
                message = loads_strict(body)
            except ValueError:
                raise InvalidRequest("the request body must be a JSON object in UTF-8") from None
            name, makes_session = server_in_mcp(message), makes_mcp_session(message)
        # A client with a lease has one session that it need not name, on one server. Others name theirs.
        client = McpClient(caller.principal, request.headers.get(_LEASE_HEADER, "").partition(";")[0])
        server = self._keeper.servers.get(name or self._lookup.mcp_homes.get(client, ""))
        if server is not None and server.state is ServerState.UNREACHABLE:
            raise unreachable(server)
        is_new = makes_session and not (name or client.lease)
        if server is None or server.state in AWAY or (is_new and not self._keeper.has_place(server)):
            server = await self._new_home(request, client, caller)
        if is_new:
            server.note_new_session()
        secret = await self._tokens.secret(server, caller)

        def note(status: int, headers: CIMultiDictProxy[str], server: Server = server) -> None:
            if _SESSION_HEADER in headers:
                self._lookup.mcp_streams[headers[_SESSION_HEADER]] = server.name

        return await self._router.forward(request, server, secret, body=body, on_answer=note)

    async def _new_home(self, request: web.Request, client: McpClient, caller: PoolCaller) -> Server:
        """Return the server for MCP requests that name nothing: one where the caller has a session, or the best one."""
        if client not in self._lookup.mcp_homes:
            for server in self._sessions.answering():
                if server.is_adopted and await self._tokens.has_token(server, caller):
                    self._lookup.mcp_homes[client] = server.name
                    return server
        reservation = await self._sessions.reserve(caller, request)
        reservation.done(is_kept=False)
        self._lookup.mcp_homes[client] = reservation.server.name
        self._lookup.audit_placement(caller.principal, reservation.server.name, request.path)
        return reservation.server
