"""Cancellation by AutoGen's tokens, without importing AutoGen."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CancellationToken(Protocol):
    """Interface of AutoGen's `CancellationToken` as executors use it; another thread may cancel it."""

    def is_cancelled(self) -> bool:
        """Return whether it has been cancelled."""

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when it is cancelled."""


async def cancelled_by(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine until it ends or the token is cancelled.

    Raises
    ------
    asyncio.CancelledError
        If the token is cancelled; a token that is cancelled already prevents the start.
    """
    if token is None:
        return await work
    if token.is_cancelled():
        work.close()  # or Python warns that it was never awaited
        raise asyncio.CancelledError
    task = asyncio.create_task(work)
    # A token outlives many tasks and keeps its callbacks, so these must not keep the tasks.
    loop, found = asyncio.get_running_loop(), weakref.ref(task)

    def cancel() -> None:
        waiting = found()
        if waiting is not None and not waiting.done():
            loop.call_soon_threadsafe(waiting.cancel)

    token.add_callback(cancel)
    return await task
