"""A live session: its queue, what runs, and its end.

Executions run one after the other. A worker task exists only while there is something to run, so an idle session
costs nothing. The worker makes sure of a kernel before each run (`SessionKernel.ensure`), which is where an execution
waits while the session restarts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import ExecError, LanguageNotSupported, QueueFull, SessionEnded
from ...models import Approval, ErrorEvent, Execution, ExecutionState, FilesEvent, Session, SessionState, StateLoss
from ...protocol.kernel_messages import KernelMessage
from ...protocol.languages import source_for_kernel
from ...protocol.records_json import utc_timestamp
from ..change_feed import ChangeFeed
from ..executions.live_execution import LiveExecution
from ..executions.runner import KernelRun
from ..executions.shared_run import SharedKernelRun
from ..executions.verdict import StopCause, Verdict
from ..executions.watchdog import MARGIN_SECONDS, WatchdogExpired, ends_within
from ..kernels.process_limits import NO_PROCESS_LIMITS, ProcessLimits
from ..kernels.session_kernel import KernelListener, SessionKernel
from ..kernels.shared_resources import EngineResources
from ..ports import ExecutionStore, Kernel, KernelExit, KernelFiles, KernelHost, SessionFiles, SessionStore
from .session_late_output import SessionLateOutput
from .waiting_limits import Patience

_CANCEL_SECONDS = 1.0
# A polite kernel takes less, and one that has to be killed, too.
_SHUTDOWN_SECONDS = 15.0
# What is reported of the files that a run has changed must not hold up its end.
_CHANGES_SECONDS = 5.0
_WAITING = (ExecutionState.AWAITING_APPROVAL, ExecutionState.QUEUED)


def new_session_id() -> str:
    """Return an id for a session that is yet to come."""
    return f"ses_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Times and limits; see the traits of the same names, and the policy of whoever has created the session.

    Parameters
    ----------
    max_session_seconds : float or None
        How long it may live.
    process_limits : ProcessLimits
        For its kernel's processes.
    """

    interrupt_grace_seconds: float
    settle_seconds: float
    kernel_start_timeout_seconds: float
    max_queued_executions: int
    max_session_seconds: float | None = None
    process_limits: ProcessLimits = NO_PROCESS_LIMITS


