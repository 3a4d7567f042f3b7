"""Requests for the tokens that a pool issues."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from ..errors import ExecError, Forbidden
from ..protocol.records_json import issued_token_to_json, to_json
from ..protocol.request_parsing import rotation_from_json, token_request_from_json
from ..protocol.strict_json import loads_strict
from .answers import answer_json, read_body, read_flag, require_scope
from .callers import PoolCaller
from .issued_tokens import IssuedTokens
from .pool_server import Server
from .router import NothingSent
from .server_requests import ServerRequests
from .server_tokens import ServerTokens
from .sessions import SessionRequests

_SCOPE = "tokens:create"


class TokenRequests:
    """Handlers of ``tokens``.

    Parameters
    ----------
    issued : IssuedTokens
        The tokens that the pool has issued.
    requests : ServerRequests
        Asks the servers.
    tokens : ServerTokens
        What stands for them on the servers.
    sessions : SessionRequests
        Knows the servers that answer.
    log : logging.Logger
        The pool's log.
    """

    def __init__(
        self,
        issued: IssuedTokens,
        requests: ServerRequests,
        tokens: ServerTokens,
        sessions: SessionRequests,
        log: logging.Logger,
    ) -> None:
        self._issued = issued
        self._requests = requests
        self._tokens = tokens
        self._sessions = sessions
        self._log = log

    async def policies(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``GET /policies``: a Hub token's own policy, which its tokens have; all of them for an administrator."""
        if caller.issued is not None:
            raise Forbidden("policies are for who creates tokens, and a token that the pool has issued creates none")
        policies = (await self._requests.call(self._sessions.any_server(), "GET", "policies"))["policies"]
        return answer_json(
            {"policies": [each for each in policies if caller.is_admin or each["name"] == caller.policy]}
        )

    async def list(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``GET /tokens``"""
        _require_reader(caller)
        tokens = await self._issued.list(caller, ended=read_flag(request, "ended"))
        return answer_json({"tokens": [to_json(token) for token in tokens]})

    async def show(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``GET /tokens/{token_id}``"""
        _require_reader(caller)
        return answer_json(to_json(await self._issued.get(caller, request.match_info["token_id"])))

    async def create(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``POST /tokens``"""
        require_scope(caller, _SCOPE)
        asked = token_request_from_json(loads_strict(await read_body(request)))
        return answer_json(issued_token_to_json(await self._issued.create(caller, asked)), 201)

    async def rotate(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``POST /tokens/{token_id}/rotate``"""
        require_scope(caller, _SCOPE)
        body = await read_body(request)
        overlap_seconds, expires_in_seconds = rotation_from_json(loads_strict(body) if body else {})
        token_id = request.match_info["token_id"]
        issued = await self._issued.rotate(caller, token_id, overlap_seconds, expires_in_seconds)
        return answer_json(issued_token_to_json(issued))

    async def revoke(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``DELETE /tokens/{token_id}``"""
        require_scope(caller, _SCOPE)
        token = await self._issued.revoke(caller, request.match_info["token_id"])
        await self.end_work_of(token.principal)
        return web.Response(status=204)

    async def end_work_of(self, principal: str) -> None:
        """Revoke the tokens of a principal, and those below it, on all servers that answer: what they run ends.

        The pool keeps those that it could not revoke, so that the credential watch comes here again.
        """
        await asyncio.gather(*(self._end_work_on(server, principal) for server in self._sessions.answering()))

    async def _end_work_on(self, server: Server, principal: str) -> None:
        try:
            await self._tokens.revoke(server, principal)
        except (NothingSent, ExecError) as error:
            self._log.warning("pool: tokens of %s on %s could not be revoked now: %s", principal, server.name, error)


def _require_reader(caller: PoolCaller) -> None:
    if not caller.is_admin:
        require_scope(caller, _SCOPE)
