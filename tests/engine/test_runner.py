"""What a run makes of messages and exits that come in an order no real kernel can be asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from jupyter_exec_ext.engine.ports import KernelExit
from jupyter_exec_ext.engine.runner import KernelRun
from jupyter_exec_ext.models import ErrorEvent, ExecutionState, OutputEvent, StreamEvent
from jupyter_exec_ext.wire.kernel import KernelMessage


class QuietConnection:
    """A connection to a kernel that is told things and says nothing."""

    reading = False

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
        self.sent.set()
        return "msg-1"


async def test_what_a_dead_kernel_had_published_stands_before_its_death() -> None:
    events: list[OutputEvent] = []
    connection: Any = QuietConnection()
    kernel: Any = None  # a kernel that is dead is neither interrupted nor killed
    run = KernelRun(
        kernel,
        connection,
        events.append,
        interrupt_grace_seconds=1,
        settle_seconds=1,
        log=logging.getLogger(__name__),
    )
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_exit(KernelExit(signal="SIGKILL"))
    last_words = KernelMessage("iopub", "stream", "msg-1", {"name": "stdout", "text": "last words"})
    asyncio.get_running_loop().call_later(0.01, run.on_message, last_words)
    verdict = await running
    assert (verdict.state, verdict.preserved) == (ExecutionState.KERNEL_DIED, False)
    assert events == [StreamEvent("stdout", "last words"), ErrorEvent("KernelDied", "the kernel was ended by SIGKILL")]
