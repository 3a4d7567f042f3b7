"""Execution queue of one session: places for new executions, their order, and the limit on their wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import QueueFull
from ...models import ExecutionState, JupyterExecutionRequest
from ..concurrency import BackgroundTasks
from ..executions.lifecycle import StopCause, Verdict
from ..executions.live_execution import LiveExecution

#: Reason of executions that were not run since one before them had failed, and its client wanted that.
ABORTED = "an earlier request of the client failed"
_WAITING = (ExecutionState.AWAITING_APPROVAL, ExecutionState.QUEUED)


class ExecutionQueue:
    """Executions that wait for their turn or for approval, first in, first out.

    Parameters
    ----------
    max_queued : int
        Number of executions that may wait at once.
    """

    def __init__(self, max_queued: int) -> None:
        self._max_queued = max_queued
        self._waiting: deque[LiveExecution] = deque()
        #: Executions that have left the queue, whose ends are being written.
        self.ending: set[LiveExecution] = set()
        self._accepting = 0
        # Executions that are being recorded, as the first or as the last time; `settled` waits for them.
        self._unsettled = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[LiveExecution]:
        return iter(self._waiting)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold a place while an execution is being recorded.

        Raises
        ------
        QueueFull
            If all places are taken.
        """
        taken = len(self._waiting) + self._accepting
        if taken >= self._max_queued:
            raise QueueFull(f"the session has {taken} queued executions, as many as it may; wait for one to end")
        # Counted at once: requests that come while this one is being recorded must not get the same place.
        self._accepting += 1
        try:
            with self._recording():
                yield
        finally:
            self._accepting -= 1

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._unsettled += 1
        self._settled.clear()
        try:
            yield
        finally:
            self._unsettled -= 1
            if not self._unsettled:
                self._settled.set()

    async def abort_after(self, ended: LiveExecution) -> None:
        """End what a client of Jupyter's own protocol has in the queue if a request of it has failed, as kernels do.

        Kernels end those of other clients, too. smolagents 1.26 is another one for each request, and sends the next one
        when it has seen the error, before the end of the failed one.
        """
        request = ended.request
        if not isinstance(request, JupyterExecutionRequest) or not request.stops_on_error:
            return
        if ended.record.state in (ExecutionState.OK, ExecutionState.CANCELLED):
            return
        client = request.header.get("session")
        for execution in [*self._waiting]:
            later = execution.request
            if isinstance(later, JupyterExecutionRequest) and later.header.get("session") == client:
                await self.end(execution, StopCause(ExecutionState.CANCELLED, ABORTED))

    def add(self, execution: LiveExecution) -> None:
        """Append a recorded execution."""
        self._waiting.append(execution)
        if not execution.awaits_approval:
            self.limit_wait(execution)

    async def next(self) -> LiveExecution | None:
        """Remove and return the first execution, once a person has approved it; None if there is none."""
        while self._waiting:
            # Later executions may build on this one, so it keeps its place until it is decided.
            if not self._waiting[0].awaits_approval:
                return self._waiting.popleft()
            await self._waiting[0].decided()
        return None

    async def end(self, execution: LiveExecution, cause: StopCause) -> None:
        """End an execution that still waits, in the queue or for a kernel."""
        if execution.record.state in _WAITING:
            if execution in self._waiting:
                self._waiting.remove(execution)
            self.ending.add(execution)
            try:
                with self._recording():
                    # It has no spool, so `finish` sets the terminal state before it waits: a second end does nothing.
                    await execution.finish(Verdict(cause.state, True, cause.reason))
            finally:
                self.ending.discard(execution)

    async def settled(self) -> None:
        """Wait until no execution is being recorded or ended."""
        await self._settled.wait()

    def limit_wait(self, execution: LiveExecution) -> None:
        """Start the timer of an execution's `max_queue_seconds`; it is ended if its turn comes later."""
        seconds = execution.max_queue_seconds
        if seconds is not None:
            loop, name = asyncio.get_running_loop(), execution.record.id
            self._timers[name] = loop.call_later(seconds, self._on_time_up, execution, seconds)
            execution.on_end(lambda: self.stop_timer(execution))

    def stop_timer(self, execution: LiveExecution) -> None:
        """Stop the timer of an execution that has ended."""
        timer = self._timers.pop(execution.record.id, None)
        if timer is not None:
            timer.cancel()

    def _on_time_up(self, execution: LiveExecution, seconds: float) -> None:
        reason = f"its turn did not come within {seconds:g} s (max_queue_seconds)"
        # An execution that runs by now is not in a waiting state, so `end` leaves it alone.
        self._tasks.start(self.end(execution, StopCause(ExecutionState.TIMEOUT, reason)))
