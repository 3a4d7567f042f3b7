"""Which session of an ACA pool an executor uses: a new one where there is none, and the end of those that are over."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from ...errors import SessionEnded
from ...executors.function_loading import FunctionsModule
from ...executors.prompts import FRESH_SESSION
from ..protocol.addresses import check_identifier
from .executor_session import PoolSession

if TYPE_CHECKING:
    from ...client.access_tokens import AsyncTokenProvider, TokenProvider
    from ..client.aio.pool_client import AsyncACAClient


class PoolSessions:
    """One session at a time, made when it is needed.

    Parameters
    ----------
    endpoint, credential, client_options
        What an `AsyncACAClient` is made with.
    session_id : str or None
        Of the first session, which is not deleted by `stop`; all others have random identifiers.
    functions, timeout_seconds
        As for `PoolSession`.
    """

    def __init__(
        self,
        endpoint: str,
        credential: TokenProvider | AsyncTokenProvider,
        client_options: dict[str, Any],
        session_id: str | None,
        functions: FunctionsModule,
        timeout_seconds: int,
    ) -> None:
        self.note = ""  # what a model has to be told with the next result
        self._endpoint = endpoint
        self._credential = credential
        self._client_options = client_options
        self._session_id = session_id
        self.identifier = session_id or str(uuid.uuid4())
        self._functions = functions
        self._timeout_seconds = timeout_seconds
        self._client: AsyncACAClient | None = None
        self._session: PoolSession | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def open(self) -> AsyncACAClient:
        """Return the client; raises `InvalidRequest` if it cannot be made of what was given."""
        if self._client is None:
            from ..client.aio.pool_client import AsyncACAClient

            if self._session_id is not None:
                check_identifier(self._session_id)
            self._client = AsyncACAClient(self._endpoint, self._credential, **self._client_options)
        return self._client

    async def current(self) -> PoolSession:
        """Return the session, or a new one once those that are over have been deleted: a pool has few."""
        await self._ended()
        if self._session is None:
            is_new = self.identifier != self._session_id
            self._session = PoolSession(
                self.open(), self.identifier, self._functions, self._timeout_seconds, is_new=is_new
            )
        return self._session

    async def checked(self) -> PoolSession:
        """Return a session that is there, for what runs no code; the next result says it if it is another one."""
        session = await self.current()
        try:
            await session.check()
        except SessionEnded as error:
            self.note = f"Lost: {error.message}. {FRESH_SESSION}"
        finally:
            self.leave(session)
        return await self.current()

    def leave(self, session: PoolSession) -> None:
        """Delete a session if it is over; the next call begins another one."""
        if session.over is None:
            return
        if self._session is session:
            self._session, self.identifier = None, str(uuid.uuid4())
        self._end(session)

    async def restart(self) -> None:
        """Delete the session."""
        session, self._session = self._session, None
        self.note, self.identifier = "", str(uuid.uuid4())
        if session is not None:
            await session.end()

    async def stop(self) -> None:
        """Delete the session, unless it is a named one, and close the connections."""
        session, self._session = self._session, None
        if session is not None and session.identifier != self._session_id:
            self._end(session)
            self.identifier = str(uuid.uuid4())
        await self._ended()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _end(self, session: PoolSession) -> None:
        ending = asyncio.create_task(session.end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _ended(self) -> None:
        if self._endings:
            await asyncio.wait(self._endings)
