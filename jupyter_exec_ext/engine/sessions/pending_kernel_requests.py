"""Pending requests to a session's kernel, other than code: completions, history, comm messages of widgets.

The kernel's shell channel orders them with the code. So they bypass the session's queue, and a reply comes after the
code before it has ended.
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

#: Most requests of one session that wait for replies, together with comm messages whose handlers run.
MAX_PENDING = 64
# Types of output of a comm's handler.
_OUTPUT_TYPES = ("stream", "display_data", "update_display_data", "clear_output", "error")


@dataclass(slots=True)
class _OutputBudget:
    """Byte cap on output of comms: a note replaces the first message beyond it, and later ones are dropped."""

    left_bytes: int
    is_spent: bool = False

    def limit_message(self, message: KernelMessage) -> KernelMessage | None:
        """Return the message, or a note if it exceeds the cap, or None for later ones."""
        self.left_bytes -= len(dump_bytes(message.content)) + len(dump_bytes(message.metadata))
        if self.left_bytes >= 0:
            return message
        if self.is_spent:
            return None
        self.is_spent = True
        return _make_note(message.parent_id, "[the rest of a widget's output was left out]\n")


@dataclass(slots=True)
class _CommMessage:
    """Comm message whose handler has not ended; its `deadline` is set while the handler runs."""

    header: Mapping[str, str]
    budget: _OutputBudget
    timeout_seconds: float
    deadline: asyncio.TimerHandle | None = None


class PendingKernelRequests:
    """Pending requests to one session's kernel.

    Parameters
    ----------
    kernel : SessionKernel
        The kernel. A restart replaces its process.
    watchers : SessionWatchers
        Receivers of comm messages and of their handlers' output.
    """

    def __init__(self, kernel: SessionKernel, watchers: SessionWatchers) -> None:
        self._kernel = kernel
        self._watchers = watchers
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._comm_messages: dict[str, _CommMessage] = {}
        self._code_budget = _OutputBudget(0)
        self._tasks = BackgroundTasks()

    async def send_request(
        self, msg_type: str, content: Mapping[str, Any], timeout_seconds: float, *, channel: str = "shell"
    ) -> Mapping[str, Any]:
        """Send a request, and wait for the kernel's reply.

        Parameters
        ----------
        msg_type : str
            Type of the request.
        content : mapping
            Content of the request.
        timeout_seconds : float
            Timeout of the reply.
        channel : str
            ``shell`` or ``control``.

        Returns
        -------
        mapping
            Content of the reply.

        Raises
        ------
        QueueFull
            If `MAX_PENDING` requests wait already.
        SessionEnded
            If the kernel ends before it replies.
        Unavailable
            If the kernel does not reply in time.
        KernelStartFailed, KernelStartTimeout, TooManyKernels
            If a lost kernel cannot be replaced.
        """
        await self._kernel.ensure()
        return await self.ask(msg_type, content, timeout_seconds, channel=channel)

    async def ask(
        self, msg_type: str, content: Mapping[str, Any], timeout_seconds: float, *, channel: str = "shell"
    ) -> Mapping[str, Any]:
        """Send a request to the present kernel, which is connected; see `send_request`."""
        msg_id = self._send_message(channel, msg_type, content)
        answer = self._answers[msg_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._kernel.unless_given_up(asyncio.wait_for(answer, timeout_seconds))
        except asyncio.TimeoutError:
            raise Unavailable(f"the kernel did not reply in {timeout_seconds:g} s; it may be busy") from None
        finally:
            self._answers.pop(msg_id, None)

    async def send_comm_message(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        header: Mapping[str, str],
        *,
        max_output_bytes: int,
        timeout_seconds: float,
    ) -> None:
        """Send a comm message.

        Parameters
        ----------
        msg_type : str
            Type of the message.
        content : mapping
            Content of the message.
        metadata : mapping
            Metadata of the message.
        header : mapping
            Parent header, for watchers, of the handler's output.
        max_output_bytes : int
            Cap on the handler's output.
        timeout_seconds : float
            Time after which the handler is interrupted, from its beginning.

        Raises
        ------
        QueueFull, KernelStartFailed, KernelStartTimeout, TooManyKernels, SessionEnded
            As for `send_request`.
        """
        await self._kernel.ensure()
        msg_id = self._send_message("shell", msg_type, content, metadata)
        self._comm_messages[msg_id] = _CommMessage(header, _OutputBudget(max_output_bytes), timeout_seconds)

    def _send_message(
        self, channel: str, msg_type: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> str:
        if len(self._answers) + len(self._comm_messages) >= MAX_PENDING:
            raise QueueFull(f"{MAX_PENDING} requests to this kernel wait for replies already", retry_after_seconds=1)
        assert self._kernel.connection is not None
        return self._kernel.connection.send(channel, msg_type, content, metadata)

    def _on_deadline(self, msg_id: str) -> None:
        comm_message = self._comm_messages[msg_id]
        text = f"A widget's code was interrupted after {comm_message.timeout_seconds:g} s.\n"
        self._watchers.on_comm_output(_make_note(msg_id, text), comm_message.header)
        self._tasks.start(self.interrupt())

    async def interrupt(self) -> None:
        """Interrupt the handler of a comm message, if one runs."""
        kernel = self._kernel.kernel
        if kernel is not None and any(each.deadline is not None for each in self._comm_messages.values()):
            await kernel.interrupt()

    # --- messages of the kernel ---

    def renew_budget(self, max_output_bytes: int) -> None:
        """Set the byte cap on comm messages of the code that begins to run.

        Parameters
        ----------
        max_output_bytes : int
            The cap.
        """
        self._code_budget = _OutputBudget(max_output_bytes)

    def on_message(self, message: KernelMessage) -> bool:
        """Handle a message of the kernel.

        Parameters
        ----------
        message : KernelMessage
            The message.

        Returns
        -------
        bool
            False if the message belongs to neither a pending request nor a comm.
        """
        parent_id = message.parent_id or ""
        if (comm_message := self._comm_messages.get(parent_id)) is not None:
            if message.channel == "iopub":
                self._forward_comm_output(message, parent_id, comm_message)
            return True
        if (answer := self._answers.get(parent_id)) is not None:
            if message.channel in ("shell", "control") and message.msg_type.endswith("_reply") and not answer.done():
                answer.set_result(message.content)
            return True
        if message.channel == "iopub" and message.msg_type.startswith(
            "comm_"
        ):  # caused by code, and not by a comm's handler
            self._notify_watchers(self._code_budget.limit_message(message), {})
            return True
        return False

    def _forward_comm_output(self, message: KernelMessage, parent_id: str, comm_message: _CommMessage) -> None:
        state = message.content.get("execution_state") if message.msg_type == "status" else None
        if state == "busy" and comm_message.deadline is None:
            # Not from the sending on: the message may wait in the kernel for the end of other code.
            comm_message.deadline = asyncio.get_running_loop().call_later(
                comm_message.timeout_seconds, self._on_deadline, parent_id
            )
            self._watchers.on_comm_output(_make_status(parent_id, "busy"), comm_message.header)
        elif state == "idle":
            self._finish_comm_message(parent_id)
        elif message.msg_type in _OUTPUT_TYPES or message.msg_type.startswith("comm_"):
            self._notify_watchers(comm_message.budget.limit_message(message), comm_message.header)

    def _notify_watchers(self, message: KernelMessage | None, header: Mapping[str, str]) -> None:
        if message is not None:
            self._watchers.on_comm_output(message, header)

    def _finish_comm_message(self, msg_id: str) -> None:
        comm_message = self._comm_messages.pop(msg_id)
        if comm_message.deadline is not None:
            comm_message.deadline.cancel()
        self._watchers.on_comm_output(_make_status(msg_id, "idle"), comm_message.header)

    def fail_all(self) -> None:
        """Fail all pending requests, since the kernel's process has ended."""
        for msg_id in [*self._comm_messages]:
            self._finish_comm_message(msg_id)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(SessionEnded("the kernel ended before it replied; send the request again"))


def _make_note(parent_id: str | None, text: str) -> KernelMessage:
    return KernelMessage("iopub", "stream", parent_id, {"name": "stderr", "text": text})


def _make_status(parent_id: str, state: str) -> KernelMessage:
    return KernelMessage("iopub", "status", parent_id, {"execution_state": state})
