"""An event loop without real time, and with nothing beside it, so that a test always runs the same way.

Its clock stands still while anything is left to do and then jumps to the next timer. Computing takes no time; what is
to take time asks for a delay. A job for a worker thread is done while the loop stands still, and its result comes
later. Sockets are real, but only those (ZeroMQ's ``inproc``) whose messages arrive without a thread's help.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import selectors
from collections.abc import Callable
from typing import Any

# What happens one after the other must not be a tie for the loop's heap of timers.
TICK = 1e-6
# What the calendar says when a loop's clock says 0.
EPOCH_SECONDS = 1_800_000_000.0


class _Selector(selectors.DefaultSelector):
    """Never waits, and reports what is ready in an order that does not depend on the system."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        super().__init__()
        self._sleep = sleep
        self._numbers = itertools.count()
        self._order: dict[int, int] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._order[key.fd] = next(self._numbers)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        if not ready and timeout is not None and timeout > 0:
            self._sleep(timeout)
        return sorted(ready, key=lambda item: self._order[item[0].fd])


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own.

    Parameters
    ----------
    delay : callable
        Returns how long the next job for a worker thread takes, in seconds.
    """

    def __init__(self, delay: Callable[[], float]) -> None:
        self._now = 0.0
        self._delay = delay
        self._workers = concurrent.futures.ThreadPoolExecutor(1)
        self._free_at: dict[concurrent.futures.Executor, float] = {}
        super().__init__(_Selector(self._sleep))

    def time(self) -> float:
        return self._now

    def wall_time(self) -> float:
        """Return the seconds since the epoch, to stand for `time.time`."""
        return EPOCH_SECONDS + self._now

    def close(self) -> None:
        self._workers.shutdown()
        super().close()

    def _sleep(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: concurrent.futures.Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do the work at once, while the loop stands still, and let it have taken a while."""
        outcome = (executor or self._workers).submit(func, *args)
        concurrent.futures.wait([outcome])
        at = self._now + self._delay()
        if executor is not None:
            at = self._free_at[executor] = max(at, self._free_at.get(executor, 0.0) + TICK)
        future = self.create_future()
        self.call_at(at, self._answer, future, outcome)
        return future

    def _answer(self, future: asyncio.Future[Any], outcome: concurrent.futures.Future[Any]) -> None:
        error = outcome.exception()
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome.result())
