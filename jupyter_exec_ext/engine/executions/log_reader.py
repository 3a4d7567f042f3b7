"""Reading an execution's event log: everything from a cursor to the end, at the reader's own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from ..ports import EventLog, LogEntry

_ENTRIES_PER_READ = 256


async def follow(
    log: EventLog, after: int = 0, *, heartbeat_seconds: float | None = None
) -> AsyncIterator[Sequence[LogEntry]]:
    """Yield the entries that follow number `after`, in batches, until the log's last.

    Parameters
    ----------
    heartbeat_seconds : float, optional
        Yield an empty batch when nothing came for this long, so that the reader can say that it is alive.
    """
    while True:
        batch = await log.read(after, _ENTRIES_PER_READ)
        if batch:
            after = batch[-1].seq
            yield batch
        elif log.closed:
            return
        elif not await _changed(log, after, heartbeat_seconds):
            yield ()


async def _changed(log: EventLog, after: int, timeout_seconds: float | None) -> bool:
    """Wait for news; return False when the time is up first."""
    if timeout_seconds is None:
        await log.changed(after)
        return True
    try:
        await asyncio.wait_for(log.changed(after), timeout_seconds)
    except asyncio.TimeoutError:
        return False
    return True
