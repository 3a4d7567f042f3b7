"""How long executions of a session may wait, for a person or for their turn, until they are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...models import ExecutionState
from ..executions.live_execution import LiveExecution
from ..executions.verdict import StopCause


class Patience:
    """One timer for each execution that waits.

    Parameters
    ----------
    end : coroutine function
        Ends an execution that waits.
    """

    def __init__(self, end: Callable[[LiveExecution, StopCause], Awaitable[None]]) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def for_turn(self, execution: LiveExecution) -> None:
        """Limit the wait of an execution that is queued now, whatever it waited for before."""
        self.over(execution)
        seconds = execution.max_queue_seconds
        if seconds is not None:
            reason = f"its turn did not come within {seconds:g} s (max_queue_seconds)"
            self.limit(execution, seconds, lambda: StopCause(ExecutionState.TIMEOUT, reason))

    def limit(self, execution: LiveExecution, seconds: float, why: Callable[[], StopCause]) -> None:
        """End an execution unless it has gone on, or is being ended, by then; only if not is `why` called."""
        self.over(execution)
        state = execution.record.state
        self._timers[execution.record.id] = self._loop.call_later(seconds, self._lose, execution, state, why)
        execution.on_end(lambda: self.over(execution))

    def over(self, execution: LiveExecution) -> None:
        """Take note that an execution does not wait any more, or for something else."""
        timer = self._timers.pop(execution.record.id, None)
        if timer is not None:
            timer.cancel()

    def _lose(self, execution: LiveExecution, state: ExecutionState, why: Callable[[], StopCause]) -> None:
        task = self._loop.create_task(self._finish(execution, state, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _finish(self, execution: LiveExecution, state: ExecutionState, why: Callable[[], StopCause]) -> None:
        if execution.record.state is state:
            await self._end(execution, why())

    async def settled(self) -> None:
        """Return once what is being ended has ended."""
        if self._ending:
            await asyncio.wait(self._ending)
