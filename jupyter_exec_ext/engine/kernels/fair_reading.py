"""Fair scheduling of kernels that flood output: they yield the event loop to all others.

A kernel whose messages come faster than they are read would keep the event loop busy, and ten of them the whole server.
Where such kernels take the processors, too, a server that always wants to run gets only its share of them, and every
other request waits for that. A process that rests in between gets a processor at once when something comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

_REST_FACTOR = 4
_MAX_REST_SECONDS = 0.1


class Turns:
    """Calls those who have more to do one after the other, and rests in between.

    A rest is a multiple of what the turn before it took and of how late that came, both by the clock: the less of the
    processor we get, the longer others have it. Who is alone rests only for as long as others want the processors: what
    counts is how long this process waited for one, and as much of the work. That a turn comes late because the process
    did something else, such as to hand on what came with the last one, is no reason for a rest.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._next: asyncio.TimerHandle | None = None
        self._rest_until = 0.0
        self._used_seconds = 0.0  # the processor time of this process, when the next turn was planned

    def take(self, turn: Callable[[], None]) -> None:
        """Call `turn` once, when it is its turn; it may take another one."""
        self._waiting.append(turn)
        if self._next is None:
            self._schedule()

    def _schedule(self) -> None:
        now = time.monotonic()
        due = max(now, self._rest_until)  # a rest may be over long ago
        self._used_seconds = time.process_time()
        self._next = asyncio.get_running_loop().call_later(due - now, self._call, due)

    def _call(self, due: float) -> None:
        turn = self._waiting.popleft()
        alone = not self._waiting
        began = time.thread_time()
        try:
            turn()
        finally:
            worked, passed = time.thread_time() - began, time.monotonic() - due
            if alone:
                waited = max(passed - (time.process_time() - self._used_seconds), 0.0)
                counted = min(worked, waited)
            else:
                waited, counted = max(passed - worked, 0.0), worked
            self._rest_until = time.monotonic() + min(_REST_FACTOR * (waited + counted), _MAX_REST_SECONDS)
            self._next = None
            if self._waiting:
                self._schedule()

    def close(self) -> None:
        """Drop the turns that are still waiting."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
