"""Starts sandboxes from one thread that lives as long as this process, and passes on what they print.

A sandbox ends with the thread that started it, not with the process (``PR_SET_PDEATHSIG`` follows the thread). A kernel
manager may run in a thread that ends earlier.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import TypeVar

from .devices import keep_devices
from .log_rate_limiter import LogBudget

T = TypeVar("T")

_READ_BYTES = 8192
_MAX_LINE_BYTES = 1000
#: What one kernel may write into the server's log. The rest is counted.
_MAX_LOGGED_BYTES = 4 * 1024
#: What is kept of it to tell why a kernel has not started.
_LAST_BYTES, _LAST_WORDS_SECONDS = 2000, 1.0
#: What a line in the log takes beside its text: time, level, the kernel's id.
_LINE_OVERHEAD_BYTES = 96
#: Shared by all kernels of this process, however many are started one after the other.
_BUDGET = LogBudget()


def in_lasting_thread(work: Callable[[], T]) -> Future[T]:
    """Run something in the thread that lives as long as this process."""
    return _executor(os.getpid()).submit(work)


@cache
def _executor(_: int) -> ThreadPoolExecutor:
    """Return the thread of the process with this id; one that was forked has lost that of its parent."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-launcher", initializer=keep_devices)


class Afterwards:
    """Does what is left to do, in a thread of its own, for those that cannot wait nor take a lock."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._do, name="sandbox-afterwards", daemon=True).start()

    def add(self, work: Callable[[], None]) -> None:
        """Have something done. The garbage collector, which can be at work within any other call, may call this."""
        self._work.put(work)

    def _do(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception:
                logging.getLogger(__name__).exception("what a kernel has left behind could not be removed")
            del work


def afterwards() -> Afterwards:
    """Return this process's."""
    return _afterwards(os.getpid())


@cache
def _afterwards(_: int) -> Afterwards:
    return Afterwards()


class SandboxOutput:
    """What a sandbox prints outside of its kernel's messages, on its way into the server's log.

    It is hostile text: it comes out line by line, without control characters, and only so much of it. A kernel can be
    restarted again and again, so there is a budget for all kernels beside the bound for each.

    Parameters
    ----------
    name : str
        Which kernel it is.
    log : Logger
        Where the text goes.
    budget : LogBudget
        What all kernels together may log.
    """

    def __init__(
        self,
        name: str,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
        budget: LogBudget = _BUDGET,
    ) -> None:
        self._name = name
        self._log = log
        self._budget = budget
        self._rest = b""
        self._logged_bytes = 0
        self._dropped_bytes = 0
        self._last = b""
        self._ended = threading.Event()

    def take(self, data: bytes) -> None:
        """Take what has come."""
        self._last = (self._last + data)[-_LAST_BYTES:]
        if self._dropped_bytes:
            self._dropped_bytes += len(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._log_line(line)

    def _log_line(self, line: bytes) -> None:
        text = printable(line[:_MAX_LINE_BYTES])
        if not text and not self._dropped_bytes:
            return
        size = len(text.encode()) + _LINE_OVERHEAD_BYTES
        has_room = not self._dropped_bytes and self._logged_bytes + size <= _MAX_LOGGED_BYTES
        if not has_room or not self._budget.spend(size):
            self._dropped_bytes += len(line) + 1
            return
        self._logged_bytes += size
        self._log.info("kernel %s: %s", self._name, text)

    def end(self) -> None:
        """Note that there will be no more."""
        self._ended.set()
        if self._rest:
            self._log_line(self._rest)
        if self._dropped_bytes and self._budget.spend(2 * _LINE_OVERHEAD_BYTES):
            self._log.warning("kernel %s: %d bytes more of its output are not logged", self._name, self._dropped_bytes)

    def last_words(self) -> str:
        """Return the end of the output, once it is all there; blocks for up to a second."""
        self._ended.wait(_LAST_WORDS_SECONDS)
        return "\n".join(map(printable, self._last.strip().split(b"\n")))


def printable(raw: bytes) -> str:
    """Return text that can do nothing to a terminal or a log."""
    text = raw.decode("utf-8", "replace").rstrip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class OutputReader:
    """Reads the pipes of all sandboxes in one thread, so that none of them waits for a reader."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._coming: list[tuple[int, SandboxOutput]] = []
        threading.Thread(target=self._work, name="sandbox-output", daemon=True).start()

    def read(self, pipe: int, output: SandboxOutput) -> None:
        """Read a pipe to its end, and close it."""
        self._coming.append((pipe, output))
        self._wake.send(b"1")

    def _work(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._waker.recv(_READ_BYTES)
                    while self._coming:
                        pipe, output = self._coming.pop()
                        self._selector.register(pipe, selectors.EVENT_READ, output)
                    continue
                data = os.read(key.fd, _READ_BYTES)
                if data:
                    key.data.take(data)
                else:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    key.data.end()


@cache
def _reader(_: int) -> OutputReader:
    return OutputReader()


def read_output(pipe: int, output: SandboxOutput) -> None:
    """Pass on what comes out of a pipe, in the background, until it ends."""
    _reader(os.getpid()).read(pipe, output)
