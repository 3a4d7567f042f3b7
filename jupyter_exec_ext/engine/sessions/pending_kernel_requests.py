"""Requests to a session's kernel beside the code that it runs: completions, its history, messages of widgets.

A kernel answers them on its shell channel, in turn with the code. So they need no place in the session's queue, and an
answer comes once the code that is before it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import QueueFull, SessionEnded, Unavailable
from ...protocol.kernel_messages import KernelMessage
from ...protocol.strict_json import dump_bytes
from ..kernels.session_kernel import SessionKernel
from .session_watchers import SessionWatchers

#: Requests of one session that wait for their answers, or for the end of what they have begun.
MAX_PENDING = 64
# What the kernel sends for a message of a comm, but for the comms' own messages and the status.
_OUTPUT = ("stream", "display_data", "update_display_data", "clear_output", "error")


@dataclass(slots=True)
class _CommMessage:
    """A message of a comm that the kernel handles: its sender's header, and how much output may still come."""

    header: Mapping[str, str]
    left_bytes: int
    is_cut: bool = False


class PendingKernelRequests:
    """Open requests to one session's kernel.

    Parameters
    ----------
    kernel : SessionKernel
        The kernel, which may be another process for the next request.
    watchers : SessionWatchers
        Get what the kernel sends for a message of a comm.
    """

    def __init__(self, kernel: SessionKernel, watchers: SessionWatchers) -> None:
        self._kernel = kernel
        self._watchers = watchers
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._comm_messages: dict[str, _CommMessage] = {}

    async def ask(self, msg_type: str, content: Mapping[str, Any], timeout_seconds: float) -> Mapping[str, Any]:
        """Return the content of the kernel's reply.

        Raises
        ------
        QueueFull
            If too many requests wait already.
        SessionEnded
            If the kernel ends before it has answered.
        Unavailable
            If it does not answer in time.
        KernelStartFailed, KernelStartTimeout, TooManyKernels
            If a kernel that was lost cannot be replaced.
        """
        msg_id = await self._send(msg_type, content)
        answer = self._answers[msg_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._kernel.unless_given_up(asyncio.wait_for(answer, timeout_seconds))
        except asyncio.TimeoutError:
            raise Unavailable(f"the kernel did not answer in {timeout_seconds:g} s; it may be busy") from None
        finally:
            self._answers.pop(msg_id, None)

    async def send_comm(
        self, msg_type: str, content: Mapping[str, Any], header: Mapping[str, str], *, max_output_bytes: int
    ) -> None:
        """Send a message of a comm.

        Parameters
        ----------
        header : mapping
            The parent, for watchers, of what the kernel sends in return.
        max_output_bytes : int
            How much of that is passed on.

        Raises
        ------
        QueueFull, KernelStartFailed, KernelStartTimeout, TooManyKernels, SessionEnded
            As for `ask`.
        """
        msg_id = await self._send(msg_type, content)
        self._comm_messages[msg_id] = _CommMessage(header, max_output_bytes)

    async def _send(self, msg_type: str, content: Mapping[str, Any]) -> str:
        await self._kernel.ensure()
        if len(self._answers) + len(self._comm_messages) >= MAX_PENDING:
            raise QueueFull(f"{MAX_PENDING} requests wait for this kernel's answers already", retry_after_seconds=1)
        assert self._kernel.connection is not None  # of `ensure`
        return self._kernel.connection.send("shell", msg_type, content)

    def on_message(self, message: KernelMessage) -> bool:
        """Handle a message of the kernel; return False if it belongs to none of the requests."""
        parent_id = message.parent_id or ""
        if (comm_message := self._comm_messages.get(parent_id)) is not None:
            if message.channel == "iopub":
                self._pass_on(message, parent_id, comm_message)
            return True
        if (answer := self._answers.get(parent_id)) is not None:
            if message.channel == "shell" and message.msg_type.endswith("_reply") and not answer.done():
                answer.set_result(message.content)
            return True
        return False

    def _pass_on(self, message: KernelMessage, parent_id: str, comm_message: _CommMessage) -> None:
        if message.msg_type == "status":
            if message.content.get("execution_state") == "idle":
                del self._comm_messages[parent_id]
        elif message.msg_type in _OUTPUT or message.msg_type.startswith("comm_"):
            comm_message.left_bytes -= len(dump_bytes(message.content))
            if comm_message.left_bytes < 0:
                if comm_message.is_cut:
                    return
                comm_message.is_cut = True
                content = {"name": "stderr", "text": "[the rest of a widget's output was left out]\n"}
                message = KernelMessage("iopub", "stream", parent_id, content)
        else:
            return
        self._watchers.on_comm_output(message, comm_message.header)

    def fail_all(self) -> None:
        """End all requests without an answer, since the kernel's process has ended."""
        self._comm_messages.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(SessionEnded("the kernel ended before it had answered; ask again"))
