"""Output of isolated kernels' processes on its way into the server's log: hostile text, cleaned and rate-limited."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
import weakref
from collections.abc import Callable

#: Token bucket of all kernels of this process together: bytes that may be logged at once, and the refill rate.
#: At 32 bytes a second, kernels that are restarted in a loop add at most 2.8 MB a day to the log.
STOCK_BYTES = 32 * 1024
REFILL_BYTES_PER_SECOND = 32.0
_READ_BYTES = 8192
_MAX_LINE_BYTES = 1000
#: Bytes that one kernel may write into the server's log. The rest is counted.
_MAX_LOGGED_BYTES = 4 * 1024
#: End of the output that is kept, to explain why a kernel has not started.
_LAST_BYTES, _LAST_WORDS_SECONDS = 2000, 1.0
#: Size of a line in the log beside its text: time, level, the kernel's id.
_LINE_OVERHEAD_BYTES = 96


class LogBudget:
    """Token bucket of bytes that may be logged. Safe to use from any thread.

    Parameters
    ----------
    stock_bytes : int
        Bytes that may be logged at once.
    refill_bytes_per_second : float
        Refill rate of the stock.
    clock : callable
        Returns a monotonic time in seconds.
    """

    def __init__(
        self,
        stock_bytes: int = STOCK_BYTES,
        refill_bytes_per_second: float = REFILL_BYTES_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stock_bytes = stock_bytes
        self._refill_bytes_per_second = refill_bytes_per_second
        self._clock = clock
        self._available_bytes = float(stock_bytes)
        self._filled_at = clock()
        self._lock = threading.Lock()

    def spend(self, size: int) -> bool:
        """Take bytes from the stock; return False, and take none, if it has too few."""
        with self._lock:
            now = self._clock()
            refill = (now - self._filled_at) * self._refill_bytes_per_second
            self._available_bytes = min(self._stock_bytes, self._available_bytes + refill)
            self._filled_at = now
            if size > self._available_bytes:
                return False
            self._available_bytes -= size
            return True


#: Shared by all kernels of this process, since a kernel can be restarted again and again.
_BUDGET = LogBudget()


class KernelOutput:
    """Text that a kernel's process prints beside the kernel's messages.

    The log gets it line by line, without control characters, up to a limit for each kernel and one for all.

    Parameters
    ----------
    name : str
        Name of the kernel in the log.
    log : Logger
        The server's log.
    budget : LogBudget
        Limit of all kernels together.
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

    def read_in_background(self, pipe: int, stop: int | None = None) -> None:
        """Read a pipe in a thread, to its end or until another pipe, `stop`, has one; then close both."""
        threading.Thread(target=self._read, args=(pipe, stop), name="isolated-output", daemon=True).start()

    def _read(self, pipe: int, stop: int | None) -> None:
        poll = select.poll()
        for descriptor in (pipe, stop):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        try:
            while all(descriptor != stop for descriptor, _ in poll.poll()) and (data := os.read(pipe, _READ_BYTES)):
                self.add(data)
        finally:
            os.close(pipe)
            if stop is not None:
                os.close(stop)
            self.end()

    def add(self, data: bytes) -> None:
        """Add bytes; log the lines that they complete."""
        self._last = (self._last + data)[-_LAST_BYTES:]
        # After the first dropped line no other is logged, so the log has the beginning without gaps.
        if self._dropped_bytes:
            self._dropped_bytes += len(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        # Output without line ends must not grow `_rest` without a bound.
        if len(self._rest) > _MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._log_line(line)

    def _log_line(self, line: bytes) -> None:
        text = make_printable(line[:_MAX_LINE_BYTES])
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
        """Log the last line, and the number of bytes that were not logged."""
        self._ended.set()
        if self._rest:
            self._log_line(self._rest)
        # The kernel's own allowance is spent by now. The common one still bounds this line.
        if self._dropped_bytes and self._budget.spend(2 * _LINE_OVERHEAD_BYTES):
            self._log.warning("kernel %s: %d bytes more of its output are not logged", self._name, self._dropped_bytes)

    def last_words(self) -> str:
        """Return the end of the complete output; blocks for up to a second."""
        self._ended.wait(_LAST_WORDS_SECONDS)
        return "\n".join(map(make_printable, self._last.strip().split(b"\n")))


class OutputPipe:
    """Pipe for the output of one process, which a thread reads to its end.

    Parameters
    ----------
    output : KernelOutput
        Gets what comes out.

    Attributes
    ----------
    for_kernel : int
        The end for the process; open until `close_write_end`.
    """

    def __init__(self, output: KernelOutput) -> None:
        self.output = output
        read_end, self.for_kernel = os.pipe()
        stop, end_of_reading = os.pipe()
        output.read_in_background(read_end, stop)
        self._stop = weakref.finalize(self, os.close, end_of_reading)

    def close_write_end(self) -> None:
        """Close the process's end here: it has the only one to write to now."""
        if self.for_kernel >= 0:
            os.close(self.for_kernel)
            self.for_kernel = -1

    def close(self) -> None:
        """Read no more."""
        self.close_write_end()
        self._stop()


def make_printable(raw: bytes) -> str:
    """Return text without characters that control a terminal or a log."""
    text = raw.decode("utf-8", "replace").rstrip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
