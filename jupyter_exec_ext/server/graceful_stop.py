"""Graceful shutdown: SIGTERM drains the server before it ends (`ExecEngine.drain_seconds`)."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType

from ..engine.engine import ExecEngine


def drain_at_sigterm(engine: ExecEngine) -> None:
    """Drain at the first SIGTERM, and then pass it on to the host; called in the event loop, after the host's start.

    A second SIGTERM goes to the host, which ends at once. Without `drain_seconds`, so does the first.
    """
    seconds, previous = engine.drain_seconds, signal.getsignal(signal.SIGTERM)
    # Python sets handlers in the main thread only; a host in another thread has none for signals.
    is_main = threading.current_thread() is threading.main_thread()
    if seconds <= 0 or not is_main or previous in (None, signal.SIG_IGN):
        return
    loop = asyncio.get_running_loop()

    async def drain() -> None:
        engine.log.warning("SIGTERM: the server is drained for at most %g s; a second SIGTERM ends it at once", seconds)
        if await engine.status.drain_to_end(seconds):
            signal.raise_signal(signal.SIGTERM)

    def start_drain(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, previous)
        # Neither the log nor the engine is to be touched here, in the middle of any line of the program.
        loop.call_soon_threadsafe(lambda: engine.background.start(drain()))

    signal.signal(signal.SIGTERM, start_drain)
