"""Timeout that never loses a cancellation, so that the proxy can cut a connection at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def finish_within(seconds: float, operation: Awaitable[T]) -> T:
    """Return the result of an operation; if it takes too long, cancel it and wait for its end.

    Before Python 3.12, `asyncio.wait_for` returns the result as if nothing had happened if the task is cancelled just
    when the operation ends.

    Parameters
    ----------
    seconds : float
        Time that it may take.
    operation : awaitable
        The operation.

    Raises
    ------
    asyncio.TimeoutError
        If it takes longer.
    """
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
