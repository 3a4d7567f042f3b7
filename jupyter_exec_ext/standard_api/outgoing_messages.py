"""Outgoing messages on a kernel's WebSocket: translation of an execution's events to Jupyter's protocol.

The events come from the execution's log, so the cap on output applies to clients.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ExecError
from ..models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    Execution,
    ExecutionRequest,
    ExecutionState,
    InputRequestEvent,
    JupyterExecutionRequest,
    OutputEvent,
    ResultEvent,
    SessionStateLostEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from ..protocol.kernel_messages import PROTOCOL_VERSION, new_header
from ..protocol.strict_json import dump_bytes
from ..protocol.websocket_frames import pack_message

# Names of errors by state, for executions whose code raised none itself.
_NAMES = {
    ExecutionState.TIMEOUT: "TimeoutError",
    ExecutionState.INTERRUPTED: "KeyboardInterrupt",
    ExecutionState.CANCELLED: "Cancelled",
    ExecutionState.REJECTED: "Rejected",
    ExecutionState.KERNEL_DIED: "KernelDied",
    ExecutionState.OOM_KILLED: "OutOfMemory",
    ExecutionState.TOKEN_REVOKED: "TokenRevoked",
}
# States for which the server's reason replaces the code's own error.
_ENDED_BY_SERVER = {
    ExecutionState.TIMEOUT,
    ExecutionState.CANCELLED,
    ExecutionState.REJECTED,
    ExecutionState.TOKEN_REVOKED,
}


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """Message to a client.

    Parameters
    ----------
    channel : str
        ``shell``, ``iopub``, ``stdin`` or ``control``.
    msg_type : str
        Type of the message.
    content : mapping
        Content.
    parent : mapping
        Header of the client's request that caused it; empty if there is none.
    metadata : mapping
        Metadata, which only comms have.
    msg_id : str
        Id of the message.
    """

    channel: str
    msg_type: str
    content: Mapping[str, Any]
    parent: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    msg_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def frame(self, session: str, *, is_v1: bool) -> str | bytes:
        """Encode the message as a frame of a WebSocket.

        Parameters
        ----------
        session : str
            Session of the kernel in the message's header.
        is_v1 : bool
            True for the binary sub-protocol ``v1.kernel.websocket.jupyter.org``.

        Returns
        -------
        str or bytes
            The frame.
        """
        header = new_header(self.msg_type, session, self.msg_id)
        if is_v1:
            return pack_message(self.channel, header, self.parent, self.metadata, dump_bytes(self.content))
        message = {
            "header": header,
            "msg_id": self.msg_id,
            "msg_type": self.msg_type,
            "parent_header": self.parent,
            "metadata": self.metadata,
            "content": self.content,
            "buffers": [],
            "channel": self.channel,
        }
        return dump_bytes(message).decode()  # escapes lone surrogates, which a text frame cannot contain


def make_request_header(execution: Execution, request: ExecutionRequest | None) -> Mapping[str, Any]:
    """Return the parent header of an execution's messages.

    Parameters
    ----------
    execution : Execution
        The execution.
    request : ExecutionRequest or None
        Its request, if it is still at hand.

    Returns
    -------
    mapping
        Header of the client's message, or a new one for an execution that came through another protocol.
    """
    if isinstance(request, JupyterExecutionRequest) and request.header:
        return request.header
    return {
        "msg_id": execution.id,
        "session": execution.session_id,
        "username": "",
        "date": execution.created_at,
        "msg_type": "execute_request",
        "version": PROTOCOL_VERSION,
    }


def make_status(state: str, parent: Mapping[str, Any]) -> OutgoingMessage:
    """Return a ``status`` message.

    Parameters
    ----------
    state : str
        Execution state, such as ``busy``.
    parent : mapping
        Parent header.

    Returns
    -------
    OutgoingMessage
        The message.
    """
    return OutgoingMessage("iopub", "status", {"execution_state": state}, parent)


def make_error(name: str, value: str, traceback: str = "") -> dict[str, Any]:
    """Return the content of an ``error`` message, whose fields an error reply has too.

    Parameters
    ----------
    name : str
        Class name of the error.
    value : str
        Message of the error.
    traceback : str
        Traceback; without one, the name and the value stand for it.

    Returns
    -------
    dict
        The content.
    """
    return {"ename": name, "evalue": value, "traceback": traceback.splitlines() or [f"{name}: {value}"]}


def make_refusal(error: ExecError) -> dict[str, Any]:
    """Return the content of the reply to a refused request.

    Parameters
    ----------
    error : ExecError
        Reason of the refusal.

    Returns
    -------
    dict
        The content.
    """
    return {"status": "error", **make_error(type(error).__name__, error.message)}


def make_note(text: str, parent: Mapping[str, Any]) -> OutgoingMessage:
    """Return a line on standard error, which clients show with the output of a request.

    Parameters
    ----------
    text : str
        The line.
    parent : mapping
        Header of the request.

    Returns
    -------
    OutgoingMessage
        The message.
    """
    return OutgoingMessage("iopub", "stream", {"name": "stderr", "text": f"{text}\n"}, parent)


def make_output(
    event: OutputEvent | None, parent: Mapping[str, Any], *, is_silent: bool = False
) -> Iterator[OutgoingMessage]:
    """Yield the messages for one event of an execution; `make_end` makes those for its end.

    Parameters
    ----------
    event : OutputEvent or None
        The event; None for an unknown one of a newer version, which has no message.
    parent : mapping
        Header of the request.
    is_silent : bool
        True to leave out the value of the code.

    Yields
    ------
    OutgoingMessage
        Each message.
    """
    if isinstance(event, StreamEvent):
        yield OutgoingMessage("iopub", "stream", {"name": event.name, "text": event.text}, parent)
    elif isinstance(event, DisplayEvent):
        kind = "update_display_data" if event.update else "display_data"
        transient = {} if event.display_id is None else {"display_id": event.display_id}
        yield OutgoingMessage(
            "iopub", kind, {"data": event.data, "metadata": event.metadata, "transient": transient}, parent
        )
    elif isinstance(event, ResultEvent):
        if not is_silent:
            content = {"data": event.data, "metadata": event.metadata, "execution_count": event.execution_count}
            yield OutgoingMessage("iopub", "execute_result", content, parent)
    elif isinstance(event, ClearEvent):
        yield OutgoingMessage("iopub", "clear_output", {"wait": event.wait}, parent)
    elif isinstance(event, ErrorEvent):
        traceback = event.coloured_traceback or event.traceback
        yield OutgoingMessage("iopub", "error", make_error(event.name, event.value, traceback), parent)
    elif isinstance(event, InputRequestEvent):
        yield OutgoingMessage("stdin", "input_request", {"prompt": event.prompt, "password": event.password}, parent)
    elif isinstance(event, TruncatedEvent):
        left_out = event.truncated.stdout_bytes + event.truncated.stderr_bytes + event.truncated.display_bytes
        yield make_note(f"[{left_out} bytes of output were left out here]", parent)
    elif isinstance(event, SessionStateLostEvent):
        yield make_note(f"Variables were lost: {event.reason}. This code runs in a new kernel.", parent)
    elif isinstance(event, UnresponsiveEvent):
        yield make_note(f"The kernel is hung: {event.reason}.", parent)


def make_end(
    execution: Execution, parent: Mapping[str, Any], expressions: Mapping[str, Any], *, is_aborted: bool
) -> tuple[list[OutgoingMessage], dict[str, Any]]:
    """Return the messages for an execution's end, and the content of the reply to its request.

    Parameters
    ----------
    execution : Execution
        An execution that has ended.
    parent : mapping
        Header of the request.
    expressions : mapping
        Values of the request's ``user_expressions``.
    is_aborted : bool
        True if it did not run because an earlier request failed.

    Returns
    -------
    tuple
        Messages, and the content of the reply.
    """
    reply: dict[str, Any] = {"execution_count": execution.execution_count or 0, "user_expressions": {}, "payload": []}
    if execution.state is ExecutionState.OK:
        return [], {"status": "ok", **reply, "user_expressions": expressions}
    if is_aborted:
        return [], {"status": "aborted", **reply}
    shown = []
    if execution.error is not None and execution.state not in _ENDED_BY_SERVER:
        content = make_error(execution.error.name, execution.error.value, execution.error.traceback)
    else:
        name = _NAMES.get(execution.state, "Error")
        content = make_error(name, execution.reason or execution.state.value)
        shown.append(OutgoingMessage("iopub", "error", content, parent))
    return shown, {"status": "error", **reply, **content}
