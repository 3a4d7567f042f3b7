"""A client for each event loop from which a tool is used, since an asynchronous client belongs to one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from ..client.aio.client import AsyncExecClient, AsyncExecSession
from ..client.fork_safety import ProcessLock
from ..client.server_connection import JupyterConnectionInfo


class LoopClients:
    """Keeps a client for each event loop until `close`, or until the loop ends. May be used from several threads.

    Parameters
    ----------
    connection_info : JupyterConnectionInfo
        Where the server is.
    """

    def __init__(self, connection_info: JupyterConnectionInfo) -> None:
        self._connection_info = connection_info
        self._lock = ProcessLock()
        self._clients: dict[asyncio.AbstractEventLoop, _LoopClient] = {}

    @asynccontextmanager
    async def session(self, session_id: str) -> AsyncIterator[AsyncExecSession]:
        """Give a session as the running event loop can use it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for ended in [other for other in self._clients if other.is_closed()]:
                del self._clients[ended]
            if loop not in self._clients:
                self._clients[loop] = _LoopClient(self._connection_info)
            client = self._clients[loop]
        async with client.used():
            yield await client.session(session_id)

    def close(self) -> None:
        """Close all clients, each on its loop and once its runs have ended; there are new ones if it is used again."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for loop, client in clients.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its client with it
                loop.call_soon_threadsafe(client.leave)


class _LoopClient:
    """One loop's client. All but making it is done on this loop."""

    def __init__(self, connection_info: JupyterConnectionInfo) -> None:
        self._client = AsyncExecClient(connection_info)
        self._life: AsyncGenerator[None, None] | None = None
        self._session: AsyncExecSession | None = None
        self._users = 0
        self._left = False
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        self._users += 1
        try:
            if self._life is None:
                self._life = _open_until_its_loop_ends(self._client)
                await anext(self._life)
            yield
        finally:
            self._users -= 1
            self._close_if_left()

    async def session(self, session_id: str) -> AsyncExecSession:
        session = self._session
        if session is None or session.id != session_id:
            session = self._session = await self._client.get_session(session_id)
        return session

    def leave(self) -> None:
        """Close it as soon as nobody uses it."""
        self._left = True
        self._close_if_left()

    def _close_if_left(self) -> None:
        if self._left and not self._users and self._life is not None and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._life.aclose())


async def _open_until_its_loop_ends(client: AsyncExecClient) -> AsyncGenerator[None, None]:
    """Close the client at the end. A loop that ends, ends the asynchronous generators that were begun on it."""
    try:
        yield
    finally:
        await client.close()
