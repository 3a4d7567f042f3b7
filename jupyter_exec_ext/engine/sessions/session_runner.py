"""Runner of one session's executions: waits for the kernel's turn, sends the code and writes the end.

`LiveSession` decides when an execution runs. `KernelRun` follows the kernel's messages until the verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from ...errors import Conflict, ExecError, LanguageNotSupported
from ...models import (
    ErrorEvent,
    ExecutionState,
    FilesEvent,
    JupyterExecutionRequest,
    Session,
    StateLoss,
)
from ...protocol.kernel_messages import KernelMessage
from ...protocol.languages import source_for_kernel
from ...protocol.run_environment import restore_variables_request, set_variables_request
from ..access.caller_limits import SessionLimits
from ..concurrency import MARGIN_SECONDS, WatchdogExpired, ends_within
from ..executions.lifecycle import StopCause, Verdict
from ..executions.live_execution import LiveExecution
from ..executions.runner import KernelRun
from ..executions.shared_run import SharedKernelRun
from ..kernels.session_kernel import SessionKernel
from ..ports import Kernel, KernelExit, KernelLaunch, SessionFiles
from .pending_kernel_requests import PendingKernelRequests
from .session_late_output import SessionLateOutput
from .session_watchers import SessionWatchers


class KernelTurn:
    """Turn of one session on its kernel; held while an execution runs."""

    def __init__(self, kernel: SessionKernel) -> None:
        self._kernel = kernel
        self._held: asyncio.Lock | None = None

    async def take(self) -> None:
        """Make sure of a kernel that has nothing else to do; `release` it afterwards.

        Code for a shared kernel waits here for its turn. In the kernel's own queue it could not be taken back, and an
        interrupt would stop its user's code.

        Raises
        ------
        TooManyKernels, KernelStartFailed, KernelStartTimeout
            See `SessionKernel.ensure`.
        KernelNotFound
            If it was shut down, with which the session ends, too.
        SessionEnded
            If the session ends meanwhile.
        """
        await self._kernel.ensure()
        assert self._kernel.kernel is not None
        lock = self._kernel.kernel.traits.turn
        if lock is not None:
            self._held = await self._kernel.unless_given_up(self._acquire(lock))

    async def _acquire(self, lock: asyncio.Lock) -> asyncio.Lock:
        await lock.acquire()
        with ExitStack() as undo:
            undo.callback(lock.release)
            # The user may restart the kernel during the wait, which closes the connection: ask again on a new one.
            while self._kernel.connection is None or not await self._kernel.connection.has_turn():
                await self._kernel.ensure()
            undo.pop_all()
        return lock

    def release(self) -> None:
        """Let other sessions use the kernel."""
        if self._held is not None:
            self._held.release()
            self._held = None


# Looking for changed files must not hold up the end of a run.
_CHANGES_SECONDS = 5.0


class SessionRunner:
    """Execution of code on a session's kernel, one execution at a time.

    Attributes
    ----------
    current : LiveExecution or None
        The execution whose turn it is; it may still wait for the kernel.
    last_execution_id : str or None
        Id of the last execution that the kernel has begun to run.
    run : KernelRun or None
        Its run, while the kernel has the code.
    has_run : bool
        Whether any code of the session has been sent to a kernel.
    revival : asyncio.Task or None
        Start of a fresh kernel after the last one was lost.
    watchers : SessionWatchers
        Those who watch the session.
    requests : PendingKernelRequests
        Requests to its kernel beside the code.
    closing : bool
        Set when the session ends: a lost kernel is not replaced any more.
    before_run : callable or None
        Awaited before each run, with the execution, while the kernel is idle and ready.
    """

    def __init__(
        self,
        session: Session,
        kernel: SessionKernel,
        *,
        files: SessionFiles,
        late_output: SessionLateOutput,
        limits: SessionLimits,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.current: LiveExecution | None = None
        self.run: KernelRun | None = None
        self.last_execution_id: str | None = None
        self.has_run = False
        self.revival: asyncio.Task[None] | None = None
        self.closing = False
        self.before_run: Callable[[LiveExecution], Awaitable[None]] | None = None
        self.watchers = SessionWatchers()
        self.requests = PendingKernelRequests(kernel, self.watchers)
        self._session_id = session.id
        self._kernel = kernel
        self._turn = KernelTurn(kernel)
        self._files = files
        self._late_output = late_output
        self._limits = limits
        self._log = log
        # Number of the kernel process that holds the session's state; an attached kernel has state from the start.
        self._state_in = 1 if session.attached else 0
        self._exit_between_runs: KernelExit | None = None
        self._restarted_outside = False

    # --- events of the kernel ---

    def on_message(self, message: KernelMessage) -> None:
        """Handle a message: of a request beside the run, the run's own, or late output of an earlier one."""
        if self.requests.on_message(message):
            return
        if self.run is None or not self.run.on_message(message):
            self._late_output.on_message(message)

    def on_too_large(self, reason: str) -> None:
        """End the run whose kernel sent a message over the limit."""
        if self.run is not None:
            self.run.stop(StopCause(ExecutionState.ERROR, f"message_too_large: {reason}"))

    def on_exit(self, exit_: KernelExit) -> None:
        """Handle the end of the kernel's process."""
        self.requests.fail_all()
        if self.run is not None:
            self.run.on_exit(exit_)  # reads what is left, and `execute` disconnects
            return
        kernel = self._kernel.kernel
        # A process in which nothing had run had no state to lose. Of several exits, the first has lost it.
        if self._state_in == self._kernel.starts and self._exit_between_runs is None:
            self._exit_between_runs = exit_
            self._restarted_outside = kernel is not None and kernel.being_shut_down
        self._kernel.disconnect()

    def require_idle(self) -> None:
        """Check that no code runs; raises `Conflict`."""
        if self.run is not None:
            raise Conflict("the session runs code; wait for its end, or interrupt it, and try again")

    async def interrupt(self) -> None:
        """Interrupt the code that runs: that of an execution, or of a comm's handler."""
        await (self.requests.interrupt() if self.run is None else self.run.interrupt())

    def note_renewed(self, *, has_state: bool) -> None:
        """Report no state loss: the caller that renews the kernel knows what has become of its state."""
        self._exit_between_runs = None
        self._state_in = self._kernel.starts if has_state else 0
        self.requests.fail_all()  # the process that they were sent to is gone

    def note_lost(self, launch: KernelLaunch | None) -> None:
        """Report a state loss to the next execution, if the kernel was to get a state and did not."""
        if launch is not None:
            self._exit_between_runs = KernelExit()
        self.requests.fail_all()

    # --- executions ---

    async def execute(self, execution: LiveExecution) -> None:
        """Run an execution to its end; a defect of ours ends it with an error."""
        self.current = execution
        self.requests.renew_budget(execution.max_output_bytes)
        try:
            await self._execute(execution)
        except Exception as error:  # a defect of ours; the client gets an end, and the session's next execution runs
            self._log.exception("execution %s failed inside the server", execution.record.id)
            await self._end_failed(execution, error)
        finally:
            self.current = None
            self._late_output.note_finished()
            self._turn.release()

    async def _end_failed(self, execution: LiveExecution, error: Exception) -> None:
        if execution.record.state.finished:
            return
        running = execution.record.state is ExecutionState.RUNNING
        # A queued execution cannot end as `error`: see `lifecycle.TRANSITIONS`.
        state = ExecutionState.ERROR if running else ExecutionState.KERNEL_DIED
        try:
            execution.emit(ErrorEvent("InternalError", "the server failed; its log has the details"))
            await execution.finish(Verdict(state, False, f"the server failed: {type(error).__name__}"))
        except Exception:  # the worker that calls this must go on with the session's next execution
            self._log.exception("execution %s: its end could not be written", execution.record.id)

    async def _ensure_kernel(self) -> tuple[StateLoss | None, Verdict | None]:
        """Make sure of a kernel; return the loss of its state since the last execution, and why there is none."""
        lost = await self._state_loss()
        try:
            await self._turn.take()
        except ExecError as error:
            return lost, Verdict(ExecutionState.KERNEL_DIED, False, f"no kernel: {error.message}")
        return lost, None

    async def _execute(self, execution: LiveExecution) -> None:
        lost, no_kernel = await self._ensure_kernel()
        if self.before_run is not None and no_kernel is None and not execution.record.state.finished:
            await self.before_run(execution)
            if self._kernel.connection is None:  # the kernel has ended meanwhile
                lost, no_kernel = await self._ensure_kernel()
        if execution.record.state.finished:  # cancelled while it waited for the kernel
            return
        if no_kernel is not None:
            await execution.finish(no_kernel)
            return
        verdict = await self._run_on_kernel(execution, lost)
        self._state_in = self._kernel.starts if verdict.preserved else 0
        if not verdict.preserved:
            self._kernel.disconnect()
            if not self.closing:
                self.revival = asyncio.get_running_loop().create_task(self._revive())
        self._kernel.touch()
        await execution.finish(verdict, await self.take_file_changes())

    async def _run_on_kernel(self, execution: LiveExecution, lost: StateLoss | None) -> Verdict:
        kernel, connection = self._kernel.kernel, self._kernel.connection
        assert kernel is not None and connection is not None
        execution.start(self._kernel.starts, lost)
        # Not earlier: an execution that is cancelled before it runs must leave the notice to the next one.
        self._exit_between_runs = None
        # After the event `running`, as all output.
        self._late_output.pass_to(execution)
        self.has_run, self.last_execution_id = True, execution.record.id
        kernel.note_activity()
        run = self.run = (SharedKernelRun if kernel.traits.is_shared else KernelRun)(
            kernel,
            connection,
            execution,
            interrupt_grace_seconds=self._limits.interrupt_grace_seconds,
            settle_seconds=self._limits.settle_seconds,
            deaths=self._kernel,
            log=self._log,
        )
        health = self._kernel.watch_health(execution.emit)
        if execution.request.env:
            connection.send("shell", "execute_request", set_variables_request(execution.request.env))
        try:
            return await self._verdict_on(execution, run, kernel)
        finally:
            if execution.request.env and self._kernel.connection is connection:
                connection.send("shell", "execute_request", restore_variables_request())
            self._late_output.note_end(execution, run.request_id)
            self.run = None
            if health is not None:
                health.close()

    async def _verdict_on(self, execution: LiveExecution, run: KernelRun, kernel: Kernel) -> Verdict:
        """Run an execution's code; the watchdog ends a run that exceeds its own bounds."""
        record = execution.record
        try:
            source = source_for_kernel(record.code, record.language, self._kernel.language)
        except LanguageNotSupported as error:  # the kernel's language was not known when the code was accepted
            return Verdict(ExecutionState.ERROR, True, error.message)
        asked: dict[str, Any] = {}
        if isinstance(request := execution.request, JupyterExecutionRequest):
            asked = {"store_history": request.store_history, "user_expressions": request.user_expressions}
        work = run.run(source, allow_input=record.allow_input, timeout_seconds=record.timeout_seconds, **asked)
        if record.timeout_seconds is None or kernel.traits.is_shared:  # its user's code may come first, for any time
            return await work
        try:
            return await ends_within(
                record.timeout_seconds + self._limits.interrupt_grace_seconds + MARGIN_SECONDS, work
            )
        except WatchdogExpired:
            self._log.exception("execution %s: its run did not end by itself", record.id)
            self._kernel.abandon()
            return Verdict(ExecutionState.TIMEOUT, False, "the run did not end by itself; its kernel was given up")

    async def _state_loss(self) -> StateLoss | None:
        """Return how the kernel ended since the last execution, if it did; before there is another kernel."""
        exit_ = self._exit_between_runs
        if exit_ is None:
            return None
        if self._restarted_outside:
            return StateLoss("the kernel was restarted outside the session", exit_.exit_code, exit_.signal)
        death = await self._kernel.explain(exit_)
        return StateLoss(death.reason, exit_.exit_code, exit_.signal)

    async def take_file_changes(self) -> FilesEvent | None:
        """Return what has changed in the session's files since the last call; None if nothing, or the scan is slow."""
        try:
            # Not cancelled: a scan that ends late is still what the next run's files are compared with.
            return await ends_within(_CHANGES_SECONDS, self._files.changes(self._session_id), cancel=False)
        except WatchdogExpired:
            return None

    async def _revive(self) -> None:
        """Start a fresh kernel now, so that the next execution need not wait for it."""
        try:
            await self._kernel.ensure()
        except ExecError as error:
            self._log.warning("session %s has no kernel: %s", self._session_id, error)
