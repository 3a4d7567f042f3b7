"""Requests beside the code of a session, to a kernel in memory, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jupyter_exec_ext.engine.sessions.pending_kernel_requests import PendingKernelRequests
from jupyter_exec_ext.engine.sessions.session_watchers import SessionWatchers
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from tests.engine.simulation import SimulatedLoop

LIMIT_SECONDS = 10.0


class Kernel:
    """A kernel that takes messages, and notes when it is interrupted."""

    def __init__(self) -> None:
        self.kernel = self.connection = self
        self.interrupted_at: list[float] = []

    async def ensure(self) -> None:
        """Be connected."""

    def send(self, *_: Any) -> str:
        return "message"

    async def interrupt(self) -> None:
        self.interrupted_at.append(asyncio.get_running_loop().time())


def status(state: str) -> KernelMessage:
    return KernelMessage("iopub", "status", "message", {"execution_state": state})


def test_time_limit_of_a_comm_handler_begins_with_the_handler() -> None:
    kernel, notes = Kernel(), []

    def on_comm_output(message: KernelMessage, _: Mapping[str, str]) -> None:
        if message.msg_type == "stream":
            notes.append((asyncio.get_running_loop().time(), message.content["text"]))

    async def run() -> None:
        watchers = SessionWatchers()
        watchers.add(SimpleNamespace(on_comm_output=on_comm_output))
        requests = PendingKernelRequests(kernel, watchers)  # type: ignore[arg-type]
        await requests.send_comm_message("comm_msg", {}, {}, {}, max_output_bytes=1000, timeout_seconds=LIMIT_SECONDS)
        await asyncio.sleep(5 * LIMIT_SECONDS)  # while a cell runs
        requests.on_message(status("busy"))
        await asyncio.sleep(2 * LIMIT_SECONDS)
        requests.on_message(status("idle"))

    loop = SimulatedLoop(lambda: 0.0)
    loop.run_until_complete(run())
    loop.close()
    assert kernel.interrupted_at == [6 * LIMIT_SECONDS]
    assert notes == [(6 * LIMIT_SECONDS, "A widget's code was interrupted after 10 s.\n")]
