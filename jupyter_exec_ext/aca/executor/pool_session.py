"""Sessions of an ACA pool for an executor: one that runs code (`PoolSession`), and its replacement (`PoolSessions`)."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ConnectionLost, ExecError, SessionEnded, SessionNotFound
from ...executors.function_loading import FunctionsModule
from ...executors.stateful_executor import FRESH_SESSION
from ...models import Execution, ExecutionState
from ..protocol.addresses import check_identifier
from ..protocol.run_format import RunResult
from .executor_files import PoolFiles
from .session_runs import (
    CHECK_SETUP_CODE,
    PACKAGE_NAMES_CODE,
    SETUP_CODE,
    SYNTAX_ERRORS,
    error_of,
    execution_of,
    has_timed_out,
    is_true,
    parse_package_names,
    prepend_setup_code,
)

if TYPE_CHECKING:
    from ...client.access_tokens import AsyncTokenProvider, TokenProvider
    from ..client.aio.pool_client import AsyncACAClient

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: The shortest idle time after which a pool may end a session. After it, check the session before code runs.
IDLE_SECONDS = 300.0
#: Time limit of the executor's own questions to a session that is not busy.
QUESTION_SECONDS = 10


class PoolSession:
    """Runner of code in one session, one run at a time. A session that is over stays over.

    Parameters
    ----------
    client : AsyncACAClient
        Client of the pool; `PoolSessions` closes it.
    identifier : str
        Name of the session in the pool; the service makes the session at its first use.
    functions : FunctionsModule
        Loaded before any other code.
    timeout_seconds : int
        Time limit of one run.
    is_new : bool
        Whether the identifier is fresh, so that the session can hold no files yet.
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
        self.over: str | None = None  # the reason, as a complete sentence
        self.files = PoolFiles(client, identifier, is_new=is_new)
        self._client = client
        self._functions = functions
        self._timeout_seconds = timeout_seconds
        # Runs wait here and not in the service, so a cancelled wait leaves the running code alone.
        self._turn = asyncio.Lock()
        self._sending: asyncio.Task[RunResult] | None = None
        self._is_set_up = False  # whether `SETUP_CODE` has run in the session's kernel
        self._answered_at = 0.0

    async def run(self, code: str, *, with_value: bool = True) -> Execution:
        """Run code and return it as an execution.

        The session is `over` after this is cancelled, and after the connection is lost during a run: the code may go
        on running, and ACA can stop it only by deleting the session.

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
            sent = await self._set_up(code)
            try:
                result = await self._send(sent, self._timeout_seconds)
            except SessionNotFound as error:
                self.over = "the pool has ended the session"
                raise SessionEnded(self.over) from error
            except SessionEnded:  # `end` has cancelled the request
                now = datetime.now(timezone.utc).isoformat()
                reason, cancelled = "the session was restarted or stopped while this ran", ExecutionState.CANCELLED
                return Execution(
                    "", self.identifier, cancelled, code, now, reason=reason, session_state_preserved=False
                )
            return await self._convert(result, code, with_value)

    async def _convert(self, result: RunResult, code: str, with_value: bool) -> Execution:
        """Return a run as an execution, and check whether the session survived it if that is in doubt."""
        state, reason, kept = None, None, True
        if has_timed_out(result, self._timeout_seconds):
            state = ExecutionState.TIMEOUT
            reason = f"the code ran longer than its time limit of {self._timeout_seconds} s"
            kept = await self._survived("the session did not survive code that ran too long")
        elif not result.ok and error_of(result) is None:  # no Python exception: the process may have been killed
            kept = await self._survived("the session's kernel has ended")
            reason = None if kept else "the session's kernel has ended"
        execution = execution_of(result, code, with_value=with_value, state=state, reason=reason, state_preserved=kept)
        # After a syntax error, the line of `SETUP_CODE` above the code has not run either.
        ran = execution.error is None or execution.error.name not in SYNTAX_ERRORS
        self._is_set_up = kept and (self._is_set_up or ran)
        return execution

    async def check(self) -> None:
        """Raise `SessionEnded` if the session is over or was lost; ask the session only if that is possible."""
        if self.over is not None or not self._turn.locked():  # a busy session exists
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
            code = await self._set_up(PACKAGE_NAMES_CODE)
            result = await self._send(code, max(self._timeout_seconds, QUESTION_SECONDS))
            if not result.ok:
                raise ValueError(f"Failed to get list of available packages: {result.stderr.strip()}")
            self._is_set_up = True
            return parse_package_names(result.value)

    async def end(self) -> None:
        """Delete the session and the code in it; a current run ends as cancelled.

        An unreachable service is not an error: an unused session ends by itself.
        """
        # `over` is set first, because `_send` gives it as the reason when it is cancelled.
        self.over = self.over or "the session was ended"
        if self._sending is not None:
            self._sending.cancel()
        try:
            await self._client.delete_session(self.identifier)
        except SessionNotFound:
            _log.debug("there was no session %s to delete", self.identifier)
        except ExecError as error:
            _log.warning("an ACA session could not be deleted; it ends when it was idle for long: %s", error)

    async def _send(self, code: str, timeout_seconds: int) -> RunResult:
        # The request is a task of its own: `end` can cancel it without its caller.
        running = self._client.run(self.identifier, code, timeout_seconds=timeout_seconds)
        self._sending = sending = asyncio.ensure_future(running)
        # Retrieve the exception in any case: asyncio logs those of tasks that are never awaited.
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
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
            # Code that may still run can only be stopped with its session.
            self.over = "the session was ended, since nobody knows what became of the code in it"
            raise
        self._answered_at = time.monotonic()
        return result

    async def _set_up(self, code: str) -> str:
        """Return the code to send so that this session is set up before `code` runs."""
        if self._is_set_up:
            return code
        if not self._functions and (combined := prepend_setup_code(code)) is not None:
            return combined
        setup = f"{SETUP_CODE}\n{self._functions.loading_code if self._functions else ''}"
        self._functions.check(execution_of(await self._send(setup, self._timeout_seconds), setup))
        self._is_set_up = True
        return code

    async def _check(self) -> None:
        """Raise `SessionEnded` if the session is over, or a new one has taken its place under the same identifier."""
        if self.over is not None:
            raise SessionEnded(self.over)
        if not self._is_set_up or time.monotonic() - self._answered_at < IDLE_SECONDS:
            return
        reason = "the session was not used for long and has ended"
        if not await self._is_the_same(reason):
            raise SessionEnded(reason)

    async def _survived(self, reason: str) -> bool:
        """Return whether the session still has its variables, after an event that may have ended it."""
        try:
            return await self._is_the_same(reason)
        except ExecError:
            self.over = reason
            return False

    async def _is_the_same(self, reason: str) -> bool:
        """Return whether the session's kernel is the one that was set up; without an answer the session is over."""
        try:
            result = await asyncio.wait_for(self._send(CHECK_SETUP_CODE, QUESTION_SECONDS), 2 * QUESTION_SECONDS)
        except (asyncio.TimeoutError, SessionNotFound):
            self.over = reason
            return False
        self._is_set_up = result.ok and is_true(result.value)
        return self._is_set_up


