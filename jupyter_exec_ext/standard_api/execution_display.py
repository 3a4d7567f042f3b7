"""Display of a session's executions for one client: reads their logs and sends their messages.

It sends the executions of all clients, one after another. It reads the logs at the client's pace (backpressure), so a
client that stops reading costs no memory.
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
from .comm_outbox import Position
from .incoming_messages import IncomingMessage
from .outgoing_messages import OutgoingMessage, make_end, make_note, make_output, make_request_header, make_status

#: Most executions that wait to be sent to one client.
MAX_WAITING = 2000
# Wait for the kernel's `execute_input`, which has the execution count. A kernel that never sends it still shows output.
_BEGIN_SECONDS = 1.0


class ClientTooSlow(Exception):
    """More than `MAX_WAITING` executions wait to be sent to the client."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Input request that was sent to the client, and the execution that waits for the answer."""

    execution_id: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class _Request:
    """Header and flag of a client's request to run code. The rest may be large, so it is not kept."""

    header: Mapping[str, str]
    is_silent: bool


@dataclass(slots=True)
class _DisplayedExecution:
    """Execution that is being sent to the client.

    Parameters
    ----------
    execution : ExecutionHandle
        The execution.
    header : mapping
        Parent header of its messages.
    is_own : bool
        True if this client requested it.
    is_silent : bool
        True if its value is not sent.
    is_busy : bool
        True once the busy status was sent.
    """

    execution: ExecutionHandle
    header: Mapping[str, Any]
    is_own: bool
    is_silent: bool
    is_busy: bool = False


class ExecutionDisplay:
    """Sender of the messages of a session's executions to one client.

    Parameters
    ----------
    send : callable
        Coroutine function that sends a message, and returns when there is room for more.
    send_comms : callable
        Coroutine function that sends the comm messages which are due, before an event and after the last one.
    log : Logger
        Logger for executions whose log cannot be read.

    Attributes
    ----------
    prompt : Prompt or None
        Open input request of code that this client sent.
    """

    def __init__(
        self,
        send: Callable[[OutgoingMessage], Awaitable[None]],
        send_comms: Callable[[], Awaitable[None]],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.prompt: Prompt | None = None
        self._send = send
        self._send_comms = send_comms
        self._sent: Position | None = None  # newest event that was sent
        self._log = log
        self._requests: dict[str, _Request] = {}  # by id of the execution
        self._waiting: asyncio.Queue[ExecutionHandle] = asyncio.Queue()
        self._open: dict[str, ExecutionHandle] = {}  # waiting ones, and the one that is being sent

    def add_execution(self, execution: ExecutionHandle, request: IncomingMessage | None = None) -> None:
        """Queue an execution, whose messages are sent after those of earlier executions.

        Parameters
        ----------
        execution : ExecutionHandle
            The execution.
        request : IncomingMessage, optional
            Message by which this client requested it.

        Raises
        ------
        ClientTooSlow
            If `MAX_WAITING` executions wait already.
        """
        execution_id = execution.record.id
        if request is not None:
            self._requests[execution_id] = _Request(request.header, request.is_silent)
        if execution_id in self._open:
            return
        if len(self._open) >= MAX_WAITING:
            raise ClientTooSlow
        self._open[execution_id] = execution
        self._waiting.put_nowait(execution)

    def get_position(self) -> Position | None:
        """Return the position of the newest output in the session; None if all executions were sent or wait."""
        for execution in reversed(self._open.values()):  # queued ones are few: the session's queue is bounded
            if execution.record.state not in (ExecutionState.QUEUED, ExecutionState.AWAITING_APPROVAL):
                seq = execution.log.appended_seq if isinstance(execution, LiveExecution) else execution.log.last_seq
                return Position(execution.record.id, seq)
        return None

    def has_sent(self, position: Position) -> bool:
        """Return whether the output up to a position was sent, or cannot be sent any more."""
        if position.execution_id not in self._open:
            return True
        sent = self._sent
        return sent is not None and sent.execution_id == position.execution_id and sent.seq >= position.seq

    def adopt_executions(self, earlier: ExecutionDisplay) -> None:
        """Queue the executions that the same client requested, and that an earlier display did not finish.

        Parameters
        ----------
        earlier : ExecutionDisplay
            Display of the client's earlier connection.
        """
        self._requests = {name: request for name, request in earlier._requests.items() if name in earlier._open}
        for execution_id in self._requests:
            self.add_execution(earlier._open[execution_id])

    async def run(self) -> None:
        """Send executions until cancelled."""
        while True:
            execution = await self._waiting.get()
            try:
                await self._show(execution)
            finally:
                self._open.pop(execution.record.id, None)
                self._requests.pop(execution.record.id, None)
            await self._send_comms()

    async def _show(self, execution: ExecutionHandle) -> None:
        original = execution.request if isinstance(execution, LiveExecution) else None
        request = self._requests.get(execution.record.id)
        if request is not None:
            shown = _DisplayedExecution(execution, request.header, True, request.is_silent)
        else:
            is_silent = isinstance(original, JupyterExecutionRequest) and original.is_silent
            shown = _DisplayedExecution(execution, make_request_header(execution.record, original), False, is_silent)
        try:
            await self._show_events(shown)
        except (ExecError, OSError, ValueError):  # the log was deleted or is damaged
            self._log.exception("the output of execution %s could not be sent to a client", execution.record.id)
            await self._send(make_note("The server could not show this code's output; its log says why.", shown.header))
        await self._show_end(shown)

    async def _show_events(self, shown: _DisplayedExecution) -> None:
        async for batch in follow(shown.execution.log):
            for entry in batch:
                await self._send_comms()
                if entry.type != EndEvent.type:  # `_show_end` has the record, and the line may be long
                    await self._show_event(shown, event_from_json(loads_strict(entry.line)))
                self._sent = Position(shown.execution.record.id, entry.seq)
            await self._send_comms()

    async def _show_event(self, shown: _DisplayedExecution, event: Any) -> None:
        if isinstance(event, StateEvent):
            await self._show_state(shown, event.state)
            return
        if isinstance(event, InputRequestEvent) and not shown.is_own:
            return  # only the client that sent the code may answer
        for message in make_output(event, shown.header, is_silent=shown.is_silent):
            if message.msg_type == "input_request":
                self.prompt = Prompt(shown.execution.record.id, message.msg_id)
            await self._send(message)

    async def _show_state(self, shown: _DisplayedExecution, state: ExecutionState) -> None:
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

    async def _show_busy(self, shown: _DisplayedExecution) -> None:
        if not shown.is_busy:
            shown.is_busy = True
            await self._send(make_status("busy", shown.header))

    async def _show_end(self, shown: _DisplayedExecution) -> None:
        """Send the end of an execution, and the reply if this client requested it."""
        record = await shown.execution.wait()
        await self._show_busy(shown)  # an execution that ended in the queue has sent no status yet
        values = shown.execution.user_expressions if isinstance(shown.execution, LiveExecution) else {}
        messages, reply = make_end(record, shown.header, values, is_aborted=record.reason == ABORTED)
        for message in messages:
            await self._send(message)
        if self.prompt is not None and self.prompt.execution_id == record.id:
            self.prompt = None
        if shown.is_own or record.id in self._requests:  # or it was sent again meanwhile
            await self._send(OutgoingMessage("shell", "execute_reply", reply, shown.header))
        await self._send(make_status("idle", shown.header))
