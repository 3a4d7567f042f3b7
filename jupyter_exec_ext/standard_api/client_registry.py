"""Registry of kernels' clients: limits their number, and keeps disconnected ones for a grace period."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import TooManySessions
from ..protocol.records_json import utc_timestamp
from .connection_interface import Connection
from .creation_locks import CreationLocks
from .reconnectable_client import ReconnectableClient

#: Grace period in which a disconnected client can reconnect and receive the messages that it missed.
RECONNECT_GRACE_SECONDS = 60.0
_MAX_CLIENTS, _MAX_CLIENTS_OF_A_TOKEN = 2000, 500
# Places that only the owner gets, so that tokens cannot lock the owner out of its own server.
_OWNERS_RESERVE = 50


class ClientKey(NamedTuple):
    """Identity of a client: its token, its session, and the name in its WebSocket's URL.

    A client that reconnects with the same name receives the messages that it missed.

    Parameters
    ----------
    principal : str
        The token's principal.
    session_id : str
        Id of the session.
    name : str
        Name that the client chose, from ``session_id`` in the query of the URL.
    """

    principal: str
    session_id: str
    name: str


class ClientRegistry:
    """Registry of the clients of all sessions.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    allow_token_in_url : bool
        True if a token may also be in the query of a URL.

    Attributes
    ----------
    started_at : str
        Start time of the server, in UTC ISO 8601.
    creation_locks : CreationLocks
        Locks for the creation of sessions at paths.
    """

    def __init__(self, engine: ExecEngine, *, allow_token_in_url: bool = False) -> None:
        self._engine = engine
        self.allow_token_in_url = allow_token_in_url
        self.started_at = utc_timestamp(time.time())
        self.creation_locks = CreationLocks()
        self._clients: dict[ClientKey, ReconnectableClient] = {}
        self._connections: dict[ClientKey, Connection] = {}
        self._timers: dict[ClientKey, asyncio.TimerHandle] = {}
        self._connected = Counter[str]()  # by session

    def count_connections(self, session_id: str) -> int:
        """Count the clients that are connected to a session's kernel.

        Parameters
        ----------
        session_id : str
            Id of the session.

        Returns
        -------
        int
            Number of connected clients.
        """
        return self._connected[session_id]

    async def connect(self, key: ClientKey, caller: Caller, connection: Connection) -> ReconnectableClient:
        """Register a connection, and return its client.

        Parameters
        ----------
        key : ClientKey
            Identity of the client.
        caller : Caller
            Bearer of the token.
        connection : Connection
            The client's WebSocket. It replaces an earlier one of the same client.

        Returns
        -------
        ReconnectableClient
            The disconnected client with this key if there is one, and otherwise a new client.

        Raises
        ------
        TooManySessions
            If the server, or the token, has too many clients.
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        client, earlier = self._clients.get(key), None
        if client is not None and client.is_behind:
            self.remove(key)
            earlier, client = client, None
        if client is None:
            self._check_limits(caller)
            client = self._clients[key] = ReconnectableClient(self._engine, caller, key.session_id)
            if earlier is not None:
                client.adopt_executions(earlier)
        self._stop_timer(key)
        if key not in self._connections:
            self._connected[key.session_id] += 1
        self._connections[key] = connection
        try:
            await client.connect(connection, caller)
        except BaseException:
            self.remove(key)
            raise
        return client

    def _check_limits(self, caller: Caller) -> None:
        # Tokens that a token created count as that token.
        of_token = sum(key.principal.partition("/")[0] == caller.root for key in self._clients)
        most = _MAX_CLIENTS if caller.is_owner else _MAX_CLIENTS - _OWNERS_RESERVE
        if len(self._clients) < most and of_token < _MAX_CLIENTS_OF_A_TOKEN:
            return
        raise TooManySessions(
            f"this server has {len(self._clients)} clients of kernels (limit {most}), {of_token} of them with "
            f"this token (limit {_MAX_CLIENTS_OF_A_TOKEN}); close some. A disconnected client still counts for "
            f"{RECONNECT_GRACE_SECONDS:g} s"
        )

    def disconnect(self, key: ClientKey, connection: Connection, *, may_return: bool) -> None:
        """Unregister a connection that has ended.

        Parameters
        ----------
        key : ClientKey
            Identity of the client.
        connection : Connection
            The connection. A connection that was replaced by a newer one changes nothing.
        may_return : bool
            True to keep the client and its messages for `RECONNECT_GRACE_SECONDS`; False to remove it at once.
        """
        client = self._clients.get(key)
        if client is None or self._connections.get(key) is not connection:
            return
        if not may_return:
            self.remove(key)
            return
        self._note_disconnected(key)
        client.disconnect(connection)
        self._timers[key] = asyncio.get_running_loop().call_later(RECONNECT_GRACE_SECONDS, self.remove, key)

    def remove(self, key: ClientKey) -> None:
        """Remove a client. The executions that it requested go on.

        Parameters
        ----------
        key : ClientKey
            Identity of the client.
        """
        self._stop_timer(key)
        self._note_disconnected(key)
        client = self._clients.pop(key, None)
        if client is not None:
            client.close()

    def _note_disconnected(self, key: ClientKey) -> None:
        if self._connections.pop(key, None) is not None:
            self._connected[key.session_id] -= 1
            self._connected += Counter()  # drops counts of 0

    def _stop_timer(self, key: ClientKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
