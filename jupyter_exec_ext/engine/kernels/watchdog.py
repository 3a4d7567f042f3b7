"""Watchdog: a last timeout for work that has bounds of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

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
        How long the work may take.
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
        task.cancel()
        raise
    if task.done():
        return task.result()
    if cancel:
        task.cancel()
    task.add_done_callback(_retrieve)
    raise WatchdogExpired(f"it did not end within {seconds:g} s")


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # it was left behind, and its end has no reader
