"""Live session: its record, its queue, its kernel, and how it ends.

A worker task exists only while there is something to run, so an idle session costs nothing. `SessionRunner` runs each
execution; it waits for the kernel while the session restarts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...errors import SessionEnded
from ...models import Approval, ExecutionState, Session, SessionState
from ...protocol.records_json import utc_timestamp
from ..access.caller_limits import SessionLimits
from ..change_feed import ChangeFeed
from ..concurrency import MARGIN_SECONDS, ends_within
from ..executions.lifecycle import StopCause, Verdict
from ..executions.live_execution import LiveExecution
from ..kernels.session_kernel import SessionKernel
from ..ports import KernelLaunch, SessionFiles, SessionStore
from .execution_queue import ExecutionQueue
from .session_late_output import SessionLateOutput
from .session_runner import SessionRunner
from .session_timers import SessionTimers

_CANCEL_SECONDS = 1.0
# A kernel that exits when asked takes less, and so does one that has to be killed.
_SHUTDOWN_SECONDS = 15.0
# A right that has ended has to be without effect within a second.
_HURRIED_GRACE_SECONDS = 0.3


class LiveSession:
    """A session that has not ended.

    Parameters
    ----------
    record : Session
        In the state ``starting``, or ``idle`` with a kernel that runs already.
    kernel : SessionKernel
        The session's own from now on, started or not.
    files : SessionFiles
        Working directories of sessions such as this one.
    store : SessionStore
        Keeps the record.
    late_output : SessionLateOutput
        Handles messages that belong to no running execution.
    feed : ChangeFeed
        Gets each change of the record.
    """

    def __init__(
        self,
        record: Session,
        kernel: SessionKernel,
        *,
        files: SessionFiles,
        store: SessionStore,
        late_output: SessionLateOutput,
        feed: ChangeFeed,
        limits: SessionLimits,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.record = record
        self.queue = ExecutionQueue(limits.max_queued_executions)
        self.kernel = kernel
        self.runner = runner = SessionRunner(
            record, kernel, files=files, late_output=late_output, limits=limits, log=log
        )
        self.watchers, self.requests = runner.watchers, runner.requests
        kernel.receiver, kernel.owner = runner, self
        self._files = files
        self._store = store
        self._late_output = late_output
        self._feed = feed
        self._limits = limits
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._worker: asyncio.Task[None] | None = None
        self._timers = SessionTimers(self._begin_close)
        self._on_end: list[Callable[[], object]] = []
        self._closing: asyncio.Task[None] | None = None
        self._cut: StopCause | None = None

    @property
    def is_closing(self) -> bool:
        """True if it has ended or is about to."""
        return self._closing is not None

    @property
    def has_run(self) -> bool:
        """True if any code has been sent to its kernel."""
        return self.runner.has_run

    @property
    def current(self) -> LiveExecution | None:
        """The execution whose turn it is."""
        return self.runner.current

    def renew_idle_timeout(self) -> bool:
        """Start the idle time anew; return False for a session that accepts nothing any more."""
        self._rest()
        return not self.is_closing

    # --- the kernel ---

    async def start(self) -> None:
        """Write the first record, start the kernel and wait until it answers.

        Raises
        ------
        StorageFull, StoreUnavailable
            If the record cannot be written; no kernel is started.
        TooManyKernels, KernelStartFailed, KernelStartTimeout
            If there is no kernel.
        SessionEnded
            If it was shut down meanwhile.
        """
        await self._store.add(self.record)
        self._become()
        await self.kernel.ensure()
        if self._closing is not None:
            raise ended_error(self.record)
        # Executions are accepted while the kernel starts, so the session may be busy by now.
        if self.record.state is SessionState.STARTING:
            await self._update(state=SessionState.IDLE)
        self._rest()
        if self._closing is None:
            self._timers.start_life(self._limits.max_session_seconds)

    async def on_connected(self, kernel_id: str, starts: int) -> None:
        """Record the process that has answered."""
        language = self.record.language or self.kernel.language
        await self._update(kernel_id=kernel_id, kernel_starts=starts, language=language)

    async def on_removed(self, reason: str) -> None:
        """End the session, since another client has shut its kernel down."""
        await self.close(reason)

    # --- executions ---

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold a place in the queue while an execution is being recorded.

        Raises
        ------
        SessionEnded
            If the session takes no more.
        QueueFull
            If all places are taken.
        """
        if self._closing is not None:
            raise ended_error(self.record)
        with self.queue.reserve():
            yield

    async def submit(self, execution: LiveExecution) -> None:
        """Put a recorded execution in the queue."""
        if self._cut is not None:  # the session was closed while it was recorded
            await self.stop(execution, self._cut)
            return
        self.queue.add(execution)
        self._timers.stop_idle()
        if self._worker is None:
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        self._become(state=SessionState.BUSY)
        while (execution := await self.queue.next()) is not None:
            await self.runner.execute(execution)
            await self.queue.abort_after(execution)
        # Nothing is awaited since the queue was found empty, so no execution is left without a worker.
        self._worker = None
        self._rest(state=SessionState.IDLE)

    def approve(self, execution: LiveExecution, approval: Approval, code: str) -> None:
        """Let an execution that awaits approval run in its turn."""
        execution.approve(approval, code)
        # Only from now on: the time that the person took does not count as time in the queue.
        self.queue.limit_wait(execution)

    async def reject(self, execution: LiveExecution, approval: Approval, cause: StopCause) -> None:
        """End an execution that awaits approval."""
        execution.note_decision(approval)
        await self.stop(execution, cause)

    async def stop(self, execution: LiveExecution, cause: StopCause) -> None:
        """Remove an execution from the queue, or stop it if it runs."""
        if execution is self.runner.current and self.runner.run is not None:
            self.runner.run.stop(cause)
        else:
            await self.queue.end(execution, cause)

    def answer_input(self, execution: LiveExecution, value: str) -> bool:
        """Answer ``input()``; return False if the execution does not run."""
        if execution is not self.runner.current or self.runner.run is None:
            return False
        self.runner.run.answer_input(value)
        return True

    # --- control ---

    async def interrupt(self) -> None:
        """Interrupt the running code, as Ctrl-C would, with no other consequence."""
        await self.runner.interrupt()

    async def restart(self, launch: KernelLaunch | None = None) -> None:
        """Give the session a fresh kernel, or one from a checkpoint; running and queued executions end as cancelled.

        Executions submitted meanwhile wait for the lock, and so run in the fresh kernel.
        """
        reason = "the session was restarted" if launch is None else "the session was restored to a checkpoint"
        self._timers.stop_idle()
        self._become(state=SessionState.RESTARTING)
        try:
            # The runner's revival of a kernel that was killed here waits for the lock, and then finds the fresh one.
            async with self.kernel.lock:
                if launch is not None:
                    self.runner.require_idle()  # code may have begun while its process was made
                await self._end_all(StopCause(ExecutionState.CANCELLED, reason, at_once=True))
                try:
                    await self.kernel.renew(launch)
                except BaseException:
                    self.runner.note_lost(launch)
                    raise
                self.runner.note_renewed(has_state=launch is not None)
        finally:
            if self._worker is None:
                self._rest(state=SessionState.IDLE)
            elif self._closing is None:
                self._become(state=SessionState.BUSY)

    async def close(self, reason: str, *, cut: ExecutionState = ExecutionState.CANCELLED, now: bool = False) -> None:
        """End the session and its kernel.

        Parameters
        ----------
        cut : ExecutionState
            The state in which running and queued executions end.
        now : bool
            Do not ask the kernel to exit, and on a shared kernel hardly wait for interrupted code.
        """
        # A caller that is cancelled must not leave the session half closed.
        await asyncio.shield(self._begin_close(reason, cut, now))

    def _begin_close(
        self, reason: str, cut: ExecutionState = ExecutionState.CANCELLED, now: bool = False
    ) -> asyncio.Task[None]:
        if self._closing is None:
            grace_seconds = _HURRIED_GRACE_SECONDS if now else None
            self._cut = StopCause(cut, reason, at_once=True, grace_seconds=grace_seconds)
            self._closing = self._loop.create_task(self._close(self._cut, now))
            self.runner.closing = True
            self.kernel.give_up()
        return self._closing

    async def _close(self, cut: StopCause, now: bool) -> None:
        self._timers.close()
        try:
            killed = await self._end_all(cut)
            # Not cancelled: after half a shutdown, jupyter_client's manager can neither restart nor shut down.
            await ends_within(_SHUTDOWN_SECONDS, self.kernel.shutdown(now=now or killed), cancel=False)
        except Exception:  # of any host; the session ends all the same, and the host can still shut the kernel down
            self._log.exception("session %s: its kernel could not be shut down", self.record.id)
        tasks = [task for task in (self._worker, self.runner.revival) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=MARGIN_SECONDS)
        await self.queue.settled()  # executions that are being recorded end, too
        await self._late_output.close()
        await self._files.session_ended(self.record.id)
        moment = utc_timestamp(time.time())
        nothing: dict[str, Any] = {"open_ports": (), "wanted_rules": ()}
        await self._update(state=SessionState.ENDED, ended_at=moment, ended_reason=cut.reason, **nothing)
        for callback in self._on_end:
            callback()

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the session has ended."""
        self._on_end.append(callback)

    async def _end_all(self, cause: StopCause) -> bool:
        """End running and queued executions, and wait for it; return whether one ran."""
        has_run = self.runner.run is not None
        # Those that another request is ending are waited for, too.
        executions = [*([self.runner.current] if self.runner.current else []), *self.queue, *self.queue.ending]
        # All at once: the running one must not go on while the ends of the queued ones are written.
        # Queued ones leave the queue first, or the worker would take the next of them.
        ends = (self.stop(execution, cause) for execution in reversed(executions))
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if error is not None:  # the execution has ended all the same, and so must the others and the kernel
                self._log.error("session %s: an end could not be written", self.record.id, exc_info=error)
        give_up_at = self._loop.time() + self._limits.interrupt_grace_seconds + MARGIN_SECONDS
        for execution in executions:
            await execution.wait(max(0.0, give_up_at - self._loop.time()))
        if any(not execution.record.state.finished for execution in executions):
            await self._end_by_force(executions, cause)
        return has_run

    async def _end_by_force(self, executions: Sequence[LiveExecution], cause: StopCause) -> None:
        """End executions whose worker waits for something that does not come."""
        self._log.error("session %s: its executions did not end in time; its kernel is killed", self.record.id)
        self.kernel.abandon()
        current = self.runner.current
        # Not while the worker writes the end of an execution, which would be lost.
        if self._worker is not None and current is not None and not current.finishing:
            worker, self._worker = self._worker, None
            worker.cancel()
            await asyncio.wait([worker], timeout=_CANCEL_SECONDS)
        for execution in executions:
            if not execution.finishing:
                await execution.finish(Verdict(cause.state, False, f"{cause.reason}; its kernel was given up"))

    # --- the record ---

    def _become(self, **changes: Any) -> None:
        """Change the record and publish it; the only place where it changes."""
        self.record = replace(self.record, **changes)
        self.watchers.on_record(self.record)
        if self._feed.wanted:
            self._feed.note_session(self.record)

    def note(self, **changes: Any) -> None:
        """Change fields of the record where they differ."""
        if any(getattr(self.record, name) != value for name, value in changes.items()):
            self._become(**changes)

    async def _update(self, **changes: Any) -> None:
        self._become(**changes)
        await self._store.save(self.record)

    def _rest(self, **changes: Any) -> None:
        """Note the last activity and other changes, and start the idle timer; a busy session is not idle."""
        if self._closing is not None or self._worker is not None:
            return
        self._become(last_activity_at=utc_timestamp(time.time()), **changes)
        self._timers.start_idle(self.record.idle_timeout_seconds)


def ended_error(session: Session) -> SessionEnded:
    """Return the error for using a session that has ended."""
    return SessionEnded(f"the session has ended: {session.ended_reason or 'it is being shut down'}; create a new one")
