"""Processes of isolated kernels: their common base, their limits, and the threads that start them and clean up.

A kernel ends with the thread that started it, not with the process (``PR_SET_PDEATHSIG`` follows the thread), and a
kernel manager may run in a thread that ends earlier. So one thread, which lives as long as this process, starts all
kernels.

If the server runs as root, the thread also protects the machine's devices. A sandbox has the machine's own
``/dev/null`` and the like, and root outside is their owner inside: it could take them away from all programs by
changing their mode. Bubblewrap can make a mount read-only, but then no device on it works. So the thread gets mounts of
its own, in which each of these devices is a read-only mount that works, and sandboxes inherit them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

from .cgroup import ControlGroup
from .kernel_output import KernelOutput
from .leftovers import remove_directory

if sys.platform == "linux":
    import resource

END_SECONDS = 10.0


class IsolatedProcess(subprocess.Popen[bytes]):
    """A process that holds an isolated kernel and ends with it. Each kind of isolation has a subclass.

    Start it in a thread that lives as long as the server: the kernel ends with that thread.
    """

    # Keeps each process until `close`: the garbage collector would otherwise call `__del__` of one that is to be ended.
    _open: ClassVar[set[IsolatedProcess]] = set()

    @property
    def kernel_pid(self) -> int | None:
        """Process id of the kernel, as the server sees it; None before the kernel has started."""
        raise NotImplementedError

    def send_to_kernel(self, signum: int) -> None:
        """Send a signal to the kernel and to what it has started in its session."""
        pid = self.kernel_pid
        if pid is None or self.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(pid, signum)

    def end(self) -> None:
        """Kill the kernel and everything it has started, wait for the end, and release the descriptors."""
        self.kill()
        try:
            self.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_itself()
        self.close()

    def _kill_itself(self) -> None:
        """Kill this process, and wait for its end.

        It blocks for `END_SECONDS` at most: a process in an uninterruptible sleep may stay for ever, and the only
        thread that starts kernels may be waiting here.
        """
        super().kill()
        with suppress(subprocess.TimeoutExpired):
            self.wait(END_SECONDS)

    def close(self) -> None:
        """Release the descriptors. Call it after the process has ended."""
        self._release()

    def _release(self) -> None:
        """Close the descriptors of a subclass."""
        self._open.discard(self)

    def __del__(self, **kwargs: Any) -> None:
        """Release the descriptors; `Popen` warns if the process has not ended."""
        self._release()
        super().__del__(**kwargs)


@dataclass(slots=True)
class IsolatedKernel:
    """A started kernel, with everything that has to be removed after its end.

    Parameters
    ----------
    process : IsolatedProcess
        The process that holds the kernel.
    group : ControlGroup or None
        The control group of the kernel's processes.
    output : KernelOutput
        Text that the process prints beside the kernel's messages.
    directories : tuple of Path
        Directories of this kernel only.
    """

    process: IsolatedProcess
    group: ControlGroup | None
    output: KernelOutput
    directories: tuple[Path, ...]

    def close(self) -> None:
        """Release the resources of a kernel whose process has ended."""
        self.process.close()
        if self.group is not None:
            self.group.remove()

    def end(self) -> None:
        """End the kernel, and remove everything that belongs to it."""
        self.process.end()
        if self.group is not None:
            self.group.remove()
        for directory in self.directories:
            remove_directory(directory)


def cap_limits(wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return resource limits, lowered to the server's own hard limits, which only root could raise."""
    if sys.platform != "linux":
        return dict(wanted)
    capped = {}
    for name, values in wanted.items():
        own = resource.getrlimit(getattr(resource, name))[1]
        # RLIM_INFINITY is -1, which `min` would take for the lowest limit.
        soft, hard = values if own == resource.RLIM_INFINITY else (min(value, own) for value in values)
        capped[name] = (soft, hard)
    return capped


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
            # The system ignores other flags while it makes a bind mount, so they need a remount.
            mount(None, device, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)


class CleanupThread:
    """Thread for cleanup on behalf of callers that can neither wait nor take a lock."""

    def __init__(self) -> None:
        # Not a `ThreadPoolExecutor`: `submit` takes a lock, which the call that the collector interrupts may hold.
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
