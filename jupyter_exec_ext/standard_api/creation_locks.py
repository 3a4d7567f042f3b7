"""Locks for the creation of sessions: concurrent requests of one caller for one path get the same session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ..errors import QueueFull

#: Most requests that create or wait for the session at one path.
MAX_REQUESTS = 50


@dataclass(slots=True)
class _PathLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class CreationLocks:
    """One lock for each principal and path, which exists only while requests use it."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], _PathLock] = {}

    @asynccontextmanager
    async def hold(self, principal: str, path: str) -> AsyncIterator[None]:
        """Hold the lock of a path.

        Parameters
        ----------
        principal : str
            Principal of the caller.
        path : str
            Path of the session. Sessions without a path need no lock.

        Raises
        ------
        QueueFull
            If `MAX_REQUESTS` requests hold the lock or wait for it.
        """
        if not path:
            yield
            return
        entry = self._locks.setdefault((principal, path), _PathLock())
        if entry.requests >= MAX_REQUESTS:
            raise QueueFull(f"{MAX_REQUESTS} requests wait for the session at this path", retry_after_seconds=1)
        entry.requests += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.requests -= 1
            if not entry.requests:
                del self._locks[principal, path]
