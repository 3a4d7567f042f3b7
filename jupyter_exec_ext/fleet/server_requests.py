"""Requests of the pool itself to one of its servers, as its owner or with the token of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from ..client.api.answers import list_in, parsed
from ..client.api.request_exchange import segment
from ..client.api.steps import Reply
from ..errors import Gone, NotFound, ServerUnreachable, UnexpectedAnswer
from ..models import Readiness, ServerLoad
from ..protocol.strict_json import dump_bytes
from ..protocol.view_json import readiness_from_json, server_load_from_json
from .pool_server import Server
from .router import NothingSent

PoolToken = Callable[[], Awaitable[str]]
ANSWER_SECONDS = 2.0
CALL_SECONDS = 10.0
# A server ends a session's kernel before it answers.
_DELETE_SECONDS = 10.0


class ServerRequests:
    """Sends requests to servers; an answer that does not come in time raises `ServerUnreachable`.

    Parameters
    ----------
    http : aiohttp.ClientSession
        Sends them.
    pool_token : callable
        Returns the pool's own token, which makes it the owner on its servers.
    """

    def __init__(self, http: aiohttp.ClientSession, pool_token: PoolToken) -> None:
        self._http = http
        self._pool_token = pool_token

    async def call(self, server: Server, method: str, path: str, *, token: str | None = None, json: Any = None) -> Any:
        """Return the JSON of a server's answer, to the pool as its owner or to the bearer of `token`.

        Parameters
        ----------
        path : str
            Below ``exec/v1/``.

        Raises
        ------
        NothingSent
            If the server does not answer.
        ExecError
            As the server answers.
        """
        try:
            reply = await self._ask(server, method, path, token=token, json=json, seconds=CALL_SECONDS)
        except ServerUnreachable as error:
            raise NothingSent(f"the server {server.name} does not answer") from error
        return parsed(reply)

    async def read_readiness(self, server: Server) -> Readiness:
        """Return whether a server is ready. It needs no token: this works while the server's own Hub is away."""
        reply = await self._ask(server, "GET", "ready", has_token=False)
        return readiness_from_json(parsed(reply._replace(status=200) if reply.status == 503 else reply))

    async def read_load(self, server: Server) -> ServerLoad:
        """Return how loaded a server is."""
        load = server_load_from_json(parsed(await self._ask(server, "GET", "load")))
        if load.server_name != server.name:
            raise UnexpectedAnswer(
                f"it is called {load.server_name!r} in the ids of its sessions; remove ExecEngine.server_name from "
                "its configuration"
            )
        return load

    async def drain(self, server: Server) -> None:
        """Have a server take no new sessions."""
        parsed(await self._ask(server, "POST", "drain"))

    async def delete_sessions(self, server: Server) -> None:
        """End all sessions of a server."""
        sessions = list_in(parsed(await self._ask(server, "GET", "sessions")), "sessions")
        await asyncio.gather(*(self._delete_session(server, str(session["id"])) for session in sessions))

    async def _delete_session(self, server: Server, session_id: str) -> None:
        path = f"sessions/{segment(session_id)}"
        with suppress(NotFound, Gone):  # it has ended meanwhile
            parsed(await self._ask(server, "DELETE", path, seconds=_DELETE_SECONDS))

    async def _ask(
        self,
        server: Server,
        method: str,
        path: str,
        *,
        has_token: bool = True,
        token: str | None = None,
        json: Any = None,
        seconds: float | None = None,
    ) -> Reply:
        headers = {"Authorization": f"token {token or await self._pool_token()}"} if has_token else {}
        options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=seconds or ANSWER_SECONDS)}
        if json is not None:
            options["data"], headers["Content-Type"] = dump_bytes(json), "application/json"
        url = f"{server.address}exec/v1/{path}"
        try:
            # A token must not follow a redirect.
            async with self._http.request(method, url, headers=headers, allow_redirects=False, **options) as answer:
                answered = {name.lower(): value for name, value in answer.headers.items()}
                return Reply(answer.status, answered, await answer.read())
        except asyncio.TimeoutError:
            raise ServerUnreachable("it does not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServerUnreachable(f"it cannot be reached: {error}") from None
