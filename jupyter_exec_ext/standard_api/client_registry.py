"""Client registry: which clients are connected to which kernels, and which may come back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import TooManySessions
from ..protocol.records_json import utc_timestamp
from .remote_client import Connection, RemoteClient

#: How long a client whose connection broke finds what it has missed.
RECONNECT_GRACE_SECONDS = 60.0
_MAX_CLIENTS, _MAX_CLIENTS_OF_A_TOKEN = 2000, 500


class ClientKey(NamedTuple):
    """Identity of a client: its token, its session, and the name that it gives in its WebSocket's URL.

    With the same name, the client receives what it has missed when it connects again.

    Parameters
    ----------
    principal : str
        The token's principal.
    session_id : str
        Id of the session.
    name : str
        The client's own name for itself, which the query of the URL calls ``session_id``.
    """

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
        True if a token may also be in the query of a URL, as some clients send it.

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
        self._connected = Counter[str]()  # by session

    def count(self, session_id: str) -> int:
        """Return how many clients are connected to a session's kernel."""
        return self._connected[session_id]

    async def connect(self, key: ClientKey, caller: Caller, connection: Connection) -> RemoteClient:
        """Return the client of a connection.

        Raises
        ------
        TooManySessions
            If the server, or the token, has too many clients.
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        client, earlier = self._clients.get(key), None
        if client is not None and client.is_behind:
            self.forget(key)
            earlier, client = client, None
        if client is None:
            self._require_place(key.principal)
            client = self._clients[key] = RemoteClient(self._engine, caller, key.session_id)
            if earlier is not None:
                client.adopt(earlier)
        self._stop_timer(key)
        if key not in self._connections:
            self._connected[key.session_id] += 1
        self._connections[key] = connection
        try:
            await client.connect(connection, caller)
        except BaseException:
            self.forget(key)
            raise
        return client

    def _require_place(self, principal: str) -> None:
        root = principal.partition("/")[0]  # a token's own tokens share its places
        of_token = sum(key.principal.partition("/")[0] == root for key in self._clients)
        if len(self._clients) < _MAX_CLIENTS and of_token < _MAX_CLIENTS_OF_A_TOKEN:
            return
        raise TooManySessions(
            f"this server has {len(self._clients)} clients of kernels, {of_token} of them with this token; the most "
            f"are {_MAX_CLIENTS} and {_MAX_CLIENTS_OF_A_TOKEN}. A client whose connection broke counts for "
            f"{RECONNECT_GRACE_SECONDS:g} s"
        )

    def disconnect(self, key: ClientKey, connection: Connection, *, may_return: bool) -> None:
        """Note that a connection has ended.

        Parameters
        ----------
        may_return : bool
            True if the client can come back. It then finds, for a while, what it has missed.
        """
        client = self._clients.get(key)
        if client is None or self._connections.get(key) is not connection:
            return
        if not may_return:
            self.forget(key)
            return
        self._note_disconnected(key)
        client.disconnect(connection)
        self._timers[key] = asyncio.get_running_loop().call_later(RECONNECT_GRACE_SECONDS, self.forget, key)

    def forget(self, key: ClientKey) -> None:
        """Forget a client."""
        self._stop_timer(key)
        self._note_disconnected(key)
        client = self._clients.pop(key, None)
        if client is not None:
            client.end()

    def _note_disconnected(self, key: ClientKey) -> None:
        if self._connections.pop(key, None) is not None:
            self._connected[key.session_id] -= 1
            self._connected += Counter()  # without those at 0

    def _stop_timer(self, key: ClientKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