class PoolSessions:
    """The current session of an executor: made on demand, replaced when it is over.

    Parameters
    ----------
    endpoint, credential, client_options
        Arguments of the `AsyncACAClient`.
    session_id : str or None
        Of the first session, which `stop` does not delete; all others have random identifiers.
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
        self.note = ""  # for the model, with the next result
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
        """Return the client; raises `InvalidRequest` if its arguments are wrong."""
        if self._client is None:
            # Imported here since it needs aiohttp, and an executor can be made and dumped without it.
            from ..client.aio.pool_client import AsyncACAClient

            if self._session_id is not None:
                check_identifier(self._session_id)
            self._client = AsyncACAClient(self._endpoint, self._credential, **self._client_options)
        return self._client

    async def current(self) -> PoolSession:
        """Return the session, a new one if needed. Old ones are deleted before: a pool allows only a few."""
        await self._finish_endings()
        if self._session is None:
            is_new = self.identifier != self._session_id
            self._session = PoolSession(
                self.open(), self.identifier, self._functions, self._timeout_seconds, is_new=is_new
            )
        return self._session

    async def use(self, operation: Callable[[PoolSession], Awaitable[T]]) -> T:
        """Perform an operation that runs no user code, in a session that exists; the next result notes a new one."""
        session = await self.current()
        try:
            await session.check()
        except SessionEnded as error:
            self.note = f"Lost: {error.message}. {FRESH_SESSION}"
        finally:
            self.release(session)
        session = await self.current()
        try:
            return await operation(session)
        finally:
            self.release(session)

    def release(self, session: PoolSession) -> None:
        """Delete a session if it is over; the next call makes another one."""
        if session.over is None:
            return
        if self._session is session:
            self._session, self.identifier = None, str(uuid.uuid4())
        self._end(session)

    async def restart(self) -> None:
        """Delete the session."""
        session, self._session = self._session, None
        # Before the deletion: a call meanwhile must get another session.
        self.note, self.identifier = "", str(uuid.uuid4())
        if session is not None:
            await session.end()

    async def stop(self) -> None:
        """Delete the session, unless it is a named one, and close the connections."""
        session, self._session = self._session, None
        if session is not None and session.identifier != self._session_id:
            self._end(session)
            self.identifier = str(uuid.uuid4())
        await self._finish_endings()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _end(self, session: PoolSession) -> None:
        ending = asyncio.create_task(session.end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _finish_endings(self) -> None:
        if self._endings:
            await asyncio.wait(self._endings)
