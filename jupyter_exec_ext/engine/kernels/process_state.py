"""State and memory of a kernel's processes, as the process table has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import psutil


def is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal or a debugger."""
    if pid is None:
        return False
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def memory_bytes(pid: int | None) -> int:
    """Return the memory of a process, of what it shares its part alone where the system tells; 0 if that is unknown."""
    if pid is None:
        return 0
    try:
        process = psutil.Process(pid)
        try:
            found = process.memory_full_info()
            return int(getattr(found, "pss", 0) or found.rss)
        except psutil.AccessDenied:  # what it shares is kept from us; how much it is with that is not
            return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def memory_below(pids: Collection[int]) -> dict[int, int | None]:
    """Return the memory of each process together with all below it; None for one that has ended or cannot be told."""
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile
            children.setdefault(process.ppid(), []).append(process.pid)
    return {pid: _sum_below(pid, children) for pid in pids}


def _sum_below(root: int, children: Mapping[int, Sequence[int]]) -> int | None:
    own = memory_bytes(root)
    found, waiting = {root}, [root]
    while waiting:
        # The table is not of one moment: with ids used again it may even have circles.
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return own + sum(map(memory_bytes, found - {root})) if own else None


FRESH_SECONDS = 3.0


class MemoryMeter:
    """Measures the kernels of sessions."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        #: By session and process: when it was measured, and what was found.
        self._found: dict[tuple[str, int], tuple[float, int | None]] = {}

    async def measure(self, pids: Mapping[str, int]) -> dict[str, int | None]:
        """Return what kernels use, with the processes below them, by the ids of their sessions; None if unknown.

        Parameters
        ----------
        pids : mapping
            The kernels' processes, by the ids of their sessions.
        """
        async with self._turn:
            oldest = time.monotonic() - FRESH_SECONDS
            self._found = {key: found for key, found in self._found.items() if found[0] > oldest}
            wanted = {pid for session_id, pid in pids.items() if (session_id, pid) not in self._found}
            if wanted:
                now = await asyncio.to_thread(memory_below, wanted)
                moment = time.monotonic()
                self._found |= {(sid, pid): (moment, now[pid]) for sid, pid in pids.items() if pid in wanted}
            return {session_id: self._found[session_id, pid][1] for session_id, pid in pids.items()}
