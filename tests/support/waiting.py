"""Polling until a state is reached that nothing announces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until `condition` returns something true."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while not condition():  # there is no event to wait for
        assert loop.time() < give_up_at, "it did not come to that"
        await asyncio.sleep(0.001)


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until `condition` returns something true, in a test without an event loop."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come to that"
        time.sleep(0.02)
