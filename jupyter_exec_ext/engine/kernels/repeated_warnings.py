"""Rate limiter for warnings about what kernels send: the first of a kind is logged, the others are counted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

_INTERVAL_SECONDS = 60.0
_MAX_KINDS = 64


class RepeatedWarnings:
    """Logs a warning once a minute at most for each kind of it, with the number of those in between.

    A kernel can send thousands of messages a second, each of which deserves a warning.

    Parameters
    ----------
    log : Logger
        Where the warnings go.
    interval_seconds : float
        How long warnings of a kind are counted after one was logged.
    """

    def __init__(
        self, log: logging.Logger | logging.LoggerAdapter[Any], interval_seconds: float = _INTERVAL_SECONDS
    ) -> None:
        self._log = log
        self._interval_seconds = interval_seconds
        self._counts: dict[str, int] = {}  # since the last warning of each kind
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def warn(self, kind: str, message: str, *args: object) -> None:
        """Log a warning, or count it.

        Parameters
        ----------
        kind : str
            What it is about, in words: they name it when its number is logged.
        message, *args
            As `logging.Logger.warning` takes them.
        """
        if kind not in self._timers and len(self._timers) >= _MAX_KINDS:
            kind = "other warnings about kernels"
        if kind in self._timers:
            self._counts[kind] += 1
            return
        self._log.warning(message, *args)
        self._count(kind)

    def log_defect(self, kind: str) -> None:
        """Log the exception that is being handled, with its traceback, or count it."""
        if kind in self._timers:
            self._counts[kind] += 1
        else:
            self._log.exception("a defect of the server: %s", kind)
            self._count(kind)

    def _count(self, kind: str) -> None:
        self._counts[kind] = 0
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(self._interval_seconds, self._report, kind)

    def _report(self, kind: str) -> None:
        count = self._counts.pop(kind)
        del self._timers[kind]
        if count:
            self._log.warning("%s: %d more in the last %g s", kind, count, self._interval_seconds)
            self._count(kind)

    def close(self) -> None:
        """Log what was counted, and count no more."""
        for timer in self._timers.values():
            timer.cancel()
        for kind, count in self._counts.items():
            if count:
                self._log.warning("%s: %d more", kind, count)
        self._counts.clear()
        self._timers.clear()
