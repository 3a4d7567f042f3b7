"""Registry of clients of kernels: who is connected to which, and those that may come back."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import TooManySessions
from ..protocol.records_json import utc_timestamp
from .remote_client import Connection, RemoteClient

#: How long a client whose connection broke finds what it has missed.
RECONNECT_GRACE_SECONDS = 60.0
_MAX_CLIENTS = 2000


class ClientKey(NamedTuple):
    """A client, which names itself in the query of its WebSocket's URL, so that it finds itself again."""

    principal: str
    session_id: str
    name: str


class ClientRegistry:
    """The clients of all sessions.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    allow_token_in_url : bool
        Whether a token may also be in the query of a URL, as some clients send it.

    Attributes
    ----------
    started_at : str
        Start of the server, in UTC ISO 8601.
    """

    def __init__(self, engine: ExecEngine, *, allow_token_in_url: bool = False) -> None:
        self._engine = engine
        self.allow_token_in_url = allow_token_in_url
        self.started_at = utc_timestamp(time.time())
        self._clients: dict[ClientKey, RemoteClient] = {}
        self._connections: dict[ClientKey, Connection] = {}
        self._timers: dict[ClientKey, asyncio.TimerHandle] = {}

    def count(self, session_id: str) -> int:
        """Return how many clients are connected to a session's kernel."""
        return sum(key.session_id == session_id for key in self._connections)

    async def connect(self, key: ClientKey, caller: Caller, connection: Connection) -> RemoteClient:
        """Return the client of a connection.

        Raises
        ------
        TooManySessions
            If the server has too many clients.
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= _MAX_CLIENTS:
                raise TooManySessions(f"{_MAX_CLIENTS} clients are connected to this server's kernels already")
            client = self._clients[key] = RemoteClient(self._engine, caller, key.session_id)
        self._stop_timer(key)
        self._connections[key] = connection
        try:
            await client.connect(connection, caller)
        except BaseException:
            self.forget(key)
            raise
        return client

    def disconnect(self, key: ClientKey, connection: Connection) -> None:
        """Note that a connection has ended; its client may come back for a while."""
        client = self._clients.get(key)
        if client is None or self._connections.get(key) is not connection:
            return
        del self._connections[key]
        client.disconnect(connection)
        self._stop_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(RECONNECT_GRACE_SECONDS, self.forget, key)

    def forget(self, key: ClientKey) -> None:
        """Forget a client."""
        self._stop_timer(key)
        self._connections.pop(key, None)
        client = self._clients.pop(key, None)
        if client is not None:
            client.end()

    def _stop_timer(self, key: ClientKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
