"""One session of an ACA pool, as an executor uses it: entered once, asked whether it is still the same, ended."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ...errors import ConnectionLost, ExecError, SessionEnded, SessionNotFound
from ...executors.function_loading import FunctionsModule
from ...models import Execution, ExecutionState
from ..protocol.run_results import RunResult
from .executor_files import PoolFiles
from .result_conversion import error_of, execution_of, timed_out
from .session_code import ASK_ENTERED, ASK_PACKAGES, ENTER, below_enter, is_true, lines_of

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient

_log = logging.getLogger(__name__)

#: The shortest time after which a pool may take an idle session away; then we ask before we run code in it.
IDLE_SECONDS = 300.0
#: How long the answer to a question of ours may take, in a session that is not busy.
QUESTION_SECONDS = 10
# With these a run ends before its first line.
_NOTHING_RAN = ("SyntaxError", "IndentationError", "TabError")


class PoolSession:
    """Runs code in one session, one run at a time. Once it is over it stays over.

    Parameters
    ----------
    client : AsyncACAClient
        For the pool; it is not closed here.
    identifier : str
        The session's name in the pool; the service makes the session when it is first used.
    functions : FunctionsModule
        Loaded before any other code.
    timeout_seconds : int
        How long one run may take.
    is_new : bool
        Whether nobody can have used it before.
    """

    def __init__(
        self,
        client: AsyncACAClient,
        identifier: str,
        functions: FunctionsModule,
        timeout_seconds: int,
        *,
        is_new: bool,
    ) -> None:
        self.identifier = identifier
        self.over: str | None = None  # why, in words that stand alone
        self.files = PoolFiles(client, identifier, is_new=is_new)
        self._client = client
        self._functions = functions
        self._timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()
        self._sending: asyncio.Task[RunResult] | None = None
        self._entered = False
        self._answered_at = 0.0

    async def run(self, code: str, *, with_value: bool = True) -> Execution:
        """Run code and return what came of it.

        Leaving this by cancelling it, and a connection that is lost while code runs, makes the session `over`: the
        code may go on running, and ACA has no other way to stop it than to delete the session.

        Raises
        ------
        SessionEnded
            If the session was found to be over; the code was not run.
        ValueError
            If the functions cannot be loaded.
        ExecError
            If the service cannot be reached or refuses.
        """
        async with self._turn:
            await self._check()
            sent = await self._entering(code)
            try:
                result = await self._send(sent, self._timeout_seconds)
            except SessionNotFound as error:
                raise self._ended("the pool has ended the session") from error
            except SessionEnded:
                return self._cancelled(code)
            return await self._told(result, code, with_value)

    def _cancelled(self, code: str) -> Execution:
        now = datetime.now(timezone.utc).isoformat()
        reason = "the session was restarted or stopped while this ran"
        state = ExecutionState.CANCELLED
        return Execution("", self.identifier, state, code, now, reason=reason, session_state_preserved=False)

    async def _told(self, result: RunResult, code: str, with_value: bool) -> Execution:
        """Return a run as an execution, and find out whether the session survived it where that is in doubt."""
        state, reason, kept = None, None, True
        if timed_out(result, self._timeout_seconds):
            state = ExecutionState.TIMEOUT
            reason = f"the code ran longer than its time limit of {self._timeout_seconds} s"
            kept = await self._survived("the session did not survive code that ran too long")
        elif not result.ok and error_of(result) is None:  # no exception of Python's: perhaps its process was killed
            kept = await self._survived("the session's kernel has ended")
            reason = None if kept else "the session's kernel has ended"
        execution = execution_of(result, code, with_value=with_value, state=state, reason=reason, state_preserved=kept)
        ran = execution.error is None or execution.error.name not in _NOTHING_RAN
        self._entered = kept and (self._entered or ran)
        return execution

    async def check(self) -> None:
        """Raise `SessionEnded` if the session is over or has been lost; ask only if it may have been."""
        if self.over is not None or not self._turn.locked():  # what is busy is there
            async with self._turn:
                await self._check()

    async def packages(self) -> set[str]:
        """Return the names of the packages that are installed in the session.

        Raises
        ------
        SessionEnded, ValueError, ExecError
            As `run` does; `ValueError` also if the question fails.
        """
        async with self._turn:
            await self._check()
            result = await self._send(await self._entering(ASK_PACKAGES), max(self._timeout_seconds, QUESTION_SECONDS))
            if not result.ok:
                raise ValueError(f"Failed to get list of available packages: {result.stderr.strip()}")
            self._entered = True
            return lines_of(result.value)

    async def end(self) -> None:
        """Delete the session, and with it what runs in it; a run under way ends as cancelled.

        That the service cannot be reached is no error: a session that nobody uses ends by itself.
        """
        self.over = self.over or "the session was ended"
        if self._sending is not None:
            self._sending.cancel()
        try:
            await self._client.delete_session(self.identifier)
        except SessionNotFound:
            _log.debug("there was no session %s to delete", self.identifier)
        except ExecError as error:
            _log.warning("an ACA session could not be deleted; it ends when it was idle for long: %s", error)

    # --- what all of these do ---

    async def _send(self, code: str, timeout_seconds: int) -> RunResult:
        running = self._client.run(self.identifier, code, timeout_seconds=timeout_seconds)
        self._sending = sending = asyncio.ensure_future(running)
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())  # if nobody waits for it any more
        try:
            await asyncio.wait({sending})
        except asyncio.CancelledError:
            sending.cancel()
            self.over = self.over or "the session was ended together with code in it that was cancelled"
            raise
        finally:
            self._sending = None
        if sending.cancelled():  # by `end`
            raise SessionEnded(self.over or "the session was ended")
        try:
            result = sending.result()
        except ConnectionLost:
            self.over = "the session was ended, since nobody knows what became of the code in it"
            raise
        self._answered_at = time.monotonic()
        return result

    async def _entering(self, code: str) -> str:
        """Return the code to send so that this session is entered before `code` runs."""
        if self._entered:
            return code
        if not self._functions:
            below = below_enter(code)
            if below is not None:
                return below
        setup = f"{ENTER}\n{self._functions.loading_code if self._functions else ''}"
        result = await self._send(setup, self._timeout_seconds)
        self._functions.check(execution_of(result, setup))
        self._entered = True
        return code

    async def _check(self) -> None:
        """Raise `SessionEnded` if the session is over, or another one has taken its place under the same identifier."""
        if self.over is not None:
            raise SessionEnded(self.over)
        if not self._entered or time.monotonic() - self._answered_at < IDLE_SECONDS:
            return
        why = "the session was not used for long and has ended"
        if not await self._is_the_same(why):
            raise SessionEnded(why)

    async def _survived(self, otherwise: str) -> bool:
        """Whether the session still has its variables, after something that it may not have survived."""
        try:
            return await self._is_the_same(otherwise)
        except ExecError:
            self.over = otherwise
            return False

    async def _is_the_same(self, otherwise: str) -> bool:
        """Whether the session's kernel is the one that was entered; a session that does not answer is over."""
        try:
            result = await asyncio.wait_for(self._send(ASK_ENTERED, QUESTION_SECONDS), 2 * QUESTION_SECONDS)
        except (asyncio.TimeoutError, SessionNotFound):
            self.over = otherwise
            return False
        self._entered = result.ok and is_true(result.value)
        return self._entered

    def _ended(self, why: str) -> SessionEnded:
        self.over = why
        return SessionEnded(why)
