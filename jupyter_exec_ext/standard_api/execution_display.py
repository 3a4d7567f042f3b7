"""Execution display: shows a client the executions of a session, one after another, whoever has sent their code.

What it shows comes from the executions' logs, which are read at the client's pace. So a client that stops reading costs
no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.executions.live_execution import ExecutionHandle, LiveExecution, follow
from ..engine.sessions.execution_queue import ABORTED
from ..models import EndEvent, ExecutionState, InputRequestEvent, JupyterExecutionRequest, StateEvent
from ..protocol.records_json import event_from_json
from ..protocol.strict_json import loads_strict
from .incoming_messages import IncomingMessage
from .outgoing_messages import OutgoingMessage, make_end, make_note, make_output, make_status, request_header

#: Executions that the client has not been shown yet. Beyond, it reads too slowly to follow.
MAX_WAITING = 2000
# A kernel says at once that it has begun. One that never does must not hold back its output.
_BEGIN_SECONDS = 1.0


class ReadsTooSlowly(Exception):
    """More waits for the client than is kept for it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request for input that the client has been sent, and the execution that waits for the answer."""

    execution_id: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class _Shown:
    """An execution that is being shown.

    Parameters
    ----------
    request : IncomingMessage or None
        The message by which this client has asked for it.
    header : mapping
        The parent of all that is shown of it.
    is_silent : bool
        True if its value is not shown.
    """

    execution: ExecutionHandle
    request: IncomingMessage | None
    header: Mapping[str, Any]
    is_silent: bool


class ExecutionDisplay:
    """Display of the executions of one session for one client.

    Parameters
    ----------
    send : callable
        Sends a message, and returns when there is room for more.
    on_failure : callable
        Gets the reason if an execution could not be shown.
    log : Logger
        Gets the details of that.

    Attributes
    ----------
    prompt : Prompt or None
        The open request for input of code that this client has sent.
    """

    def __init__(
        self,
        send: Callable[[OutgoingMessage], Awaitable[None]],
        on_failure: Callable[[str], None],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.prompt: Prompt | None = None
        self._send = send
        self._on_failure = on_failure
        self._log = log
        self._requests: dict[str, IncomingMessage] = {}  # of executions that this client has asked for
        self._waiting: asyncio.Queue[ExecutionHandle] = asyncio.Queue()
        self._waiting_ids: set[str] = set()  # with the one that is being shown

    def add(self, execution: ExecutionHandle, request: IncomingMessage | None = None) -> None:
        """Show an execution when those before it were shown.

        Parameters
        ----------
        request : IncomingMessage, optional
            The message by which this client has asked for it.

        Raises
        ------
        ReadsTooSlowly
            If too many wait.
        """
        execution_id = execution.record.id
        if request is not None:
            self._requests[execution_id] = request
        if execution_id in self._waiting_ids:
            return
        if len(self._waiting_ids) >= MAX_WAITING:
            raise ReadsTooSlowly
        self._waiting_ids.add(execution_id)
        self._waiting.put_nowait(execution)

    async def run(self) -> None:
        """Show executions until this is cancelled."""
        while True:
            execution = await self._waiting.get()
            try:
                await self._show(execution)
            except Exception:  # its log may be gone; the client cannot be shown it, and the next one can
                self._log.exception("execution %s could not be shown to a client", execution.record.id)
                self._on_failure("the server failed to show an execution; its log has the details")
            finally:
                self._waiting_ids.discard(execution.record.id)

    async def _show(self, execution: ExecutionHandle) -> None:
        asked = execution.request if isinstance(execution, LiveExecution) else None
        request = self._requests.get(execution.record.id)
        if request is not None:
            header, is_silent = request.header, request.is_silent
        else:
            header = request_header(execution.record, asked)
            is_silent = isinstance(asked, JupyterExecutionRequest) and asked.is_silent
        shown = _Shown(execution, request, header, is_silent)
        async for batch in follow(execution.log):
            for entry in batch:
                if entry.type != EndEvent.type:  # of the end, the record is at hand, and the line may be long
                    await self._show_event(shown, event_from_json(loads_strict(entry.line)))
        await self._show_end(shown)

    async def _show_event(self, shown: _Shown, event: Any) -> None:
        if isinstance(event, StateEvent):
            await self._show_state(shown, event.state)
            return
        if isinstance(event, InputRequestEvent) and shown.request is None:
            return  # the one who has sent the code answers
        for message in make_output(event, shown.header, is_silent=shown.is_silent):
            if message.msg_type == "input_request":
                self.prompt = Prompt(shown.execution.record.id, message.msg_id)
            await self._send(message)

    async def _show_state(self, shown: _Shown, state: ExecutionState) -> None:
        if state is ExecutionState.AWAITING_APPROVAL:
            await self._send(make_status("busy", shown.header))
            await self._send(make_note("This code waits for a person's approval.", shown.header))
        elif state is ExecutionState.RUNNING:
            await self._send(make_status("busy", shown.header))
            execution = shown.execution
            begun = await execution.begun(_BEGIN_SECONDS) if isinstance(execution, LiveExecution) else None
            count = begun or execution.record.execution_count or 0
            if not shown.is_silent:
                content = {"code": execution.record.code, "execution_count": count}
                await self._send(OutgoingMessage("iopub", "execute_input", content, shown.header))

    async def _show_end(self, shown: _Shown) -> None:
        """Show the end, and reply to the request if it was this client's."""
        record = await shown.execution.wait()
        values = shown.execution.user_expressions if isinstance(shown.execution, LiveExecution) else {}
        messages, reply = make_end(record, shown.header, values, is_aborted=record.reason == ABORTED)
        for message in messages:
            await self._send(message)
        if self.prompt is not None and self.prompt.execution_id == record.id:
            self.prompt = None
        request = self._requests.pop(record.id, None)
        if request is not None:
            await self._send(OutgoingMessage("shell", "execute_reply", reply, request.header))
        await self._send(make_status("idle", shown.header))
