"""Portal to an agent session: any thread and any event loop can use a `CodeSession` on a background event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ..client.aio.standard_session import AsyncStandardExecSession
from ..client.fork_safety import ProcessLock, keep_for_parent, renew_after_fork
from ..models import Execution
from ._code_session import CodeSession, OpenSession, Server, SessionOptions
from ._tool_text import NotRun

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")
# The client bounds its own tidying up by 15 s; this is for a client that does not.
_CANCEL_WAIT_SECONDS = 20.0


class SessionPortal:
    """A `CodeSession` for several threads, event loops and forked processes. As a context manager it is closed.

    Parameters
    ----------
    server, token, name
        As for `CodeSession`.
    **options
        ``kernel_name``, ``timeout_seconds``, ``session_id`` and ``session``, as for `CodeSession`. The session cannot
        be an `AsyncStandardExecSession`, which belongs to its own event loop.

    Raises
    ------
    ValueError
        As for `CodeSession`, and for an `AsyncStandardExecSession`.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        name: str = "",
        **options: Unpack[SessionOptions],
    ) -> None:
        if isinstance(options.get("session"), AsyncStandardExecSession):
            raise ValueError("on a server without exec/v1, the session has to be one of the class StandardExecSession")
        self._session = CodeSession(server, token, name=name, **options)
        renew_after_fork(self)
        # The callback must not refer to the portal itself, which would then live for ever.
        weakref.finalize(self, _disconnect, self._session)

    def after_fork(self) -> None:
        """Have locks of this process."""
        self._session.after_fork()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    def __deepcopy__(self, memo: object) -> Self:
        return self  # frameworks copy tools, and the copy must use the same session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> OpenSession:
        """Return the session, which is opened if it is not open."""
        return _BACKGROUND.call(self._session.open())

    def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code as `CodeSession.run` does. Ctrl-C stops the code."""
        return _BACKGROUND.call(self._session.run(code, language))

    async def run_async(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code as `CodeSession.run` does. Cancelling the task stops the code."""
        outcome, cancel = _BACKGROUND.start(self._session.run(code, language))
        waiting = asyncio.wrap_future(outcome)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            cancel()
            waiting.add_done_callback(lambda done: done.exception())  # asyncio logs exceptions that are never read
            await asyncio.wait([waiting])  # at its end the code is stopped
            raise

    def close(self) -> None:
        """End the session, unless it was given, and close the connections; calling it again does nothing."""
        _BACKGROUND.call(self._session.close())


class _BackgroundLoop:
    """An event loop in a daemon thread, started on first use, and again in a forked child."""

    def __init__(self) -> None:
        self._starting = ProcessLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Have a loop of this process; its thread is not there in a child."""
        keep_for_parent(self._loop)
        self._loop = None

    @property
    def is_running(self) -> bool:
        """True if the loop has been started."""
        return self._loop is not None

    def start(self, work: Coroutine[Any, Any, T]) -> tuple[Future[T], Callable[[], object]]:
        """Start work on the loop. Return its outcome, which comes at its end, and a function that cancels it."""
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # so its waiters cannot cancel it: it must come at the end of the work

        async def carry_out() -> None:
            try:
                outcome.set_result(await work)
            except BaseException as error:  # the caller gets it, a cancellation included
                outcome.set_exception(error)

        task = asyncio.run_coroutine_threadsafe(carry_out(), self._loop or self._start_loop())
        return outcome, task.cancel

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        # The garbage collector can finalise a portal in here, in this thread. `_disconnect` then must not need the
        # lock: so `_loop` is set last, and a loop that is set is used without the lock.
        with self._starting:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="jupyter-exec-sessions", daemon=True).start()
                self._loop = loop
            return self._loop

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work on the loop and return its result; an exception here, such as Ctrl-C, cancels it."""
        outcome, cancel = self.start(work)
        try:
            return outcome.result()
        finally:
            if not outcome.done():
                cancel()
                concurrent.futures.wait([outcome], _CANCEL_WAIT_SECONDS)  # the code must stop first


_BACKGROUND = _BackgroundLoop()


def _disconnect(session: CodeSession) -> None:
    """Close the connections of a portal that was dropped without `close`."""
    if _BACKGROUND.is_running:
        _BACKGROUND.start(session.disconnect())
