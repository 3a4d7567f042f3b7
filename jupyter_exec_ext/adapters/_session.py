"""The session in which a tool runs its code, for frameworks that call it from threads and from any event loop.

What all runs share is the session on the server; each event loop has a client of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.api.idle_timeout import open_patient_session
from ..client.fork_safety import ProcessLock
from ..client.sync.client import ExecClient, ExecSession, StandardExecSession
from ..errors import Conflict, ConnectionFailed, ConnectionLost, ExecError, SessionEnded, SessionNotFound
from ..models import Execution
from ._loop_clients import LoopClients
from ._shared import REFUSALS, TIMEOUT_SECONDS, NotRun, Server, Session, closed, place_of

if TYPE_CHECKING:
    from typing_extensions import Self


class ToolSession:
    """A session on a server, for one conversation or agent. May be used from several threads and event loops.

    It is opened when first used, replaced when the server has ended it, and can be used again after `close`; that is a
    new session then. Servers without ``exec/v1`` are used through the standard kernels API.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable, optional
        Where the server is; a URL may hold the token (``?token=``).
    token : str, optional
        The server's token.
    kernel_name : str, optional
        The kernelspec to start; without it, the server's default.
    timeout_seconds : float, optional
        Run time of one piece of code, after which it is stopped; None for the server's default.
    session_id : str, optional
        A session of the server, to be used instead of a new one. It is neither replaced nor ended.
    session : ExecSession, AsyncExecSession or StandardExecSession, optional
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
        session_id: str | None = None,
        session: Session | None = None,
        name: str = "",
    ) -> None:
        self._place = place_of(StandardExecSession, server, token, kernel_name, session_id, session)
        self._kernel_name = kernel_name
        self._timeout_seconds = timeout_seconds
        self._name = name
        self._opening = ProcessLock()
        self._turns = ProcessLock()
        self._client: ExecClient | None = None
        self._session: ExecSession | StandardExecSession | None = None
        self._loop_clients = LoopClients(self._place.connection_info)
        self._times_closed = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

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
        return self._open(self._times_closed)

    def _open(self, times_closed: int) -> ExecSession | StandardExecSession:
        """Return the session, unless it was closed since somebody asked for it."""
        with self._opening:
            if self._times_closed != times_closed:
                raise closed()
            if self._session is None:
                self._session = self._place.standard_session or self._started()
            return self._session

    def _started(self) -> ExecSession | StandardExecSession:
        if self._client is None:
            self._client = ExecClient(self._place.connection_info)
        if self._place.session_id is not None:
            return self._client.get_session(self._place.session_id)
        return open_patient_session(self._client, self._kernel_name, self._name)

    def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code and return the finished execution. Ctrl-C stops the code.

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
        times_closed = self._times_closed
        session = self._open(times_closed)
        try:
            return self._run_on(session, code, language)
        except (SessionEnded, SessionNotFound) as error:
            return self._lost(session, error, times_closed)
        except REFUSALS as error:
            return NotRun.as_refused(error)

    async def run_async(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code and return the finished execution, as `run` does. Cancelling the task stops the code."""
        times_closed = self._times_closed
        session = self._session
        if session is None:
            session = await asyncio.to_thread(self._open, times_closed)
        try:
            if isinstance(session, StandardExecSession):
                return await self._run_in_thread(session, code, language)
            async with self._loop_clients.session(session.id) as own:
                return await own.run(code, timeout_seconds=self._timeout_seconds, language=language)
        except (SessionEnded, SessionNotFound) as error:
            return await asyncio.to_thread(self._lost, session, error, times_closed)
        except REFUSALS as error:
            return NotRun.as_refused(error)

    def _lost(self, session: ExecSession | StandardExecSession, error: ExecError, times_closed: int) -> NotRun:
        """Forget a session that has ended, and return what the model is told."""
        with self._opening:
            if self._place.exists or self._times_closed != times_closed:
                raise SessionEnded(error.message) from error
            mine = self._session is session
            if mine:
                self._session = None
        if mine and isinstance(session, StandardExecSession):
            with contextlib.suppress(ExecError):  # it is over; what is left is our end of its WebSocket
                session.close()
        return NotRun.as_lost(error.message)

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
        """End the session, unless it was there before, and close the connections; again, it does nothing."""
        with self._opening:
            self._times_closed += 1
            client, self._client = self._client, None
            session, self._session = self._session, None
        try:
            if session is not None and not self._place.exists:
                # What is gone with its server needs no end.
                with contextlib.suppress(ConnectionFailed, ConnectionLost, SessionNotFound, SessionEnded):
                    session.close()
        finally:
            self._loop_clients.close()
            if client is not None:
                client.close()


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
