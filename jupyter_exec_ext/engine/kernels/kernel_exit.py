"""Exit of a session's kernel: asked for politely, and the processes that it leaves behind.

`death_report` explains the exit of a kernel that was not asked to.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from ...system.marked_processes import kill_marked
from ..ports import Kernel
from .kernel_connection import KernelConnection
from .process_state import is_stopped
from .watchdog import MARGIN_SECONDS, WatchdogExpired, ends_within

# A kernel that has no answer for this long will not exit politely either.
_POLITE_SECONDS = 1.0
# How long a kernel may take to exit that was asked to.
_EXIT_SECONDS = 2.5


async def ask_to_exit(kernel: Kernel, connection: KernelConnection | None, *, restart: bool) -> bool:
    """Ask a kernel to exit and wait for that; return False for one of another machine, which its host has to ask.

    Not left to the host for the others: it would read the kernel's messages without a bound. The caller has ended its
    own watch of the kernel's exit.
    """
    if await asyncio.to_thread(is_stopped, kernel.pid):
        return True  # it would not see the request
    if connection is not None and connection.answers_on_control and not await connection.answers(_POLITE_SECONDS):
        return True
    if connection is None or kernel.pid is None:
        return False
    exited = asyncio.Event()
    unwatch = kernel.watch_exit(lambda _: exited.set())
    connection.send("control", "shutdown_request", {"restart": restart})
    with suppress(asyncio.TimeoutError):  # then it is killed
        await asyncio.wait_for(exited.wait(), _EXIT_SECONDS)
    unwatch()
    return True


async def kill_kernel(kernel: Kernel, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Kill a kernel, within a bound."""
    try:
        await ends_within(MARGIN_SECONDS, kernel.kill())
    except WatchdogExpired:
        log.exception("kernel %s could not be ended", kernel.kernel_id)


async def end_left_behind(session_id: str, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """End the processes that a session's kernels have left behind. Only while none of its kernels lives."""
    for pid in await asyncio.to_thread(kill_marked, {session_id}):
        log.info("session %s: ended process %d, which its kernel had left behind", session_id, pid)
