"""Token bucket for hostile text in the server's log: a stock of bytes that is refilled slowly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: What all isolated kernels together may write into the log at once, in bytes.
STOCK_BYTES = 32 * 1024
#: How quickly the stock is refilled.
REFILL_BYTES_PER_SECOND = 32.0


class LogBudget:
    """Bytes that may be logged, shared by all kernels of a process.

    Parameters
    ----------
    stock_bytes : int
        How much may be logged at once.
    refill_bytes_per_second : float
        How quickly the stock is refilled.
    clock : callable
        Returns the time in seconds; it must not go backwards.
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
        """Take bytes from the stock; return False, and take none, if it has too few. From any thread."""
        with self._lock:
            now = self._clock()
            refill = (now - self._filled_at) * self._refill_bytes_per_second
            self._available_bytes = min(self._stock_bytes, self._available_bytes + refill)
            self._filled_at = now
            if size > self._available_bytes:
                return False
            self._available_bytes -= size
            return True
