"""Live session: its record, its queue, its kernel, and how it ends.

`ExecutionWorker` takes executions out of the queue, and `SessionRunner` runs each; it waits for the kernel while the
session restarts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import SessionEnded
from ...models import Approval, ExecutionState, Session, SessionRequest, SessionState
from ...protocol.records_json import utc_timestamp
from ..access.caller_limits import SessionLimits
from ..change_feed import ChangeFeed
from ..concurrency import MARGIN_SECONDS, ends_within
from ..executions.lifecycle import StopCause
from ..executions.live_execution import LiveExecution
from ..kernels.session_kernel import SessionKernel
from ..ports import KernelLaunch, SessionFiles, SessionStore
from .execution_queue import ExecutionQueue
from .execution_worker import ExecutionWorker
from .session_late_output import SessionLateOutput
from .session_runner import SessionRunner
from .session_timers import SessionTimers

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
    request : SessionRequest
        Request that has made it.
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
    setup_code : str or None
        Code of its creator that each fresh kernel runs before the caller's; branches have it, too.
    """

    def __init__(
        self,
        record: Session,
        request: SessionRequest,
        kernel: SessionKernel,
        *,
        files: SessionFiles,
        store: SessionStore,
        late_output: SessionLateOutput,
        feed: ChangeFeed,
        limits: SessionLimits,
        setup_code: str | None,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.record = record
        self.request, self.setup_code = request, setup_code
        self.queue = ExecutionQueue(limits.max_queued_executions)
        self.kernel = kernel
        self.runner = runner = SessionRunner(
            record, kernel, files=files, late_output=late_output, limits=limits, log=log
        )
        self.watchers, self.requests = runner.watchers, runner.requests
        self._worker = ExecutionWorker(
            record.id,
            self.queue,
            runner,
            kernel,
            grace_seconds=limits.interrupt_grace_seconds,
            on_busy=partial(self._become, state=SessionState.BUSY),
            on_idle=partial(self._rest, state=SessionState.IDLE),
            log=log,
        )
        kernel.receiver, kernel.owner = runner, self
        self._files = files
        self._store = store
        self._late_output = late_output
        self._feed = feed
        self._limits = limits
        self._log = log
        self._loop = asyncio.get_running_loop()
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
    def idle_seconds(self) -> float:
        """Seconds since its last execution ended; 0 while one runs or waits."""
        return self._worker.idle_seconds

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
        self._timers.stop_idle()
        self._worker.submit(execution)

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
        await self._worker.stop(execution, cause)

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

    async def restart(
        self, launch: KernelLaunch | None = None, on_restored: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Give the session a fresh kernel, or one from a checkpoint; running and queued executions end as cancelled.

        Executions submitted meanwhile wait for the lock, and so run in the fresh kernel. With a launch, `on_restored`
        is awaited before any of them runs.

        Raises
        ------
        SessionEnded
            If the session has ended or is about to.
        Conflict
            If it is to be restored, and runs code.
        TooManyKernels, KernelStartFailed, KernelStartTimeout
            If there is no kernel.
        """
        if self._closing is not None:  # an ended record that changed would be kept as that of a live session
            raise ended_error(self.record)
        reason = "the session was restarted" if launch is None else "the session was restored to a checkpoint"
        self._timers.stop_idle()
        self._become(state=SessionState.RESTARTING)
        try:
            # The runner's revival of a kernel that was killed here waits for the lock, and then finds the fresh one.
            async with self.kernel.lock:
                if launch is not None:
                    self.runner.require_idle()  # code may have begun while its process was made
                await self._worker.end_all(StopCause(ExecutionState.CANCELLED, reason, at_once=True))
                try:
                    await self.kernel.renew(launch)
                except BaseException:
                    self.runner.note_lost(launch)
                    raise
                self.runner.note_renewed(has_state=launch is not None)
                if on_restored is not None:
                    await on_restored()
        finally:
            if self._worker.task is None:
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
            killed = await self._worker.end_all(cut)
            # Not cancelled: after half a shutdown, jupyter_client's manager can neither restart nor shut down.
            await ends_within(_SHUTDOWN_SECONDS, self.kernel.shutdown(now=now or killed), cancel=False)
        except Exception:  # of any host; the session ends all the same, and the host can still shut the kernel down
            self._log.exception("session %s: its kernel could not be shut down", self.record.id)
        tasks = [task for task in (self._worker.task, self.runner.revival) if task is not None]
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
        if self._closing is not None or self._worker.task is not None:
            return
        self._become(last_activity_at=utc_timestamp(time.time()), **changes)
        self._timers.start_idle(self.record.idle_timeout_seconds)


def ended_error(session: Session) -> SessionEnded:
    """Return the error for using a session that has ended."""
    return SessionEnded(f"the session has ended: {session.ended_reason or 'it is being shut down'}; create a new one")
