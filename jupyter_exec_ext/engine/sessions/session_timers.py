"""Timers of one session: they end it after its idle time, and at its maximum age."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class SessionTimers:
    """Timers that end a session.

    Parameters
    ----------
    end : callable
        Begins to end the session; gets the reason.
    """

    def __init__(self, end: Callable[[str], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._idle: asyncio.TimerHandle | None = None
        self._life: asyncio.TimerHandle | None = None

    def start_life(self, seconds: float | None) -> None:
        """Let the session live so long; None for no limit."""
        if seconds is not None:
            reason = f"its policy lets it live for {seconds:g} s (max_session_seconds)"
            self._life = self._loop.call_later(seconds, self._end, reason)

    def start_idle(self, seconds: float) -> None:
        """Start the idle time anew; 0 for no limit."""
        self.stop_idle()
        if seconds > 0:
            self._idle = self._loop.call_later(seconds, self._end, f"idle for {seconds:g} s")

    def stop_idle(self) -> None:
        """Stop the idle time, since the session is in use."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def close(self) -> None:
        """Stop both timers."""
        self.stop_idle()
        if self._life is not None:
            self._life.cancel()
