"""Child of another process, with the interface of `subprocess.Popen`, by which Jupyter knows a kernel's process."""

from __future__ import annotations

import concurrent.futures
import os
import select
import selectors
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..system.non_child_exit import exit_code_of

#: The return code of a process that outlived its parent: how it ended cannot be known.
UNKNOWN_EXIT = 255
_WATCH_SECONDS = 0.25


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that is another's child. Its parent reports when it has ended, and how.

    Parameters
    ----------
    channel : socket.socket
        The process has the other end, and ends itself when this one is closed: so it goes with the process that started
        it, and with this object.
    """

    # `Popen` would take it for a child of this process when the garbage collector comes.
    _child_created = False

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.args = ()
        self.pid = pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        #: How it ended, as `Popen` tells it; None if that is not known.
        self.exited: concurrent.futures.Future[int | None] = concurrent.futures.Future()
        # A caller that gives up waiting must not cancel it for all others.
        self.exited.set_running_or_notify_cancel()
        self.channel = channel
        self._word: bytes | None = None
        self._pidfd: int | None = None
        self._let_go: Callable[[], object] = lambda: None
        # No `__del__`: of objects that refer to each other, the garbage collector may end the socket before its owner.
        weakref.finalize(self, channel.close)

    def set_pid(self, pid: int, pidfd: int) -> None:
        """Set its number, which its parent may have reported as another, and a descriptor, which stays its own."""
        self.pid, self._pidfd = pid, pidfd
        self._let_go = weakref.finalize(self, os.close, pidfd)

    @property
    def is_gone(self) -> bool:
        """True if it has ended, also where its parent has not reported that yet."""
        if self.poll() is not None or self._pidfd is None:
            return self.poll() is not None
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def tell(self, line: bytes) -> None:
        """Send it what it is to be; a process that has ended is told nothing."""
        with suppress(OSError):  # whoever waits for its first word notices
            self.channel.sendall(line)

    def first_word(self, timeout_seconds: float) -> bytes:
        """Return the byte that it sends when it is ready; nothing if it has ended, or is not ready in time. Blocks."""
        if self._word is None:
            try:
                self.channel.settimeout(timeout_seconds)
                self._word = self.channel.recv(1)
            except OSError:
                self._word = b""
        return self._word

    def end(self, code: int | None) -> None:
        """Note that it has ended."""
        # In this order: `wait` reads the return code as soon as the future is done.
        self.returncode = UNKNOWN_EXIT if code is None else code
        self.channel.close()
        self._let_go()
        self.exited.set_result(code)

    def poll(self) -> int | None:
        """Return how it ended; None if it has not."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return how it ended."""
        try:
            self.exited.result(timeout)
        except concurrent.futures.TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is not None or self.pid <= 0:  # 0 would be this process and all of its group
            return
        with suppress(ProcessLookupError):
            if self._pidfd is None:
                os.kill(self.pid, sig)
            else:
                signal.pidfd_send_signal(self._pidfd, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def watch_orphans(living: dict[int, Any]) -> None:
    """Wait for the ends of processes whose parent has ended, and note them."""
    if hasattr(os, "pidfd_open"):
        _watch_descriptors(living)
        return
    while living:
        for pid in [pid for pid in living if not _exists(pid)]:
            _note_end(living, pid)
        time.sleep(_WATCH_SECONDS)


def _watch_descriptors(living: dict[int, Any]) -> None:
    with selectors.DefaultSelector() as selector:
        for pid in list(living):
            try:
                # A process of a checkpoint may be known by another number than its parent has reported.
                process = living[pid]()
                if process is None:  # nobody waits for it
                    raise ProcessLookupError
                selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, pid)
            except (OSError, OverflowError):  # it has ended, or cannot be watched
                _note_end(living, pid)
        while living:
            for key, _ in selector.select():
                selector.unregister(key.fd)
                process = living[key.data]()
                code = None if process is None else exit_code_of(process.pid, key.fd)
                os.close(key.fd)
                _note_end(living, key.data, code)


def _note_end(living: dict[int, Any], pid: int, code: int | None = None) -> None:
    process = living.pop(pid)()
    if process is not None:
        process.end(code)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