class LiveSession:
    """A session that has not ended.

    Parameters
    ----------
    record : Session
        In the state ``starting``, or ``idle`` with a kernel that is `prepared`.
    env : mapping
        The complete environment of the session's kernels.
    isolate : str or None
        The isolation to start them with where their kernelspec has none of its own.
    setup_code : str or None
        What each of them runs, silently, before anything else.
    executions : ExecutionStore
        Is told how much late output an execution has.
    feed : ChangeFeed
        Is told of each change.
    prepared : SessionKernel or None
        A kernel that is there already, and the record says so; instead of one that is yet to be started.
    """

    def __init__(
        self,
        record: Session,
        env: Mapping[str, str],
        *,
        isolate: str | None = None,
        setup_code: str | None = None,
        host: KernelHost,
        files: SessionFiles,
        resources: EngineResources,
        store: SessionStore,
        executions: ExecutionStore,
        feed: ChangeFeed,
        settings: SessionSettings,
        log: logging.Logger | logging.LoggerAdapter[Any],
        prepared: SessionKernel | None = None,
    ) -> None:
        self.record = record
        self._store = store
        self._feed = feed
        self._files = files
        self._settings = settings
        self._log = log
        self._loop = asyncio.get_running_loop()
        listener = KernelListener(
            self._on_message, self._on_too_large, self._on_exit, self._on_connected, self._on_kernel_removed
        )
        if prepared is not None:
            prepared.adopt(listener, setup_code)
        self._kernel = prepared or SessionKernel(
            record.kernel_name,
            env,
            session_id=record.id,
            language=record.language,
            attach_to=record.kernel_id if record.attached else None,
            isolate=isolate,
            setup_code=setup_code,
            host=host,
            workdir=partial(files.prepare, record.id),
            resources=resources,
            start_timeout_seconds=settings.kernel_start_timeout_seconds,
            process_limits=settings.process_limits,
            listener=listener,
            log=log,
        )
        self._late_output = SessionLateOutput(record.id, record.owner, executions, feed)
        self._state_in = 1 if record.attached else 0  # the kernel, by its number, that has state of this session's
        self._exit_between_runs: KernelExit | None = None
        self._restarted_outside = False
        self._queue: deque[LiveExecution] = deque()
        self._accepting = 0
        self._all_accepted = asyncio.Event()
        self._all_accepted.set()
        self._current: LiveExecution | None = None
        self._run: KernelRun | None = None
        self._worker: asyncio.Task[None] | None = None
        self._revival: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._life_timer: asyncio.TimerHandle | None = None
        self.patience = Patience(self._end)
        self._on_end: list[Callable[[], object]] = []
        self.has_run = False
        self._closing: asyncio.Task[None] | None = None
        self._cut: StopCause | None = None

    @property
    def running(self) -> bool:
        """Whether anything runs or waits to run."""
        return self._current is not None or bool(self._queue)

    @property
    def closing(self) -> bool:
        """Whether it has ended or is about to."""
        return self._closing is not None

    @property
    def kernel_files(self) -> KernelFiles | None:
        """The files of its kernel, if that is not on this machine and they can be reached all the same."""
        kernel = self._kernel.kernel
        return None if kernel is None else kernel.files

    @property
    def kernel_pid(self) -> int | None:
        """The process of its kernel, if that lives, on this machine."""
        return self._kernel.pid

    def use(self) -> bool:
        """Let its idle time begin anew; return False for a session that takes nothing any more."""
        if not self.closing and not self.running:
            self._rest()
        return not self.closing

    def executions(self) -> list[LiveExecution]:
        """Return the running and the queued executions, in this order."""
        return [*([self._current] if self._current else []), *self._queue]

    # --- the kernel ---

    async def start(self) -> None:
        """Start the kernel and wait until it answers.

        Raises
        ------
        TooManyKernels, KernelStartFailed, KernelStartTimeout
        SessionEnded
            If it was shut down meanwhile.
        """
        await self._kernel.ensure()
        if self._closing is not None:
            raise ended_error(self.record)
        if self.record.state is SessionState.STARTING:
            await self._update(state=SessionState.IDLE)
        self._rest()
        self._limit_life()

    def _limit_life(self) -> None:
        seconds = self._settings.max_session_seconds
        if seconds is not None and self._closing is None:
            reason = f"its policy lets it live for {seconds:g} s (max_session_seconds)"
            self._life_timer = self._loop.call_later(
                seconds, self._begin_close, reason, ExecutionState.CANCELLED, False
            )

    def _on_message(self, message: KernelMessage) -> None:
        if self._run is None or not self._run.on_message(message):
            self._late_output.on_message(message)

    def _on_too_large(self, reason: str) -> None:
        if self._run is not None:
            self._run.stop(StopCause(ExecutionState.ERROR, f"message_too_large: {reason}"))

    def _on_exit(self, exit_: KernelExit) -> None:
        if self._run is not None:
            self._run.on_exit(exit_)  # reads what is left, then the worker disconnects
        else:
            self._note_exit_between_runs(exit_)
            self._kernel.disconnect()

    def _note_exit_between_runs(self, exit_: KernelExit) -> None:
        kernel = self._kernel.kernel
        if self._state_in == self._kernel.starts and self._exit_between_runs is None:
            self._exit_between_runs = exit_
            self._restarted_outside = kernel is not None and kernel.being_shut_down

    async def _on_connected(self, kernel_id: str, starts: int) -> None:
        language = self.record.language or self._kernel.language
        await self._update(kernel_id=kernel_id, kernel_starts=starts, language=language)

    async def _on_kernel_removed(self) -> None:
        await self.close("its kernel was shut down outside the session")

    # --- executions ---

    @contextmanager
    def room(self) -> Iterator[None]:
        """Hold a place in the queue while an execution is being recorded.

        Raises
        ------
        SessionEnded, QueueFull
        """
        if self._closing is not None:
            raise ended_error(self.record)
        taken = len(self._queue) + self._accepting
        if taken >= self._settings.max_queued_executions:
            raise QueueFull(f"the session has {taken} queued executions, as many as it may; wait for one to end")
        self._accepting += 1
        self._all_accepted.clear()
        try:
            yield
        finally:
            self._accepting -= 1
            if not self._accepting:
                self._all_accepted.set()

    async def submit(self, execution: LiveExecution) -> None:
        """Put a recorded execution in the queue."""
        if self._cut is not None:  # the session was closed while it was recorded
            await self._end(execution, self._cut)
            return
        self._queue.append(execution)
        if not execution.awaits_approval:
            self.patience.for_turn(execution)
        self._disarm_idle_timer()
        if self._worker is None:
            self._worker = self._loop.create_task(self._work())

    def approve(self, execution: LiveExecution, approval: Approval, code: str) -> None:
        """Let an execution that awaits approval take its turn."""
        execution.approve(approval, code)
        self.patience.for_turn(execution)

    async def reject(self, execution: LiveExecution, approval: Approval, reason: str) -> None:
        """End an execution that awaits approval."""
        execution.note_decision(approval)
        await self._end(execution, StopCause(ExecutionState.REJECTED, reason))

    async def _work(self) -> None:
        self._become(state=SessionState.BUSY)
        while self._queue:
            if self._queue[0].awaits_approval:  # what comes after it may build on it, so it keeps its place
                await self._queue[0].decided()
                continue
            self._current = self._queue.popleft()
            try:
                await self._execute(self._current)
            except Exception as error:
                self._log.exception("execution %s failed inside the server", self._current.record.id)
                await self._fail(self._current, error)
            finally:
                self._current = None
                self._late_output.note_finished()
                self._kernel.release()
        self._worker = None
        if self._closing is None:
            self._rest(state=SessionState.IDLE)

    async def _fail(self, execution: LiveExecution, error: Exception) -> None:
        """End an execution that a defect of ours left open."""
        if execution.record.state.finished:
            return
        running = execution.record.state is ExecutionState.RUNNING
        execution.emit(ErrorEvent("InternalError", "the server failed; its log has the details"))
        state = ExecutionState.ERROR if running else ExecutionState.KERNEL_DIED
        await execution.finish(Verdict(state, False, f"the server failed: {type(error).__name__}"))

    async def _execute(self, execution: LiveExecution) -> None:
        no_kernel = None
        lost = await self._state_loss()
        try:
            await self._kernel.ready()
        except ExecError as error:
            no_kernel = Verdict(ExecutionState.KERNEL_DIED, False, f"no kernel: {error.message}")
        if execution.record.state.finished:  # cancelled while it waited for the kernel
            return
        if no_kernel is not None:
            await execution.finish(no_kernel)
            return
        kernel, connection = self._kernel.kernel, self._kernel.connection
        assert kernel is not None and connection is not None
        self.patience.over(execution)
        execution.start(self.record.kernel_starts, lost)
        self._exit_between_runs = None
        self._late_output.pass_to(execution)
        self.has_run = True
        kernel.touch()
        self._run = (KernelRun if kernel.ours else SharedKernelRun)(
            kernel,
            connection,
            execution,
            interrupt_grace_seconds=self._settings.interrupt_grace_seconds,
            settle_seconds=self._settings.settle_seconds,
            deaths=self._kernel,
            log=self._log,
        )
        health = self._kernel.watch_health(execution.emit)
        try:
            verdict = await self._verdict_on(execution.record, self._run, kernel)
        finally:
            self._late_output.note_end(execution, self._run.request_id)
            self._run = None
            if health is not None:
                health.close()
        self._state_in = self._kernel.starts if verdict.preserved else 0
        if not verdict.preserved:
            self._kernel.disconnect()
            if self._closing is None:
                self._revival = self._loop.create_task(self._revive())
        kernel.touch()
        await execution.finish(verdict, await self._changed_files())

    async def _state_loss(self) -> StateLoss | None:
        """Return how the kernel ended since the last execution, if it did; before there is another kernel."""
        exit_ = self._exit_between_runs
        if exit_ is None:
            return None
        if self._restarted_outside:
            return StateLoss("the kernel was restarted outside the session", exit_.exit_code, exit_.signal)
        death = await self._kernel.explain(exit_)
        return StateLoss(death.reason, exit_.exit_code, exit_.signal)

    async def _verdict_on(self, record: Execution, run: KernelRun, kernel: Kernel) -> Verdict:
        """Run an execution's code; a run that does not keep its own bounds is ended by the watchdog."""
        try:
            source = source_for_kernel(record.code, record.language, self.record.language)
        except LanguageNotSupported as error:  # the kernel's language was not known when the code was accepted
            return Verdict(ExecutionState.ERROR, True, error.message)
        work = run.run(
            source,
            allow_input=record.allow_input,
            timeout_seconds=record.timeout_seconds,
        )
        if record.timeout_seconds is None or not kernel.ours:  # its user's code may come first, for as long as it likes
            return await work
        try:
            return await ends_within(
                record.timeout_seconds + self._settings.interrupt_grace_seconds + MARGIN_SECONDS, work
            )
        except WatchdogExpired:
            self._log.exception("execution %s: its run did not end by itself", record.id)
            self._kernel.abandon()
            return Verdict(ExecutionState.TIMEOUT, False, "the run did not end by itself; its kernel was given up")

    async def _changed_files(self) -> FilesEvent | None:
        """Return what the code has changed in its directory, unless it takes too long to find out."""
        try:
            return await ends_within(_CHANGES_SECONDS, self._files.changes(self.record.id), cancel=False)
        except WatchdogExpired:
            return None

    async def _revive(self) -> None:
        """Start a fresh kernel now, so that the next execution need not wait for it."""
        try:
            await self._kernel.ensure()
        except ExecError as error:
            self._log.warning("session %s has no kernel: %s", self.record.id, error)

    async def cancel(self, execution: LiveExecution, reason: str) -> None:
        """Take an execution out of the queue, or stop it if it runs."""
        await self._end(execution, StopCause(ExecutionState.CANCELLED, reason))

    async def _end(self, execution: LiveExecution, cause: StopCause) -> None:
        if execution is self._current and self._run is not None:
            self._run.stop(cause)
        elif execution.record.state in _WAITING:
            if execution in self._queue:
                self._queue.remove(execution)
            await execution.finish(Verdict(cause.state, True, cause.reason))

    def answer_input(self, execution: LiveExecution, value: str) -> bool:
        """Answer ``input()``; return False if the execution does not run."""
        if execution is not self._current or self._run is None:
            return False
        self._run.answer_input(value)
        return True

    def touch(self) -> None:
        """Tell the host that the kernel is in use."""
        self._kernel.touch()

    # --- control ---

    async def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C would; nothing more follows from it."""
        if self._run is not None:
            await self._run.interrupt()

    async def restart(self) -> None:
        """Give the session a fresh kernel; what runs and what is queued ends as cancelled.

        Executions submitted meanwhile wait for the lock, and so run in the fresh kernel.
        """
        self._disarm_idle_timer()
        self._become(state=SessionState.RESTARTING)
        try:
            async with self._kernel.lock:
                await self._end_all(StopCause(ExecutionState.CANCELLED, "the session was restarted", at_once=True))
                await self._kernel.renew()
                self._exit_between_runs = None  # whoever restarts a session knows that its state is gone
        finally:
            busy = self._worker is not None
            if self._closing is None:
                self._become(state=SessionState.BUSY if busy else SessionState.IDLE)
                if not busy:
                    self._rest()

    async def close(self, reason: str, *, cut: ExecutionState = ExecutionState.CANCELLED, now: bool = False) -> None:
        """End the session and its kernel.

        Parameters
        ----------
        cut : ExecutionState
            The state in which running and queued executions end.
        now : bool
            Do not ask the kernel to exit.
        """
        await asyncio.shield(self._begin_close(reason, cut, now))

    def _begin_close(self, reason: str, cut: ExecutionState, now: bool) -> asyncio.Task[None]:
        if self._closing is None:
            self._cut = StopCause(cut, reason, at_once=True)
            self._closing = self._loop.create_task(self._close(self._cut, now))
            self._kernel.give_up()
        return self._closing

    async def _close(self, cut: StopCause, now: bool) -> None:
        self._disarm_idle_timer()
        if self._life_timer is not None:
            self._life_timer.cancel()
        try:
            killed = await self._end_all(cut)
            await ends_within(_SHUTDOWN_SECONDS, self._kernel.shutdown(now=now or killed), cancel=False)
        except Exception:
            # The session ends all the same; the kernel is the host's, who lists it and can shut it down.
            self._log.exception("session %s: its kernel could not be shut down", self.record.id)
        tasks = [task for task in (self._worker, self._revival) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=MARGIN_SECONDS)
        await self.patience.settled()
        await self._all_accepted.wait()  # what is just being recorded gets its end, too
        await self._late_output.close()
        await self._files.session_ended(self.record.id)
        moment = utc_timestamp(time.time())
        await self._update(state=SessionState.ENDED, ended_at=moment, ended_reason=cut.reason)
        for callback in self._on_end:
            callback()

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the session has ended."""
        self._on_end.append(callback)

    async def _end_all(self, cause: StopCause) -> bool:
        """End what runs and what is queued, and wait for it; return whether something ran."""
        ran = self._run is not None
        executions = self.executions()
        # All at once: what runs is not to go on while the ends of what is queued are written.
        await asyncio.gather(*(self._end(execution, cause) for execution in reversed(executions)))
        give_up_at = self._loop.time() + self._settings.interrupt_grace_seconds + MARGIN_SECONDS
        for execution in executions:
            await execution.wait(max(0.0, give_up_at - self._loop.time()))
        if any(not execution.record.state.finished for execution in executions):
            await self._end_by_force(executions, cause)
        return ran

    async def _end_by_force(self, executions: Sequence[LiveExecution], cause: StopCause) -> None:
        """End executions whose worker waits for something that does not come."""
        self._log.error("session %s: what ran in it did not end by itself", self.record.id)
        self._kernel.abandon()
        if self._worker is not None and self._current is not None and not self._current.finishing:
            worker, self._worker = self._worker, None
            worker.cancel()
            await asyncio.wait([worker], timeout=_CANCEL_SECONDS)
        for execution in executions:
            if not execution.finishing:
                await execution.finish(Verdict(cause.state, False, f"{cause.reason}; its kernel was given up"))

    # --- housekeeping ---

    async def record_start(self) -> None:
        """Write the first record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """
        await self._store.add(self.record)
        self._become()

    def _become(self, **changes: Any) -> None:
        """Change the record and tell those who watch; the only place where it changes."""
        self.record = replace(self.record, **changes)
        if self._feed.wanted:
            self._feed.note_session(self.record)

    async def _update(self, **changes: Any) -> None:
        self._become(**changes)
        await self._store.save(self.record)

    def _rest(self, **changes: Any) -> None:
        """Note the last activity, and what else has changed, and begin to count idle time."""
        if self._closing is not None:
            return
        self._become(last_activity_at=utc_timestamp(time.time()), **changes)
        self._disarm_idle_timer()
        timeout = self.record.idle_timeout_seconds
        if timeout > 0:
            self._idle_timer = self._loop.call_later(
                timeout, self._begin_close, f"idle for {timeout:g} s", ExecutionState.CANCELLED, False
            )

    def _disarm_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


def ended_error(session: Session) -> SessionEnded:
    """Return the error for using a session that has ended."""
    return SessionEnded(f"the session has ended: {session.ended_reason or 'it is being shut down'}; create a new one")
