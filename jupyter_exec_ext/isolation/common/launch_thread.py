"""Thread that starts isolated kernels and lives as long as this process, and a thread for work after their end.

A kernel ends with the thread that started it, not with the process (``PR_SET_PDEATHSIG`` follows the thread), and a
kernel manager may run in a thread that ends earlier.

If the server runs as root, the thread also protects the machine's devices. A sandbox has the machine's own
``/dev/null`` and the like, and root outside is their owner inside: it could take them away from all programs by
changing their mode. Bubblewrap can make a mount read-only, but then no device on it works. So the thread gets mounts of
its own, in which each of these devices is a read-only mount that works, and sandboxes inherit them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

#: Devices of the machine that bubblewrap's ``--dev`` makes available.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_NOSUID, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 2, 32, 4096, 16384, 1 << 19


def in_lasting_thread(work: Callable[[], T]) -> Future[T]:
    """Run a function in the thread that lives as long as this process."""
    return _executor(os.getpid()).submit(work)


@cache
def _executor(_: int) -> ThreadPoolExecutor:
    """Return the thread of the process with this id; a forked process has lost that of its parent."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-launcher", initializer=protect_devices)


def protect_devices() -> None:
    """Give the calling thread mounts of its own with devices that cannot be changed, if it is root's.

    Without the right to do that, as in a container, root keeps the container's devices as they are.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def mount(source: str | None, target: str, flags: int) -> None:
        encoded = None if source is None else source.encode()
        check(libc.mount(encoded, target.encode(), None, ctypes.c_ulong(flags), None))

    with suppress(OSError):
        check(libc.unshare(_CLONE_NEWNS))  # of this thread only
        mount(None, "/", _MS_SLAVE | _MS_REC)  # later mounts outside appear here, too, but not the reverse
        for device in (f"/dev/{name}" for name in DEVICES):
            mount(device, device, _MS_BIND)
            mount(None, device, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)


class CleanupThread:
    """Thread for cleanup on behalf of callers that can neither wait nor take a lock."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="sandbox-cleanup", daemon=True).start()

    def add(self, work: Callable[[], None]) -> None:
        """Queue a function. The garbage collector may call this within any other call, as `SimpleQueue` allows."""
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception:  # a failed cleanup must not end the thread
                logging.getLogger(__name__).exception("could not clean up after an isolated kernel")
            del work  # it may hold a kernel


def cleanup_thread() -> CleanupThread:
    """Return the cleanup thread of this process."""
    return _cleanup_thread(os.getpid())


@cache
def _cleanup_thread(_: int) -> CleanupThread:
    return CleanupThread()
