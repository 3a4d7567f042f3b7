"""Incoming messages on a kernel's WebSocket: an allowlist with the right that each needs, and their parsing.

Messages that are not in `RULES` are refused. The kernel receives only the content of allowed requests, and no header,
parent or buffer of a client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..errors import InvalidRequest
from ..protocol.strict_json import is_encodable, parsed_bytes
from ..protocol.websocket_frames import decode_client_message
from ..server.gate import Access
from ..server.rights import CONTROL_EXECUTIONS, DELETE_SESSIONS, READ_EXECUTIONS, RUN_CODE

_MAX_CHARACTERS = 256
_MAX_PARSED_BYTES = 16 * 1024 * 1024
_MSG_ID = re.compile(r"[!-~]{1,255}")
_HEADER_FIELDS = ("msg_id", "session", "username", "date", "msg_type", "version")
_MAX_EXPRESSIONS, _MAX_EXPRESSION_CHARACTERS = 20, 2000
_MAX_PATTERN_CHARACTERS = 1000

#: Allowlist of messages by channel and type, with the rights that each needs beside those of the WebSocket.
RULES: dict[tuple[str, str], Access] = {
    ("shell", "execute_request"): RUN_CODE,
    ("shell", "complete_request"): RUN_CODE,
    ("shell", "inspect_request"): RUN_CODE,
    ("shell", "is_complete_request"): RUN_CODE,
    ("shell", "history_request"): READ_EXECUTIONS,
    ("shell", "kernel_info_request"): READ_EXECUTIONS,
    ("shell", "comm_info_request"): READ_EXECUTIONS,
    ("shell", "comm_open"): RUN_CODE,
    ("shell", "comm_msg"): RUN_CODE,
    ("shell", "comm_close"): RUN_CODE,
    ("stdin", "input_reply"): CONTROL_EXECUTIONS,
    ("control", "kernel_info_request"): READ_EXECUTIONS,
    ("control", "interrupt_request"): CONTROL_EXECUTIONS,
    ("control", "shutdown_request"): DELETE_SESSIONS,
    ("shell", "shutdown_request"): DELETE_SESSIONS,
}


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """Message of a client.

    Parameters
    ----------
    channel : str
        Channel that the client named, cut at 16 characters.
    header : mapping
        Header fields of Jupyter's protocol, each a short text. Replies have it as their parent header.
    parent_id : str
        Id of the message that it answers; empty for a request.
    metadata : mapping
        Metadata, unchecked.
    content : mapping
        Content; the ``get_`` methods check its fields.
    """

    channel: str
    header: Mapping[str, str]
    parent_id: str
    metadata: Mapping[str, Any]
    content: Mapping[str, Any]

    @property
    def msg_type(self) -> str:
        """Type of the message, such as ``execute_request``."""
        return self.header["msg_type"]

    @property
    def known_type(self) -> str:
        """Type if it is in `RULES`, and otherwise ``other``, so that records never contain a client's text."""
        return self.msg_type if (self.channel, self.msg_type) in RULES else "other"

    @property
    def msg_id(self) -> str:
        """Id of the message."""
        return self.header["msg_id"]

    @property
    def is_restart(self) -> bool:
        """True for a ``shutdown_request`` that restarts the kernel, which needs the right of a restart in exec/v1."""
        return self.msg_type == "shutdown_request" and self.content.get("restart") is True

    @property
    def reply_type(self) -> str:
        """Type of the reply."""
        return self.msg_type.removesuffix("_request") + "_reply"

    @property
    def is_silent(self) -> bool:
        """True if the value of the code is not sent to clients; raises `InvalidRequest` like `get_flag`."""
        return self.get_flag("silent", default=False)

    def get_text(self, name: str, default: str = "") -> str:
        """Return a text field of the content.

        Parameters
        ----------
        name : str
            Name of the field.
        default : str
            Value if the content has no such field.

        Returns
        -------
        str
            The text.

        Raises
        ------
        InvalidRequest
            If the field is not a string.
        """
        value = self.content.get(name, default)
        if not isinstance(value, str):
            raise InvalidRequest(f"{name!r} must be a string")
        return value

    def get_flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean field of the content.

        Parameters
        ----------
        name : str
            Name of the field.
        default : bool
            Value if the content has no such field.

        Returns
        -------
        bool
            The flag.

        Raises
        ------
        InvalidRequest
            If the field is not a boolean.
        """
        value = self.content.get(name, default)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name!r} must be true or false")
        return value

    def get_user_expressions(self) -> Mapping[str, str]:
        """Return the user expressions of the content.

        Returns
        -------
        mapping
            Code by name.

        Raises
        ------
        InvalidRequest
            If they are not strings by name, or there are more than 20, or one has more than 2000 characters.
        """
        value = self.content.get("user_expressions") or {}
        is_usable = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        if not is_usable or len(value) > _MAX_EXPRESSIONS:
            raise InvalidRequest(f"'user_expressions' must be at most {_MAX_EXPRESSIONS} strings by name")
        if any(len(text) > _MAX_EXPRESSION_CHARACTERS for pair in value.items() for text in pair):
            raise InvalidRequest(f"a user expression may have at most {_MAX_EXPRESSION_CHARACTERS} characters")
        return value


def read_message(frame: str | bytes, *, is_v1: bool) -> IncomingMessage:
    """Parse a frame of a WebSocket.

    Parameters
    ----------
    frame : str or bytes
        The frame.
    is_v1 : bool
        True if the binary sub-protocol ``v1.kernel.websocket.jupyter.org`` was selected.

    Returns
    -------
    IncomingMessage
        The message.

    Raises
    ------
    InvalidRequest
        If the frame is not a message of Jupyter's protocol, or has too many values to parse quickly.
    """
    # Millions of small values would take seconds and gigabytes to parse.
    if parsed_bytes(frame) > _MAX_PARSED_BYTES:
        raise InvalidRequest("the message has too many values; send fewer")
    try:
        channel, header, parent, metadata, content = decode_client_message(frame, is_v1=is_v1)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the frame is not a message of Jupyter's protocol: {error}") from None
    if not (isinstance(header, dict) and isinstance(content, dict) and isinstance(channel, str)):
        raise InvalidRequest("a message must have a channel, and objects as its header and content")
    fields = {name: header.get(name, "") for name in _HEADER_FIELDS}
    if not all(_is_header_field(value) for value in fields.values()):
        raise InvalidRequest(f"header fields must be strings of at most {_MAX_CHARACTERS} characters")
    if not fields["msg_type"] or not _MSG_ID.fullmatch(fields["msg_id"]):
        raise InvalidRequest("a header must have a 'msg_type', and a 'msg_id' of 1 to 255 visible ASCII characters")
    parent_id = parent.get("msg_id", "") if isinstance(parent, dict) else ""
    return IncomingMessage(
        channel[:16],
        fields,
        parent_id if isinstance(parent_id, str) else "",
        metadata if isinstance(metadata, dict) else {},
        content,
    )


def _is_header_field(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_CHARACTERS and is_encodable(value)


def limit_history_request(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a history request that reads only the history of the kernel's own session.

    IPython keeps the history of all sessions in one file, which other forms of the request can read.

    Parameters
    ----------
    content : mapping
        Content of the client's request.

    Returns
    -------
    dict
        Content of the request to the kernel, for the whole history of its session.
    """
    return {
        "output": content.get("output") is True,
        "raw": content.get("raw") is not False,
        "hist_access_type": "range",
        "session": 0,
        "start": 1,
        "stop": None,
    }


