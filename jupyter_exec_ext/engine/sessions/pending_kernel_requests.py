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
from ..concurrency import BackgroundTasks
from ..kernels.session_kernel import SessionKernel
from .session_watchers import SessionWatchers

#: Requests of one session that wait for their answers, or for the end of their comm message's handler.
MAX_PENDING = 64
# Types of output that a handler of a comm's messages can cause.
_OUTPUT = ("stream", "display_data", "update_display_data", "clear_output", "error")


@dataclass(slots=True)
class _OutputBudget:
    """Bytes that comms may still send to clients. A note stands for the first message beyond; the rest is dropped."""

    left_bytes: int
    is_spent: bool = False

    def limit(self, message: KernelMessage) -> KernelMessage | None:
        """Return the message, a note in its place, or None."""
        self.left_bytes -= len(dump_bytes(message.content)) + len(dump_bytes(message.metadata))
        if self.left_bytes >= 0:
            return message
        if self.is_spent:
            return None
        self.is_spent = True
        return _note(message.parent_id, "[the rest of a widget's output was left out]\n")


@dataclass(slots=True)
class _CommMessage:
    """A message of a comm that the kernel handles."""

    header: Mapping[str, str]
    budget: _OutputBudget
    deadline: asyncio.TimerHandle
    is_busy: bool = False


class PendingKernelRequests:
    """Open requests to one session's kernel.

    Parameters
    ----------
    kernel : SessionKernel
        The kernel, which may be another process for the next request.
    watchers : SessionWatchers
        Get the messages of comms, and what their handlers print.
    """

    def __init__(self, kernel: SessionKernel, watchers: SessionWatchers) -> None:
        self._kernel = kernel
        self._watchers = watchers
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._comm_messages: dict[str, _CommMessage] = {}
        self._code_budget = _OutputBudget(0)
        self._tasks = BackgroundTasks()

    async def ask(
        self, msg_type: str, content: Mapping[str, Any], timeout_seconds: float, *, channel: str = "shell"
    ) -> Mapping[str, Any]:
        """Return the content of the kernel's reply.

        Parameters
        ----------
        msg_type : str
            Type of the request.
        content : mapping
            Its content.
        timeout_seconds : float
            Longest wait for the reply.
        channel : str
            ``shell`` or ``control``.

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
        msg_id = await self._send(channel, msg_type, content)
        answer = self._answers[msg_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._kernel.unless_given_up(asyncio.wait_for(answer, timeout_seconds))
        except asyncio.TimeoutError:
            raise Unavailable(f"the kernel did not answer in {timeout_seconds:g} s; it may be busy") from None
        finally:
            self._answers.pop(msg_id, None)

    async def send_comm(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        header: Mapping[str, str],
        *,
        max_output_bytes: int,
        timeout_seconds: float,
    ) -> None:
        """Send a message of a comm.

        Parameters
        ----------
        msg_type : str
            Type of the message.
        content, metadata : mapping
            Its content and metadata.
        header : mapping
            The parent, for watchers, of all that the kernel sends in return.
        max_output_bytes : int
            Cap on that.
        timeout_seconds : float
            Time after which its handler is interrupted.

        Raises
        ------
        QueueFull, KernelStartFailed, KernelStartTimeout, TooManyKernels, SessionEnded
            As for `ask`.
        """
        msg_id = await self._send("shell", msg_type, content, metadata)
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(timeout_seconds, self._on_time_up, msg_id, timeout_seconds)
        self._comm_messages[msg_id] = _CommMessage(header, _OutputBudget(max_output_bytes), deadline)

    async def _send(
        self, channel: str, msg_type: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> str:
        await self._kernel.ensure()
        if len(self._answers) + len(self._comm_messages) >= MAX_PENDING:
            raise QueueFull(f"{MAX_PENDING} requests wait for this kernel's answers already", retry_after_seconds=1)
        assert self._kernel.connection is not None  # of `ensure`
        return self._kernel.connection.send(channel, msg_type, content, metadata)

    def _on_time_up(self, msg_id: str, timeout_seconds: float) -> None:
        comm_message = self._comm_messages[msg_id]
        text = f"A widget's code was interrupted after {timeout_seconds:g} s.\n"
        self._watchers.on_comm_output(_note(msg_id, text), comm_message.header)
        self._tasks.start(self.interrupt())

    async def interrupt(self) -> None:
        """Interrupt the handler of a comm's message, if the kernel runs one."""
        kernel = self._kernel.kernel
        if kernel is not None and any(each.is_busy for each in self._comm_messages.values()):
            await kernel.interrupt()

    # --- messages of the kernel ---

    def renew_budget(self, max_output_bytes: int) -> None:
        """Let code that begins to run send so much to comms."""
        self._code_budget = _OutputBudget(max_output_bytes)

    def on_message(self, message: KernelMessage) -> bool:
        """Handle a message of the kernel; return False if it belongs to no request and no comm."""
        parent_id = message.parent_id or ""
        if (comm_message := self._comm_messages.get(parent_id)) is not None:
            if message.channel == "iopub":
                self._pass_on(message, parent_id, comm_message)
            return True
        if (answer := self._answers.get(parent_id)) is not None:
            if message.channel in ("shell", "control") and message.msg_type.endswith("_reply") and not answer.done():
                answer.set_result(message.content)
            return True
        if message.channel == "iopub" and message.msg_type.startswith("comm_"):  # of code, and not of a comm's handler
            self._show(self._code_budget.limit(message), {})
            return True
        return False

    def _pass_on(self, message: KernelMessage, parent_id: str, comm_message: _CommMessage) -> None:
        state = message.content.get("execution_state") if message.msg_type == "status" else None
        if state == "busy" and not comm_message.is_busy:
            comm_message.is_busy = True
            self._watchers.on_comm_output(_status(parent_id, "busy"), comm_message.header)
        elif state == "idle":
            self._end(parent_id)
        elif message.msg_type in _OUTPUT or message.msg_type.startswith("comm_"):
            self._show(comm_message.budget.limit(message), comm_message.header)

    def _show(self, message: KernelMessage | None, header: Mapping[str, str]) -> None:
        if message is not None:
            self._watchers.on_comm_output(message, header)

    def _end(self, msg_id: str) -> None:
        comm_message = self._comm_messages.pop(msg_id)
        comm_message.deadline.cancel()
        self._watchers.on_comm_output(_status(msg_id, "idle"), comm_message.header)

    def fail_all(self) -> None:
        """End all requests without an answer, since the kernel's process has ended."""
        for msg_id in [*self._comm_messages]:
            self._end(msg_id)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(SessionEnded("the kernel ended before it had answered; ask again"))


def _note(parent_id: str | None, text: str) -> KernelMessage:
    return KernelMessage("iopub", "stream", parent_id, {"name": "stderr", "text": text})


def _status(parent_id: str, state: str) -> KernelMessage:
    return KernelMessage("iopub", "status", parent_id, {"execution_state": state})
