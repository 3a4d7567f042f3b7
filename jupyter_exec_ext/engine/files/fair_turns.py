"""Fair turns: bounded concurrency in which principals take part in rotation.

Long work, such as hashing a large file, is done in short turns and queues again after each. So one principal's work
delays another's by a few turns at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
            if granted.cancelled():
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
            if not granted.done():
                self._taken[key] += 1
                granted.set_result(None)
