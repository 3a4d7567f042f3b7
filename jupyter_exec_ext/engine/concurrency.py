"""Concurrency control of the engine: background tasks, a watchdog for work that hangs, and fair turns.

Long work, such as hashing a large file, is done in short turns and queues again after each. So one principal's work
delays another's by a few turns at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Work that no request waits for, but the engine's shutdown does: no task is garbage-collected before its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task, and keep the task until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout_seconds: float | None = None) -> None:
        """Wait until every task has ended, those started meanwhile included, or the time is up."""
        deadline = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
        while self._tasks:
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            if left is not None and left <= 0:
                return
            await asyncio.wait(list(self._tasks), timeout=left)


#: How much longer than its own bounds something may take before the watchdog ends it.
MARGIN_SECONDS = 10.0


class WatchdogExpired(Exception):
    """Something took longer than its own bounds should have allowed."""


async def ends_within(seconds: float, work: Awaitable[T], *, cancel: bool = True) -> T:
    """Return what `work` returns, if it ends in time; otherwise leave it behind.

    Unlike `asyncio.wait_for`, it does not wait for the cancelled work to come to its end, which may never be.

    Parameters
    ----------
    seconds : float
        Time limit of the work.
    cancel : bool
        Whether work that takes longer is cancelled; otherwise it goes on without anything waiting for it.

    Raises
    ------
    WatchdogExpired
        If it takes longer.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        # Also with `cancel=False`: that is for work which takes too long, not for a caller that is gone.
        task.cancel()
        raise
    if task.done():
        return task.result()
    if cancel:
        task.cancel()
    task.add_done_callback(_retrieve)
    raise WatchdogExpired(f"it did not end within {seconds:g} s")


async def wait_shielded(job: asyncio.Future[T]) -> T:
    """Wait for a job of a thread until it has ended, also if this task is cancelled: what it uses is then free."""
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # it was left behind, and its end has no reader


class FairTurns:
    """Limiter that grants turns to waiting keys in rotation.

    Parameters
    ----------
    at_once : int or None
        Turns at once in all; None for no bound.
    per_key : int or None
        Turns at once of one key; None for no bound.
    """

    def __init__(self, at_once: int | None = None, *, per_key: int | None = None) -> None:
        self._at_once = at_once
        self._per_key = per_key
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it until the end of the block."""
        # Queued also where there is room: keys that wait already come first.
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():  # otherwise it was granted in the same round of the loop, and is to be released
                self._forget(key, granted)
            else:
                self._release(key)
            raise
        try:
            yield
        finally:
            self._release(key)

    def _forget(self, key: str, granted: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and granted in waiting:
            waiting.remove(granted)
            if not waiting:
                del self._waiting[key]

    def _release(self, key: str) -> None:
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
        self._grant()

    def _grant(self) -> None:
        """Grant free turns; the key that has waited for longest is first, and then last."""
        while self._at_once is None or self._taken.total() < self._at_once:
            key = next(
                (key for key in self._waiting if self._per_key is None or self._taken[key] < self._per_key), None
            )
            if key is None:
                return
            waiting = self._waiting.pop(key)
            granted = waiting.popleft()
            if waiting:
                self._waiting[key] = waiting
            if not granted.done():  # a cancelled one may still be here, until its task runs
                self._taken[key] += 1
                granted.set_result(None)
