"""Agent session: opened on first use, replaced after the server has ended it, closed with its owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ..client.aio.client import AGENT_IDLE_TIMEOUT_SECONDS, AsyncExecClient, open_agent_session
from ..client.aio.session import AsyncExecSession
from ..client.aio.standard_session import AsyncStandardExecSession
from ..client.local_servers import find_connection
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo
from ..client.sync.session import ExecSession
from ..client.sync.standard_session import StandardExecSession
from ..errors import ConnectionFailed, ConnectionLost, ExecError, PolicyDenied, SessionEnded, SessionNotFound
from ..executors.stateful_executor import REFUSALS
from ..models import Execution
from ._tool_text import NotRun

if TYPE_CHECKING:
    from typing_extensions import Self

Server = str | JupyterConnectionInfo | JupyterConnectable
Session = ExecSession | AsyncExecSession | StandardExecSession | AsyncStandardExecSession

#: Default run time of one piece of code.
TIMEOUT_SECONDS = 60.0


class SessionOptions(TypedDict, total=False):
    """Options that adapters pass on to `CodeSession`, where they are explained."""

    kernel_name: str | None
    timeout_seconds: float | None
    session_id: str | None
    session: Session | None


class CodeSession:
    """One session for an agent: opened when first used, replaced when the server has ended it, closed at the end.

    Runs are made one after the other, in the order of the calls. After `close` the next run opens a new session, also
    on another event loop. As a context manager it is closed at the end.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable, optional
        The Jupyter server; a URL may hold the token (``?token=``).
    token : str, optional
        The server's token.
    kernel_name : str, optional
        A kernelspec; without it, the server's default.
    timeout_seconds : float, optional
        Run time of one piece of code, after which it is stopped; None for the server's default.
    idle_timeout_seconds : float
        Idle time after which the server ends the session, if it has ``exec/v1``. A shorter time in the token's policy
        applies instead.
    session_id : str, optional
        A session of the server, to be used instead of a new one. It is neither replaced nor ended.
    session : ExecSession, AsyncExecSession, StandardExecSession or AsyncStandardExecSession, optional
        An open session, used in the same way. It knows its server.
    name : str
        Name of a new session.

    Raises
    ------
    ValueError
        If neither a server nor a session is given, or if arguments contradict each other.

    Examples
    --------
    >>> async with CodeSession("http://127.0.0.1:8888/", token) as session:  # doctest: +SKIP
    ...     outcome = await session.run("6 * 7")
    ...     print(outcome.to_text())
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        kernel_name: str | None = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        idle_timeout_seconds: float = AGENT_IDLE_TIMEOUT_SECONDS,
        session_id: str | None = None,
        session: Session | None = None,
        name: str = "agent",
    ) -> None:
        self._target = _choose_target(server, token, kernel_name, session_id, session)
        self.connection_info = self._target.connection_info
        self.kernel_name = kernel_name
        self.timeout_seconds = timeout_seconds
        self.idle_timeout_seconds = idle_timeout_seconds
        self._name = name
        self._opened: tuple[AsyncExecClient, OwnSession] | None = None
        # One run at a time. Each `close` replaces the lock: a run whose lock was replaced is of before, and the next
        # run can be on another event loop, where a lock that a run has waited for cannot be used.
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> OpenSession:
        """Return the session, which is opened if it is not open."""
        async with self._in_turn() as session:
            await self._prepare(session)
            return session

    async def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code and return the finished execution. Cancelling the task stops the code on the server.

        Parameters
        ----------
        code : str
            The code.
        language : str, optional
            The code's language; None for the kernel's own.

        Returns
        -------
        Execution or NotRun
            `NotRun` if the server refused this code or has ended the session. The next run then gets a new session.

        Raises
        ------
        SessionEnded
            If the session was closed meanwhile, or a given session has ended.
        ExecError
            If the server cannot be reached or does not let the agent in.
        """
        async with self._in_turn() as session:
            try:
                await self._prepare(session)
                execution = await session.run(code, timeout_seconds=self.timeout_seconds, language=language)
                self._note_run(session, execution)
                return execution
            except (SessionEnded, SessionNotFound) as error:
                await self._forget(session, error)
                return NotRun.from_lost_session(error.message)
            except REFUSALS as error:
                return NotRun(error.message)

    async def _prepare(self, session: OpenSession) -> None:
        """Prepare the session for code; subclasses may override this."""

    def _note_run(self, session: OpenSession, execution: Execution) -> None:
        """Note a finished run; subclasses may override this."""

    async def restart(self) -> None:
        """Start over with a fresh kernel; running code ends as cancelled.

        Raises
        ------
        SessionEnded
            If a given session has ended.
        """
        # A given session can have a kernel to replace before its first run here.
        if self._target.session_id is not None and self._opened is None:
            await self.open()
        session = self._target.standard_session or (self._opened and self._opened[1])
        if session is None:
            return  # the next run opens a fresh session
        try:
            await session.restart()
        except (SessionEnded, SessionNotFound) as error:
            await self._forget(session, error)

    async def close(self) -> None:
        """Shut the session down, unless it was given, and end waiting runs; calling it again does nothing.

        A server that is gone is no error: its sessions are gone too, or end after their idle time.
        """
        lock, self._lock = self._lock, asyncio.Lock()
        opened, self._opened = self._opened, None
        # A run in a given session may finish. `_in_turn` then closes its connections.
        if opened is not None and not (self._target.is_given and lock.locked()):
            await self._close(*opened)

    async def disconnect(self) -> None:
        """Close the connections and leave the session to the server."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].close()

    def after_fork(self) -> None:
        """Replace the lock in a forked child, where a run of the parent would hold it for ever."""
        self._lock = asyncio.Lock()

    async def _forget(self, session: OpenSession, error: ExecError) -> None:
        """Forget a session that has ended, unless it was given or is replaced already."""
        if self._target.is_given:
            raise SessionEnded(error.message) from error
        if self._opened is not None and self._opened[1] is session:
            await self.disconnect()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[OpenSession]:
        """Wait for the caller's turn and yield the session."""
        lock = self._lock

        def is_closed() -> bool:
            return lock is not self._lock

        async with lock:
            if self._target.standard_session is not None:
                yield self._target.standard_session
                return
            opened = self._opened
            if opened is None and not is_closed():
                opened = await self._open(AsyncExecClient(self.connection_info))
                # `close` was called while the session opened, and could not end it yet.
                if is_closed():
                    await self._close(*opened)
            if opened is None or is_closed():
                raise SessionEnded("the session was closed")
            self._opened = opened
            try:
                yield opened[1]
            finally:
                # `close` lets a run of a given session finish, so its connections are closed here.
                if self._target.is_given and is_closed():
                    await self._close(*opened)

    async def _open(self, client: AsyncExecClient) -> tuple[AsyncExecClient, OwnSession]:
        async with contextlib.AsyncExitStack() as undo:  # also a cancellation must not leave the connections open
            undo.push_async_callback(client.close)
            session: OwnSession
            if self._target.session_id is not None:
                session = await client.get_session(self._target.session_id)
            else:
                session = await open_agent_session(client, self.kernel_name, self._name, self.idle_timeout_seconds)
                session.detach()  # it may end by itself, and is then replaced; `_close` ends one that lives
            undo.pop_all()
        return client, session

    async def _close(self, client: AsyncExecClient, session: OwnSession) -> None:
        try:
            if not self._target.is_given:
                with contextlib.suppress(ConnectionFailed, ConnectionLost, PolicyDenied, SessionEnded, SessionNotFound):
                    await session.close()
        finally:
            await client.close()


