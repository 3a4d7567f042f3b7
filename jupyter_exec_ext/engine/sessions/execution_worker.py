"""Execution worker: runs a session's queued executions one after the other, and ends them all when it must.

Its task exists only while there is something to run, so an idle session costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..concurrency import MARGIN_SECONDS
from ..executions.lifecycle import StopCause, Verdict
from ..executions.live_execution import LiveExecution
from ..kernels.session_kernel import SessionKernel
from .execution_queue import ExecutionQueue
from .session_runner import SessionRunner

_CANCEL_SECONDS = 1.0


class ExecutionWorker:
    """Worker of one session.

    Parameters
    ----------
    session_id : str
        Id of the session, for the log.
    queue : ExecutionQueue
        Executions that wait for their turn.
    runner : SessionRunner
        Runs each of them.
    kernel : SessionKernel
        Killed if an execution does not end in time.
    grace_seconds : float
        Time that interrupted code has to end.
    on_busy, on_idle : callable
        Called when the task starts, and when it ends because the queue is empty.

    Attributes
    ----------
    task : asyncio.Task or None
        The task, while there is something to run.
    """

    def __init__(
        self,
        session_id: str,
        queue: ExecutionQueue,
        runner: SessionRunner,
        kernel: SessionKernel,
        *,
        grace_seconds: float,
        on_busy: Callable[[], object],
        on_idle: Callable[[], object],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()
        self._session_id = session_id
        self._queue = queue
        self._runner = runner
        self._kernel = kernel
        self._grace_seconds = grace_seconds
        self._on_busy, self._on_idle = on_busy, on_idle
        self._log = log

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last execution ended; 0 while one runs or waits."""
        return 0.0 if self.task is not None else self._loop.time() - self._idle_since

    def submit(self, execution: LiveExecution) -> None:
        """Put a recorded execution in the queue."""
        self._queue.add(execution)
        if self.task is None:
            self.task = self._loop.create_task(self._work())

    async def _work(self) -> None:
        self._on_busy()
        try:
            while (execution := await self._queue.next()) is not None:
                await self._runner.execute(execution)
                await self._queue.abort_after(execution)
        finally:
            self._idle_since = self._loop.time()
        # Nothing is awaited since the queue was found empty, so no execution is left without a worker.
        self.task = None
        self._on_idle()

    async def stop(self, execution: LiveExecution, cause: StopCause) -> None:
        """Remove an execution from the queue, or stop it if it runs."""
        if execution is self._runner.current and self._runner.run is not None:
            self._runner.run.stop(cause)
        else:
            await self._queue.end(execution, cause)

    async def end_all(self, cause: StopCause) -> bool:
        """End running and queued executions, and wait for it; return whether one ran."""
        has_run = self._runner.run is not None
        # Those that another request is ending are waited for, too.
        executions = [*([self._runner.current] if self._runner.current else []), *self._queue, *self._queue.ending]
        # All at once: the running one must not go on while the ends of the queued ones are written.
        # Queued ones leave the queue first, or the worker would take the next of them.
        ends = (self.stop(execution, cause) for execution in reversed(executions))
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if error is not None:  # the execution has ended all the same, and so must the others and the kernel
                self._log.error("session %s: an end could not be written", self._session_id, exc_info=error)
        give_up_at = self._loop.time() + self._grace_seconds + MARGIN_SECONDS
        for execution in executions:
            await execution.wait(max(0.0, give_up_at - self._loop.time()))
        if any(not execution.record.state.finished for execution in executions):
            await self._end_by_force(executions, cause)
        return has_run

    async def _end_by_force(self, executions: Sequence[LiveExecution], cause: StopCause) -> None:
        """End executions whose worker waits for something that does not come."""
        self._log.error("session %s: its executions did not end in time; its kernel is killed", self._session_id)
        self._kernel.abandon()
        current = self._runner.current
        # Not while the worker writes the end of an execution, which would be lost.
        if self.task is not None and current is not None and not current.finishing:
            worker, self.task = self.task, None
            worker.cancel()
            await asyncio.wait([worker], timeout=_CANCEL_SECONDS)
        for execution in executions:
            if not execution.finishing:
                await execution.finish(Verdict(cause.state, False, f"{cause.reason}; its kernel was given up"))
