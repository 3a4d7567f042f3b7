"""Memory and processor time of a process and of all that it started, and whether they have come to rest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_LOOK_EVERY_SECONDS = 0.1
_AT_REST_SHARE = 0.1
_AT_REST_LOOKS = 2
_GIVE_UP_SECONDS = 8.0


def tree(pid: int) -> Iterator[psutil.Process]:
    """Yield a process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)


def pss_bytes(pid: int) -> int:
    """Return the memory that a process and its descendants use, with each shared page counted in shares."""
    total = 0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            total += int(process.memory_full_info().pss)
    return total


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process and its descendants have used; finer than psutil's clock ticks."""
    nanoseconds = 0
    for process in tree(pid):
        with suppress(OSError):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                with suppress(OSError):  # threads and processes end meanwhile
                    nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def settle() -> None:
    """Wait until what this process started does next to nothing: kernels that end, pools that are refilled."""
    rested, give_up_at = 0, time.monotonic() + _GIVE_UP_SECONDS
    used, looked = _used_by_others(), time.monotonic()
    while rested < _AT_REST_LOOKS and time.monotonic() < give_up_at:
        time.sleep(_LOOK_EVERY_SECONDS)
        now_used, now = _used_by_others(), time.monotonic()
        rested = rested + 1 if (now_used - used) < _AT_REST_SHARE * (now - looked) else 0
        used, looked = now_used, now


def _used_by_others() -> float:
    """Return the processor time of what this process started: looking costs it more than they use at rest."""
    return cpu_seconds(os.getpid()) - time.process_time()
