"""Background tasks: work that no request waits for, but the engine's shutdown does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """References to running tasks, so that none is garbage collected before its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
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
