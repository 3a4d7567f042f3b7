"""The session in which a tool runs its code: opened when it is first needed, and then kept.

A framework may call the same tool from threads and from one event loop after another. So an asynchronous run has a
client of its own, on its own loop; what all runs share is the session on the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.aio import AsyncExecClient
from ..client.connection import JupyterConnectable, JupyterConnectionInfo
from ..client.sync import ExecClient, ExecSession, StandardExecSession
from ..errors import ApiNotFound, Conflict, ConnectionFailed, ConnectionLost, ExecError, SessionEnded, SessionNotFound
from ..models import Execution

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE_TIMEOUT_SECONDS = 24 * 3600.0
_FRESH = "the next run gets a fresh session: variables, imports and definitions are gone; run what is needed again"


class ToolSession:
    """A session on a server, for one conversation or agent. May be used from several threads and event loops.

    Servers without ``exec/v1`` are used through the standard kernels API.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        A URL, where a server is, or something that knows.
    token : str, optional
        The server's token, if `server` does not have it.
    kernel_name : str, optional
        The kernelspec to start; without it, the server's default.
    timeout_seconds : float, optional
        Run time of one call, after which the code is stopped; None for the server's default.
    session_id : str, optional
        A session that exists, to be used instead of a new one. It is not ended by `close`.
    name : str
        What a new session is called.
    """

    def __init__(
        self,
        server: str | JupyterConnectionInfo | JupyterConnectable,
        token: str | None = None,
        *,
        kernel_name: str | None = None,
        timeout_seconds: float | None = None,
        session_id: str | None = None,
        name: str = "",
    ) -> None:
        self._client = ExecClient(server, token)
        self._kernel_name = kernel_name
        self._timeout_seconds = timeout_seconds
        self._given_id = session_id
        self._name = name
        self._opening = threading.Lock()
        self._turns = threading.Lock()
        self._session: ExecSession | StandardExecSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.connection_info!r})"

    def __deepcopy__(self, memo: object) -> Self:
        return self  # frameworks copy tools; the copy works in the same session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> ExecSession | StandardExecSession:
        """Return the session, which is started if there is none."""
        with self._opening:
            if self._closed:
                raise SessionEnded("the session was closed; make a new one")
            if self._session is None:
                self._session = self._started()
            return self._session

    def _started(self) -> ExecSession | StandardExecSession:
        if self._given_id is not None:
            return self._client.get_session(self._given_id)
        try:
            return self._client.session(self._kernel_name, name=self._name, idle_timeout_seconds=_IDLE_TIMEOUT_SECONDS)
        except ApiNotFound:
            return self._client.standard_session(self._kernel_name)

    def run(self, code: str, language: str | None = None) -> Execution:
        """Run code and return the finished execution. Ctrl-C stops the code.

        Raises
        ------
        SessionEnded
            If the server has ended the session. The next run gets a fresh one, as the message says to a model.
        """
        session = self.open()
        try:
            return self._run_on(session, code, language)
        except (SessionEnded, SessionNotFound) as error:
            raise self._ended(session, error) from error

    async def run_async(self, code: str, language: str | None = None) -> Execution:
        """Run code and return the finished execution. Cancelling the task stops the code.

        Raises
        ------
        SessionEnded
            As for `run`.
        """
        session = await asyncio.to_thread(self.open)
        try:
            if isinstance(session, StandardExecSession):
                return await self._run_in_thread(session, code, language)
            async with AsyncExecClient(self._client.connection_info) as client:
                own = await client.get_session(session.id)
                return await own.run(code, timeout_seconds=self._timeout_seconds, language=language)
        except (SessionEnded, SessionNotFound) as error:
            raise await asyncio.to_thread(self._ended, session, error) from error

    def _ended(self, session: ExecSession | StandardExecSession, error: SessionEnded | SessionNotFound) -> SessionEnded:
        with self._opening:
            mine = self._session is session and self._given_id is None
            if mine:
                self._session = None
        if mine and isinstance(session, StandardExecSession):
            with contextlib.suppress(ExecError):  # it is over; what is left is our end of its WebSocket
                session.close()
        return SessionEnded(error.message if self._closed or self._given_id else f"{error.message}. Not run; {_FRESH}")

    def _run_on(
        self, session: ExecSession | StandardExecSession, code: str, language: str | None, turn: _Turn | None = None
    ) -> Execution:
        if not isinstance(session, StandardExecSession):
            return session.run(code, timeout_seconds=self._timeout_seconds, language=language)
        with self._turns:  # so that it is known whose code an interrupt would hit
            if turn is not None and not turn.begin():
                raise Conflict("nobody waits for it any more")
            try:
                return session.run(code, timeout_seconds=self._timeout_seconds, language=language)
            finally:
                if turn is not None:
                    turn.end()

    async def _run_in_thread(self, session: StandardExecSession, code: str, language: str | None) -> Execution:
        """Run code through the standard API, whose kernel is bound to the synchronous client."""
        turn = _Turn()
        running = asyncio.ensure_future(asyncio.to_thread(self._run_on, session, code, language, turn))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(lambda done: done.exception())  # which nobody asks for any more
            if turn.leave():
                with contextlib.suppress(ExecError):  # it is no more important than the cancellation
                    await asyncio.to_thread(session.interrupt)
            raise

    def close(self) -> None:
        """End the session, unless it was there before, and close the connection; calling it again does nothing."""
        with self._opening:
            if self._closed:
                return
            self._closed = True
            session, self._session = self._session, None
        try:
            if session is not None and self._given_id is None:
                # What is gone with its server needs no end.
                with contextlib.suppress(ConnectionFailed, ConnectionLost, SessionNotFound, SessionEnded):
                    session.close()
        finally:
            self._client.close()


class _Turn:
    """A run that waits for its turn in a thread, and may be left meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = self._running = False

    def begin(self) -> bool:
        """Note that the code is sent now; False if nobody waits for it any more."""
        with self._lock:
            self._running = not self._left
            return self._running

    def end(self) -> None:
        """Note that it has ended."""
        with self._lock:
            self._running = False

    def leave(self) -> bool:
        """Note that nobody waits for it any more; whether it is running."""
        with self._lock:
            self._left = True
            return self._running