class ThreadedSession:
    """Asynchronous face of a `StandardExecSession`, whose blocking calls run in worker threads."""

    def __init__(self, session: StandardExecSession) -> None:
        self._session = session
        self.id = session.id

    async def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code; cancelling the task interrupts it and waits for its end."""
        call = asyncio.to_thread(self._session.run, code, timeout_seconds=timeout_seconds, language=language)
        running = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(lambda done: done.exception())  # asyncio logs exceptions that are never read
            with contextlib.suppress(ExecError):  # the caller's cancellation matters more than a failed interrupt
                await asyncio.to_thread(self._session.interrupt)
            await asyncio.wait([running])  # or a later interrupt could hit this code instead of the next
            raise

    async def install(self, *packages: str) -> Execution:
        """Install packages into the kernel's environment."""
        return await asyncio.to_thread(self._session.install, *packages)

    async def restart(self) -> None:
        """Replace the kernel by a fresh one."""
        await asyncio.to_thread(self._session.restart)


OwnSession = AsyncExecSession | AsyncStandardExecSession
OpenSession = OwnSession | ThreadedSession


@dataclass(frozen=True, slots=True)
class _SessionTarget:
    """Server and, if one was given, session in which code runs. A given session is neither replaced nor ended.

    Parameters
    ----------
    connection_info : JupyterConnectionInfo
        The server.
    session_id : str or None
        The given session of a server with ``exec/v1``.
    standard_session : AsyncStandardExecSession, ThreadedSession or None
        The given session of another server. Only this object leads to it.
    """

    connection_info: JupyterConnectionInfo
    session_id: str | None = None
    standard_session: AsyncStandardExecSession | ThreadedSession | None = None

    @property
    def is_given(self) -> bool:
        """True if the session was given."""
        return self.session_id is not None or self.standard_session is not None

    def __repr__(self) -> str:
        given = self.session_id or (self.standard_session and self.standard_session.id)
        return repr(self.connection_info.url) + (f", session_id={given!r}" if given else "")


def _choose_target(
    server: Server | None, token: str | None, kernel_name: str | None, session_id: str | None, session: Session | None
) -> _SessionTarget:
    """Return the target that a session's arguments name; raise `ValueError` if they contradict each other."""
    if (server is None) == (session is None):
        raise ValueError("give a server, or a session that is open already")
    if server is not None:
        if session_id is not None and kernel_name is not None:
            raise ValueError("a session that exists has its kernel already")
        return _SessionTarget(find_connection(server, token), session_id)
    if token is not None or kernel_name is not None or session_id is not None:
        raise ValueError("an open session has its token, kernel and id already")
    assert session is not None
    if isinstance(session, ExecSession | AsyncExecSession):
        return _SessionTarget(session.connection_info, session.id)
    standard = ThreadedSession(session) if isinstance(session, StandardExecSession) else session
    return _SessionTarget(session.connection_info, None, standard)
