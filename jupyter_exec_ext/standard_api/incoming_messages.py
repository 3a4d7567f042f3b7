"""Messages of clients on a kernel's WebSocket: which there are, what each needs, and how they are read.

What is not in `RULES` is refused. A client's message is read as far as it is used, and nothing of it reaches the kernel
but the content of the requests that are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidRequest
from ..protocol.client_frames import decode_client_message
from ..server.gate import Access
from ..server.rights import CONTROL_EXECUTIONS, DELETE_SESSIONS, READ_EXECUTIONS, RUN_CODE

_MAX_CHARACTERS = 256
_MSG_ID = re.compile(r"[!-~]{1,255}")
_HEADER_FIELDS = ("msg_id", "session", "username", "date", "msg_type", "version")
_MAX_EXPRESSIONS, _MAX_EXPRESSION_CHARACTERS = 20, 2000

#: The rights that each message needs beside those for the WebSocket itself, by channel and type.
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
    """A message of a client.

    Parameters
    ----------
    header : mapping
        The fields that Jupyter's protocol has for headers, each a short text. Answers have it as their parent.
    parent_id : str
        The id of the message that it answers; empty for a request.
    """

    channel: str
    header: Mapping[str, str]
    parent_id: str
    content: Mapping[str, Any]

    @property
    def msg_type(self) -> str:
        """The type."""
        return self.header["msg_type"]

    @property
    def msg_id(self) -> str:
        """The id."""
        return self.header["msg_id"]

    @property
    def is_restart(self) -> bool:
        """True if it asks for a restart, which needs what it needs in exec/v1."""
        return self.msg_type == "shutdown_request" and self.content.get("restart") is True

    @property
    def reply_type(self) -> str:
        """The type of the reply."""
        return self.msg_type.removesuffix("_request") + "_reply"

    def text(self, name: str, default: str = "") -> str:
        """Return a text of the content; raise `InvalidRequest` if it is none."""
        value = self.content.get(name, default)
        if not isinstance(value, str):
            raise InvalidRequest(f"{name!r} must be a string")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean of the content; raise `InvalidRequest` if it is none."""
        value = self.content.get(name, default)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name!r} must be true or false")
        return value

    def expressions(self) -> Mapping[str, str]:
        """Return the user expressions of the content; raise `InvalidRequest` if there are too many, or others."""
        value = self.content.get("user_expressions") or {}
        is_usable = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        if not is_usable or len(value) > _MAX_EXPRESSIONS:
            raise InvalidRequest(f"'user_expressions' must be at most {_MAX_EXPRESSIONS} strings by name")
        if any(len(text) > _MAX_EXPRESSION_CHARACTERS for pair in value.items() for text in pair):
            raise InvalidRequest(f"a user expression may have at most {_MAX_EXPRESSION_CHARACTERS} characters")
        return value


def read_message(frame: str | bytes, *, is_v1: bool) -> IncomingMessage:
    """Return the message in a frame of a WebSocket.

    Parameters
    ----------
    is_v1 : bool
        Whether the sub-protocol ``v1.kernel.websocket.jupyter.org`` was selected.

    Raises
    ------
    InvalidRequest
        If it is none.
    """
    try:
        channel, header, parent, content = decode_client_message(frame, is_v1=is_v1)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"this is no message of Jupyter's protocol: {error}") from None
    if not (isinstance(header, dict) and isinstance(content, dict) and isinstance(channel, str)):
        raise InvalidRequest("a message must have a channel, and objects as its header and content")
    fields = {name: header.get(name, "") for name in _HEADER_FIELDS}
    if not all(isinstance(value, str) and len(value) <= _MAX_CHARACTERS for value in fields.values()):
        raise InvalidRequest(f"the fields of a header must be strings of at most {_MAX_CHARACTERS} characters")
    if not fields["msg_type"] or not _MSG_ID.fullmatch(fields["msg_id"]):
        raise InvalidRequest("a header must have a 'msg_type', and a 'msg_id' of 1 to 255 visible ASCII characters")
    parent_id = parent.get("msg_id", "") if isinstance(parent, dict) else ""
    return IncomingMessage(channel[:16], fields, parent_id if isinstance(parent_id, str) else "", content)


def limited_history(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request for the kernel's history that reads this session's own alone.

    IPython has the history of all sessions in one file, which the other forms of the request read.
    """
    return {
        "output": content.get("output") is True,
        "raw": content.get("raw") is not False,
        "hist_access_type": "range",
        "session": 0,
        "start": 1,
        "stop": None,
    }


def chosen_history(content: Mapping[str, Any], items: Any) -> list[Any]:
    """Return what of a session's history, as the kernel has answered, a request has asked for."""
    if not isinstance(items, list):
        return []
    kind, number = content.get("hist_access_type"), content.get("n")
    if kind == "range":
        start, stop = content.get("start"), content.get("stop")
        first = start if isinstance(start, int) else 0
        last = stop if isinstance(stop, int) else None
        lines = [item for item in items if isinstance(item, list) and len(item) > 1 and isinstance(item[1], int)]
        return [item for item in lines if first <= item[1] and (last is None or item[1] < last)]
    chosen = [item for item in items if kind != "search" or _matches(content.get("pattern"), item)]
    return chosen[-number:] if isinstance(number, int) and number > 0 else chosen


def _matches(pattern: Any, item: Any) -> bool:
    """Return whether an item has the text of a pattern, whose stars stand for anything."""
    text = item[2] if isinstance(item, list) and len(item) > 2 else ""
    text = text[0] if isinstance(text, list) and text else text
    position, shown = 0, text if isinstance(text, str) else ""
    for part in str(pattern or "").split("*"):
        position = shown.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


def needed_rights(message: IncomingMessage) -> Access | None:
    """Return the rights that a message needs; None for one that no client may send."""
    if message.is_restart:
        return CONTROL_EXECUTIONS
    return RULES.get((message.channel, message.msg_type))
