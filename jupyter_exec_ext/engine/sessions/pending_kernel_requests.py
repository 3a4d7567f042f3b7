"""Questions to a session's kernel beside the code that it runs: completions, inspections, its history, what it is.

A kernel answers them on its shell channel, in turn with the code. So they need no place in the session's queue, and an
answer comes once the code that is before it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...errors import QueueFull, SessionEnded, Unavailable
from ...protocol.kernel_messages import KernelMessage
from ..kernels.session_kernel import SessionKernel

#: Questions of one session that wait for their answers.
MAX_QUESTIONS = 64


class PendingKernelRequests:
    """Open questions to one session's kernel.

    Parameters
    ----------
    kernel : SessionKernel
        The kernel, which may be another process for the next question.
    """

    def __init__(self, kernel: SessionKernel) -> None:
        self._kernel = kernel
        self._open: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def ask(self, msg_type: str, content: Mapping[str, Any], timeout_seconds: float) -> Mapping[str, Any]:
        """Return the content of the kernel's reply.

        Raises
        ------
        QueueFull
            If too many questions wait already.
        SessionEnded
            If the kernel ends before it has answered.
        Unavailable
            If it does not answer in time.
        KernelStartFailed, KernelStartTimeout, TooManyKernels
            If a kernel that was lost cannot be replaced.
        """
        await self._kernel.ensure()
        if len(self._open) >= MAX_QUESTIONS:
            raise QueueFull(f"{MAX_QUESTIONS} requests wait for this kernel's answers already", retry_after_seconds=1)
        assert self._kernel.connection is not None  # of `ensure`
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        msg_id = self._kernel.connection.send("shell", msg_type, content)
        self._open[msg_id] = answer
        try:
            return await self._kernel.unless_given_up(asyncio.wait_for(answer, timeout_seconds))
        except asyncio.TimeoutError:
            raise Unavailable(f"the kernel did not answer in {timeout_seconds:g} s; it may be busy") from None
        finally:
            self._open.pop(msg_id, None)

    def take_in(self, message: KernelMessage) -> bool:
        """Handle a message of the kernel; return False if it is about none of the questions."""
        answer = self._open.get(message.parent_id or "")
        if answer is None:
            return False
        if message.channel == "shell" and message.msg_type.endswith("_reply") and not answer.done():
            answer.set_result(message.content)
        return True

    def fail_all(self) -> None:
        """End all questions without an answer, since the kernel's process has ended."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(SessionEnded("the kernel ended before it had answered; ask again"))
