"""Forked kernel as a `subprocess.Popen`, the interface by which Jupyter knows a process."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import subprocess
import weakref
from contextlib import suppress

#: The return code of a kernel that outlived its parent, and so ended with nobody to tell how.
UNKNOWN_EXIT = 255


class ForkedProcess(subprocess.Popen[bytes]):
    """A process that is another's child. Its parent tells when it has ended, and how.

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
        # Whoever gives up waiting for it must not cancel it for everybody.
        self.exited.set_running_or_notify_cancel()
        self.channel = channel
        # No `__del__`: of objects that refer to each other, the garbage collector may end the socket before its owner.
        weakref.finalize(self, channel.close)

    def end(self, code: int | None) -> None:
        """Note that it has ended."""
        self.returncode = UNKNOWN_EXIT if code is None else code
        self.channel.close()
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
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
