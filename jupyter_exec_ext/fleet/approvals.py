"""Code that waits for a person's approval, on all servers of a pool: for the Hub's administrators."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ..errors import ExecutionNotFound, Forbidden
from ..protocol.strict_json import loads_strict
from .answers import answer_json, read_body
from .callers import PoolCaller
from .pool_server import AWAY
from .router import NothingSent, unreachable
from .server_keeper import Keeper
from .server_lookup import server_in
from .server_requests import ServerRequests
from .sessions import SessionRequests


class Approvals:
    """Handlers of ``approvals``. The pool asks in its own name, since only the owner of a server decides there.

    Parameters
    ----------
    keeper, requests, sessions
        The parts of the pool.
    """

    def __init__(self, keeper: Keeper, requests: ServerRequests, sessions: SessionRequests) -> None:
        self._keeper = keeper
        self._requests = requests
        self._sessions = sessions

    async def list(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``GET /approvals``"""
        require_admin(caller)
        waiting: list[Any] = []
        for server in self._sessions.answering():
            try:
                waiting += (await self._requests.call(server, "GET", "approvals"))["executions"]
            except NothingSent:
                continue
        return answer_json({"executions": waiting})

    async def decide(self, request: web.Request, caller: PoolCaller) -> web.StreamResponse:
        """``POST /approvals/{execution_id}``"""
        require_admin(caller)
        execution_id = request.match_info["execution_id"]
        server = self._keeper.servers.get(server_in(execution_id) or "")
        if server is None:
            raise ExecutionNotFound(f"there is no execution {execution_id!r}")
        if server.state in AWAY:
            raise unreachable(server)
        answer = loads_strict(await read_body(request))
        return answer_json(await self._requests.call(server, "POST", f"approvals/{execution_id}", json=answer))


def require_admin(caller: PoolCaller) -> None:
    """Raise `Forbidden` for everybody but an administrator of the Hub."""
    if not caller.is_admin:
        raise Forbidden("this is for the Hub's administrators")
