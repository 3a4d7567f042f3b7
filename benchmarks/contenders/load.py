"""Many sessions at once, each with the next run as soon as the last one has ended. For environments of peers, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

# Kernels start this many at once: more of them only wait for the processors.
_STARTS_AT_ONCE = 4


class Load:
    """Sessions that are there, and what sends code to some of them.

    Parameters
    ----------
    sessions : list
        Contenders with asynchronous ``run`` and ``close``.
    """

    def __init__(self, sessions: list[Any]) -> None:
        self._sessions = sessions

    @classmethod
    async def make(cls, start: Callable[[], Awaitable[Any]], number: int) -> Load:
        """Start a number of sessions."""
        return cls(await in_turns(start for _ in range(number)))

    async def spread(self, code: str, sessions: int, runs: int, expected: str) -> dict[str, Any]:
        """Run code in some of the sessions at once, and return how long that took, and each run.

        Raises
        ------
        AssertionError
            If any of the results is not the expected one.
        """
        seconds: list[float] = []

        async def one(session: Any) -> None:
            for _ in range(runs):
                began = time.perf_counter()
                text = await session.run(code)
                seconds.append(time.perf_counter() - began)
                assert text.strip() == expected, text[:200]

        began = time.perf_counter()
        await asyncio.gather(*(one(session) for session in self._sessions[:sessions]))
        return {"seconds": time.perf_counter() - began, "runs": seconds}

    async def close(self) -> None:
        """End the sessions."""
        await in_turns(session.close for session in self._sessions)


async def in_turns(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Carry calls out, a few at once, and return what they return."""
    turns = asyncio.Semaphore(_STARTS_AT_ONCE)

    async def one(call: Callable[[], Awaitable[Any]]) -> Any:
        async with turns:
            return await call()

    return list(await asyncio.gather(*(one(call) for call in calls)))
