"""The session in which an agent's code runs, for frameworks that stay on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.aio.client import AsyncExecClient, AsyncExecSession, AsyncStandardExecSession
from ..client.api.idle_timeout import IDLE_TIMEOUT_SECONDS, open_patient_session_async
from ..errors import ConnectionFailed, ConnectionLost, PolicyDenied, SessionEnded, SessionNotFound
from ..models import Execution
from ._shared import REFUSALS, TIMEOUT_SECONDS, NotRun, Server, Session, closed, place_of

if TYPE_CHECKING:
    from typing_extensions import Self

OpenSession = AsyncExecSession | AsyncStandardExecSession


class CodeSession:
    """One session for an agent: opened when first used, replaced when the server has ended it, closed at the end.

    Runs are made one after the other, in the order in which they were asked for. It can be used again after `close`,
    also on another event loop; that is a new session then. As a context manager it is closed at the end.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable, optional
        Where the server is; a URL may hold the token (``?token=``).
    token : str, optional
        The server's token.
    kernel_name : str, optional
        A kernelspec; without it, the server's default.
    timeout_seconds : float, optional
        Run time of one piece of code, after which it is stopped; None for the server's default.
    idle_timeout_seconds : float
        After how much idle time the server ends the session, where it has ``exec/v1``. Where the token's policy allows
        less, it is as long as the policy allows.
    session_id : str, optional
        A session of the server, to be used instead of a new one. It is neither replaced nor ended.
    session : AsyncExecSession, ExecSession or AsyncStandardExecSession, optional
        The same, as an object, which knows its server.
    name : str
        What a new session is called.

    Raises
    ------
    ValueError
        If neither a server nor a session is given, or what does not go together.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        kernel_name: str | None = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        idle_timeout_seconds: float = IDLE_TIMEOUT_SECONDS,
        session_id: str | None = None,
        session: Session | None = None,
        name: str = "agent",
    ) -> None:
        self._place = place_of(AsyncStandardExecSession, server, token, kernel_name, session_id, session)
        self.connection_info = self._place.connection_info
        self.kernel_name = kernel_name
        self.timeout_seconds = timeout_seconds
        self.idle_timeout_seconds = idle_timeout_seconds
        self._name = name
        self._opened: tuple[AsyncExecClient, OpenSession] | None = None
        self._turn = asyncio.Lock()  # there is another one after each `close`

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the session, if it is not open."""
        async with self._in_turn() as session:
            await self._prepare(session)

    async def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code and return the finished execution; whoever leaves early stops the code on the server.

        Parameters
        ----------
        language : str, optional
            The code's language; None for the kernel's own.

        Returns
        -------
        Execution or NotRun
            The latter where the server refused this code or has ended the session. The next run then gets a new one.

        Raises
        ------
        SessionEnded
            If the session was closed meanwhile, or the one that was given has ended.
        ExecError
            If the server cannot be reached or does not let the agent in.
        """
        async with self._in_turn() as session:
            try:
                await self._prepare(session)
                execution = await session.run(code, timeout_seconds=self.timeout_seconds, language=language)
                self._has_run(session, execution)
                return execution
            except (SessionEnded, SessionNotFound) as error:
                if self._place.exists:
                    raise SessionEnded(error.message) from error
                await self._leave(session)
                return NotRun.as_lost(error.message)
            except REFUSALS as error:
                return NotRun.as_refused(error)

    async def _prepare(self, session: OpenSession) -> None:
        """Do what has to be done before code runs; nothing here."""

    def _has_run(self, session: OpenSession, execution: Execution) -> None:
        """Take note of a run; nothing here."""

    async def restart(self) -> None:
        """Start over with a fresh kernel; code that runs ends as cancelled."""
        if self._place.session_id is not None and self._opened is None:
            await self.open()
        session = self._place.standard_session or (self._opened and self._opened[1])
        if session is None:
            return  # the next run gets a fresh one anyway
        try:
            await session.restart()
        except (SessionEnded, SessionNotFound) as error:
            if self._place.exists:
                raise SessionEnded(error.message) from error
            await self._leave(session)

    async def close(self) -> None:
        """Shut the session down and what runs there, unless it was given; what waits ends. Again, it does nothing.

        A server that is gone is no error: so is the session, or it will be when it has been idle for long.
        """
        turn, self._turn = self._turn, asyncio.Lock()
        opened, self._opened = self._opened, None
        if opened is not None and not (self._place.exists and turn.locked()):
            await self._close(*opened)

    async def _leave(self, session: OpenSession) -> None:
        """Forget a session that has ended, unless another one is in its place already."""
        if self._opened is not None and self._opened[1] is session:
            client, self._opened = self._opened[0], None
            await client.close()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[OpenSession]:
        """Wait for one's turn, and give the session; whoever waits when it is closed must not open another."""
        turn = self._turn
        async with turn:
            if self._place.standard_session is not None:
                yield self._place.standard_session
                return
            opened = self._opened
            if opened is None and turn is self._turn:
                opened = await self._open(AsyncExecClient(self.connection_info))
                if turn is not self._turn:
                    await self._close(*opened)
            if opened is None or turn is not self._turn:
                raise closed()
            self._opened = opened
            try:
                yield opened[1]
            finally:
                if self._place.exists and turn is not self._turn:  # its code was not to end with `close`
                    await self._close(*opened)

    async def _open(self, client: AsyncExecClient) -> tuple[AsyncExecClient, OpenSession]:
        try:
            if self._place.session_id is not None:
                return client, await client.get_session(self._place.session_id)
            return client, await open_patient_session_async(
                client, self.kernel_name, self._name, self.idle_timeout_seconds
            )
        except BaseException:
            await client.close()
            raise

    async def _close(self, client: AsyncExecClient, session: OpenSession) -> None:
        try:
            if not self._place.exists:
                with contextlib.suppress(ConnectionFailed, ConnectionLost, PolicyDenied, SessionEnded, SessionNotFound):
                    await session.close()
        finally:
            await client.close()
