"""Cancelling by AutoGen's tokens, without AutoGen."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CancellationToken(Protocol):
    """What is used of AutoGen's `CancellationToken`; it may be cancelled from another thread."""

    def is_cancelled(self) -> bool:
        """Whether it has been cancelled."""

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call something when it is cancelled."""


def cancel_with(token: CancellationToken, task: asyncio.Task[Any]) -> None:
    """Cancel a task when the token is; tokens may be cancelled from other threads, and outlive many tasks."""
    loop, found = asyncio.get_running_loop(), weakref.ref(task)

    def cancel() -> None:
        waiting = found()
        if waiting is not None and not waiting.done():
            loop.call_soon_threadsafe(waiting.cancel)

    token.add_callback(cancel)


async def cancelled_by(token: CancellationToken | None, doing: Coroutine[Any, Any, T]) -> T:
    """Do something until it is done or the token is cancelled.

    Raises
    ------
    asyncio.CancelledError
        If the token is cancelled; if it was before, nothing is done.
    """
    if token is None:
        return await doing
    if token.is_cancelled():
        doing.close()
        raise asyncio.CancelledError
    task = asyncio.create_task(doing)
    cancel_with(token, task)
    return await task
