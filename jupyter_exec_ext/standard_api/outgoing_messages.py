"""Outgoing messages on a kernel's WebSocket: an execution's events as Jupyter's protocol has them.

Clients receive the events of the execution's log, so its cap on output applies to them.
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
from ..protocol.client_frames import pack_message
from ..protocol.kernel_messages import PROTOCOL_VERSION, new_header
from ..protocol.strict_json import dump_bytes

# How an execution has ended where its code has raised no error of its own.
_NAMES = {
    ExecutionState.TIMEOUT: "TimeoutError",
    ExecutionState.INTERRUPTED: "KeyboardInterrupt",
    ExecutionState.CANCELLED: "Cancelled",
    ExecutionState.REJECTED: "Rejected",
    ExecutionState.KERNEL_DIED: "KernelDied",
    ExecutionState.OOM_KILLED: "OutOfMemory",
    ExecutionState.TOKEN_REVOKED: "TokenRevoked",
}
# What the code's own error, if there is one, does not say.
_BY_THE_SERVER = {
    ExecutionState.TIMEOUT,
    ExecutionState.CANCELLED,
    ExecutionState.REJECTED,
    ExecutionState.TOKEN_REVOKED,
}


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to a client.

    Parameters
    ----------
    channel : str
        ``shell``, ``iopub``, ``stdin`` or ``control``.
    msg_type : str
        Its type.
    content : mapping
        Its content.
    parent : mapping
        The header of the client's request that it belongs to; empty if it belongs to none.
    metadata : mapping
        Its metadata, which comms have.
    msg_id : str
        Its id.
    """

    channel: str
    msg_type: str
    content: Mapping[str, Any]
    parent: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    msg_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def frame(self, session: str, *, is_v1: bool) -> str | bytes:
        """Return it as a frame of a WebSocket.

        Parameters
        ----------
        session : str
            The kernel's own session, as headers have it.
        is_v1 : bool
            True for a binary frame, as in the sub-protocol ``v1.kernel.websocket.jupyter.org``.
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
        return dump_bytes(message).decode()  # unlike a text, it has no lone surrogates, which a frame cannot have


def request_header(execution: Execution, request: ExecutionRequest | None) -> Mapping[str, Any]:
    """Return the header of the message that has asked for an execution, or one for a request of another protocol."""
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
    """Return a message about the kernel's state."""
    return OutgoingMessage("iopub", "status", {"execution_state": state}, parent)


def make_error(name: str, value: str, traceback: str = "") -> dict[str, Any]:
    """Return an error as ``error`` messages have it, and replies with a status beside it."""
    return {"ename": name, "evalue": value, "traceback": traceback.splitlines() or [f"{name}: {value}"]}


def make_refusal(error: ExecError) -> dict[str, Any]:
    """Return the content of a reply to a request that is refused."""
    return {"status": "error", **make_error(type(error).__name__, error.message)}


def make_note(text: str, parent: Mapping[str, Any]) -> OutgoingMessage:
    """Return a line about a request, which clients show with its output."""
    return OutgoingMessage("iopub", "stream", {"name": "stderr", "text": f"{text}\n"}, parent)


def make_output(
    event: OutputEvent | None, parent: Mapping[str, Any], *, is_silent: bool = False
) -> Iterator[OutgoingMessage]:
    """Yield the messages for one event of an execution, but for its end.

    Parameters
    ----------
    event : OutputEvent or None
        The event; None for one that this version does not know, which has no message.
    parent : mapping
        The header of the request.
    is_silent : bool
        True if the request wanted no value to be shown.
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
        yield make_note(f"Variables are gone, since {event.reason}; this code runs in a fresh kernel.", parent)
    elif isinstance(event, UnresponsiveEvent):
        yield make_note(f"The kernel is hung: {event.reason}.", parent)


def make_end(
    execution: Execution, parent: Mapping[str, Any], expressions: Mapping[str, Any], *, is_aborted: bool
) -> tuple[list[OutgoingMessage], dict[str, Any]]:
    """Return the messages for an execution's end, and the content of the reply to its request.

    Parameters
    ----------
    execution : Execution
        The execution, which has ended.
    parent : mapping
        The header of the request.
    expressions : mapping
        The values of the request's ``user_expressions``.
    is_aborted : bool
        True if it was not run because a request before it had failed.
    """
    reply: dict[str, Any] = {"execution_count": execution.execution_count or 0, "user_expressions": {}, "payload": []}
    if execution.state is ExecutionState.OK:
        return [], {"status": "ok", **reply, "user_expressions": expressions}
    if is_aborted:
        return [], {"status": "aborted", **reply}
    shown = []
    if execution.error is not None and execution.state not in _BY_THE_SERVER:
        content = make_error(execution.error.name, execution.error.value, execution.error.traceback)
    else:
        name = _NAMES.get(execution.state, "Error")
        content = make_error(name, execution.reason or execution.state.value)
        shown.append(OutgoingMessage("iopub", "error", content, parent))
    return shown, {"status": "error", **reply, **content}
