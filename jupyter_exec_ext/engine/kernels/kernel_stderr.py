"""Standard error of a kernel: passed on to the server's own, and its end kept for the error of a failed start.

A pipe that the event loop reads. Where the server's standard error takes nothing at the moment, what a kernel writes is
dropped: neither the server nor a kernel waits for the reader of the server's log.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from contextlib import suppress

from .death_report import plain_text

_KEPT_BYTES = 2000
# PIPE_BUF: this much can be written without waiting where `select` reports that there is room.
_READ_BYTES = 4096
_MAX_READS_PER_TURN = 16


class KernelStderr:
    """A pipe for the standard error of one kernel process; closed by `close`, or once its last writer has ended.

    Attributes
    ----------
    for_kernel : int
        The descriptor that the kernel is to get. It is open until `release_to_kernel`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_end, self.for_kernel = os.pipe()
        self._kept = b""
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._read_some)

    @staticmethod
    def is_possible() -> bool:
        """Return whether this system's event loops can read pipes."""
        return sys.platform != "win32"

    def release_to_kernel(self) -> None:
        """Close what the kernel has got: it has the only descriptors to write to now."""
        if self.for_kernel >= 0:
            os.close(self.for_kernel)
            self.for_kernel = -1

    @property
    def last_words(self) -> str:
        """The end of what was written so far, as plain text."""
        self._read_some()
        return plain_text(self._kept)

    def close(self) -> None:
        """Pass on what there is, and read no more."""
        self.release_to_kernel()
        self._read_some()
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1

    def _read_some(self) -> None:
        for _ in range(_MAX_READS_PER_TURN):
            if self._read_end < 0:
                return
            try:
                data = os.read(self._read_end, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._read_end)
                os.close(self._read_end)
                self._read_end = -1
                return
            self._kept = (self._kept + data)[-_KEPT_BYTES:]
            _pass_on(data)


def _pass_on(data: bytes) -> None:
    with suppress(OSError, ValueError):  # the server has no standard error, or its reader has ended
        if select.select((), (2,), (), 0)[1]:
            os.write(2, data)
