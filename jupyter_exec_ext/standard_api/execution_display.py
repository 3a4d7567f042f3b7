"""Execution display: shows a client all executions of a session, its own and others', one after another.

It reads the executions' logs at the client's pace. So a client that stops reading costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.executions.live_execution import ExecutionHandle, LiveExecution, follow
from ..engine.sessions.execution_queue import ABORTED
from ..errors import ExecError
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
    """Too many executions wait for the client."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """An open request for input that was sent to the client, and the execution that waits for the answer."""

    execution_id: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class _Request:
    """As much of a client's request to run code as its display needs; the rest may be large."""

    header: Mapping[str, str]
    is_silent: bool


@dataclass(slots=True)
class _Shown:
    """An execution that is being shown.

    Parameters
    ----------
    execution : ExecutionHandle
        The execution.
    header : mapping
        The parent of all that is shown of it.
    is_own : bool
        True if this client has asked for it.
    is_silent : bool
        True if its value is not shown.
    is_busy : bool
        True once the client was told that the kernel is busy with it.
    """

    execution: ExecutionHandle
    header: Mapping[str, Any]
    is_own: bool
    is_silent: bool
    is_busy: bool = False


class ExecutionDisplay:
    """Display of the executions of one session for one client.

    Parameters
    ----------
    send : callable
        Sends a message, and returns when there is room for more.
    log : Logger
        Gets the details if an execution cannot be shown.

    Attributes
    ----------
    prompt : Prompt or None
        The open request for input of code that this client has sent.
    """

    def __init__(
        self,
        send: Callable[[OutgoingMessage], Awaitable[None]],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.prompt: Prompt | None = None
        self._send = send
        self._log = log
        self._requests: dict[str, _Request] = {}  # by executions that this client has asked for
        self._waiting: asyncio.Queue[ExecutionHandle] = asyncio.Queue()
        self._open: dict[str, ExecutionHandle] = {}  # those that wait, and the one that is being shown

    def add(self, execution: ExecutionHandle, request: IncomingMessage | None = None) -> None:
        """Show an execution when those before it were shown.

        Parameters
        ----------
        execution : ExecutionHandle
            The execution.
        request : IncomingMessage, optional
            The message by which this client has asked for it.

        Raises
        ------
        ReadsTooSlowly
            If too many wait.
        """
        execution_id = execution.record.id
        if request is not None:
            self._requests[execution_id] = _Request(request.header, request.is_silent)
        if execution_id in self._open:
            return
        if len(self._open) >= MAX_WAITING:
            raise ReadsTooSlowly
        self._open[execution_id] = execution
        self._waiting.put_nowait(execution)

    def adopt(self, earlier: ExecutionDisplay) -> None:
        """Show the executions that the same client has asked for and that an earlier display has not shown whole."""
        self._requests = {name: request for name, request in earlier._requests.items() if name in earlier._open}
        for execution_id in self._requests:
            self.add(earlier._open[execution_id])

    async def run(self) -> None:
        """Show executions until this is cancelled."""
        while True:
            execution = await self._waiting.get()
            try:
                await self._show(execution)
            finally:
                self._open.pop(execution.record.id, None)
                self._requests.pop(execution.record.id, None)

    async def _show(self, execution: ExecutionHandle) -> None:
        asked = execution.request if isinstance(execution, LiveExecution) else None
        request = self._requests.get(execution.record.id)
        if request is not None:
            shown = _Shown(execution, request.header, True, request.is_silent)
        else:
            is_silent = isinstance(asked, JupyterExecutionRequest) and asked.is_silent
            shown = _Shown(execution, request_header(execution.record, asked), False, is_silent)
        try:
            await self._show_events(shown)
        except (ExecError, OSError, ValueError):  # its log is gone or damaged
            self._log.exception("execution %s could not be shown to a client", execution.record.id)
            await self._send(make_note("The server could not show this code's output; its log says why.", shown.header))
        await self._show_end(shown)

    async def _show_events(self, shown: _Shown) -> None:
        async for batch in follow(shown.execution.log):
            for entry in batch:
                if entry.type != EndEvent.type:  # of the end, the record is at hand, and the line may be long
                    await self._show_event(shown, event_from_json(loads_strict(entry.line)))

    async def _show_event(self, shown: _Shown, event: Any) -> None:
        if isinstance(event, StateEvent):
            await self._show_state(shown, event.state)
            return
        if isinstance(event, InputRequestEvent) and not shown.is_own:
            return  # it is for the client that has sent the code
        for message in make_output(event, shown.header, is_silent=shown.is_silent):
            if message.msg_type == "input_request":
                self.prompt = Prompt(shown.execution.record.id, message.msg_id)
            await self._send(message)

    async def _show_state(self, shown: _Shown, state: ExecutionState) -> None:
        if state is ExecutionState.AWAITING_APPROVAL:
            await self._show_busy(shown)
            await self._send(make_note("This code waits for a person's approval.", shown.header))
        elif state is ExecutionState.RUNNING:
            await self._show_busy(shown)
            execution = shown.execution
            begun = await execution.begun(_BEGIN_SECONDS) if isinstance(execution, LiveExecution) else None
            count = begun or execution.record.execution_count or 0
            if not shown.is_silent:
                content = {"code": execution.record.code, "execution_count": count}
                await self._send(OutgoingMessage("iopub", "execute_input", content, shown.header))

    async def _show_busy(self, shown: _Shown) -> None:
        if not shown.is_busy:
            shown.is_busy = True
            await self._send(make_status("busy", shown.header))

    async def _show_end(self, shown: _Shown) -> None:
        """Show the end, and reply to the request if it was this client's."""
        record = await shown.execution.wait()
        await self._show_busy(shown)  # one that ended in the queue was not shown yet
        values = shown.execution.user_expressions if isinstance(shown.execution, LiveExecution) else {}
        messages, reply = make_end(record, shown.header, values, is_aborted=record.reason == ABORTED)
        for message in messages:
            await self._send(message)
        if self.prompt is not None and self.prompt.execution_id == record.id:
            self.prompt = None
        if shown.is_own or record.id in self._requests:  # perhaps asked for again meanwhile
            await self._send(OutgoingMessage("shell", "execute_reply", reply, shown.header))
        await self._send(make_status("idle", shown.header))
