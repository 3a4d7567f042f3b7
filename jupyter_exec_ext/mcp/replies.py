"""Replies to HTTP requests: a status with JSON, or a stream of messages; and errors of JSON-RPC. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, unsupported_protocol_version_rejection
from mcp.types import INVALID_REQUEST, ErrorData, JSONRPCNotification, RequestId
from pydantic import ValidationError

from ..protocol.strict_json import dump_bytes
from .message_stream import MessageStream


@dataclass
class Reply:
    """Answer to one HTTP request.

    Parameters
    ----------
    status : int
        HTTP status, unless a stream begins.
    body : bytes or None
        JSON; None for an empty answer.
    stream : MessageStream or None
        Messages to send, in place of a body.
    on_cut : callable
        To be called when the response ends before its stream does.
    on_sent : callable
        To be called when all of the stream has been sent.
    """

    status: int
    body: bytes | None = None
    stream: MessageStream | None = None
    headers: dict[str, str] = field(default_factory=dict)
    on_cut: Callable[[], object] = lambda: None
    on_sent: Callable[[], object] = lambda: None
    resume_after: int = 0


def make_error_message(request_id: RequestId | None, error: ErrorData) -> dict[str, Any]:
    """Return an error as JSON-RPC has it."""
    return {"jsonrpc": "2.0", "id": request_id, "error": error.model_dump(mode="json", exclude_none=True)}


def make_error_reply(
    request_id: RequestId | None, code: int, message: str, data: Any = None, *, status: int | None = None
) -> Reply:
    """Return the reply for a message that is not dispatched."""
    body = dump_bytes(make_error_message(request_id, ErrorData(code=code, message=message, data=data)))
    return Reply(status or ERROR_CODE_HTTP_STATUS.get(code, 200), body)


def acknowledge(message: dict[str, Any], version: str) -> Reply:
    """Return the reply to a notification of revision 2026-07-28, which defines none that a server would act on."""
    try:
        JSONRPCNotification.model_validate(message)
    except ValidationError:
        return make_error_reply(None, INVALID_REQUEST, "the body must be a single JSON-RPC request or notification")
    unsupported = unsupported_protocol_version_rejection(version)
    if unsupported is not None:
        return make_error_reply(None, unsupported.code, unsupported.message, unsupported.data)
    return Reply(202)