def select_history(content: Mapping[str, Any], items: Any) -> list[Any]:
    """Select the items that a client requested from a session's whole history.

    Parameters
    ----------
    content : mapping
        Content of the client's request.
    items : Any
        History as the kernel sent it, unchecked.

    Returns
    -------
    list
        The selected items; malformed ones are left out.
    """
    found = [item for item in items if _is_history_item(item)] if isinstance(items, list) else []
    kind = content.get("hist_access_type")
    if kind == "range":
        first, stop = _get_int(content, "start") or 0, _get_int(content, "stop")
        return [item for item in found if first <= item[1] and (stop is None or item[1] < stop)]
    if kind == "search":
        pattern = str(content.get("pattern") or "*")[:_MAX_PATTERN_CHARACTERS]
        found = [item for item in found if fnmatchcase(_get_code(item), pattern)]
        if content.get("unique") is True:
            latest = {_get_code(item): item for item in found}
            found = [item for item in found if latest[_get_code(item)] is item]
    count = _get_int(content, "n")
    return found if count is None else found[max(0, len(found) - max(0, count)) :]


def _is_history_item(item: Any) -> bool:
    return isinstance(item, list) and len(item) > 2 and isinstance(item[1], int)


def _get_code(item: list[Any]) -> str:
    code = (
        item[2][0] if isinstance(item[2], list) and item[2] else item[2]
    )  # a pair with the value, if `output` was set
    return code if isinstance(code, str) else ""


def _get_int(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    return value if isinstance(value, int) else None


def get_needed_access(message: IncomingMessage) -> Access | None:
    """Return the rights that a message needs.

    Parameters
    ----------
    message : IncomingMessage
        The message.

    Returns
    -------
    Access or None
        The rights; None if no client may send this message.
    """
    access = RULES.get((message.channel, message.msg_type))
    return CONTROL_EXECUTIONS if access is not None and message.is_restart else access
