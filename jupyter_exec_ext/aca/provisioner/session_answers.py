"""Requests to `in_session`, the part of the kernel in the session, and its answers, which it prints. Pure.

The session runs a user's code, which can print anything, so answers are hostile data. Their size is bounded before
they are unpacked, and only messages of known kinds, with an object each, are used.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UnexpectedAnswer
from ...protocol.strict_json import loads_lenient

#: Highest number of characters of a run's outputs; the rest is dropped and counted.
MAX_OUTPUT_CHARACTERS = 32 * 1024 * 1024
_MAX_ANSWER_BYTES = 4 * MAX_OUTPUT_CHARACTERS  # a character can be four bytes of UTF-8
#: Highest length of a packed answer, in base64.
MAX_PACKED_CHARACTERS = _MAX_ANSWER_BYTES * 4 // 3
# Kinds of messages that a session can publish.
_OUTPUTS = frozenset(
    {"stream", "display_data", "update_display_data", "execute_result", "clear_output", "error"},
)
_MAX_EVALUE_CHARACTERS = 2000
_SOURCE = Path(__file__).with_name("in_session.py")
_MODULES = '__import__("sys").modules'


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a packed answer.

    Parameters
    ----------
    start, total : int
        First character of the part, and characters of the whole answer.
    text : str
        The part.
    around : str
        Text that was printed around it without IPython, such as by subprocesses.
    """

    start: int
    total: int
    text: str
    around: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the session.

    Parameters
    ----------
    reply : mapping
        Content of the reply message.
    messages : list of (str, dict)
        Outputs: type and content of each, in order.
    dropped_characters : int
        Characters of outputs that were over the limit.
    """

    reply: Mapping[str, Any]
    messages: list[tuple[str, dict[str, Any]]]
    dropped_characters: int = 0


def build_loading_code(mark: str, environment: Mapping[str, str], directory: str) -> str:
    """Return code that loads `in_session` into a session under the name `mark`, and defines no name of the user's."""
    arguments = f"{mark!r}, {dict(environment)!r}, {directory!r}, {MAX_OUTPUT_CHARACTERS}"
    source = _SOURCE.read_text(encoding="utf-8")
    made = f'type(__import__("sys"))({mark!r})'
    load = f"exec(compile({source!r}, '<jupyter_exec_ext>', 'exec'), vars(module))"
    # One expression, so that no name stays behind. Its value is None, which is not shown.
    return f"(lambda module: ({load}, {_MODULES}.update({{{mark!r}: module.InSession({arguments})}}))[1])({made})"


def build_request_code(mark: str, request: Mapping[str, Any]) -> str:
    """Return code that sends a request to `in_session`."""
    return f"await {_MODULES}[{mark!r}]({json.dumps(request)!r})"


def is_lost(mark: str, stderr: str) -> bool:
    """Return whether a run failed because `in_session` is not there: this is a new session, without state."""
    last_line = stderr.rstrip().rpartition("\n")[2]
    return "KeyError" in last_line and f"'{mark}'" in last_line


def find_piece(mark: str, request_id: str, stdout: str) -> Piece | None:
    """Return the printed part of the answer to a request; None if the text has none, or only a fragment."""
    for found in re.finditer(rf"<{mark} {request_id} (\d{{1,12}}) (\d{{1,12}}):([A-Za-z0-9+/=]*):{mark}>", stdout):
        around = stdout[: found.start()] + stdout[found.end() :]
        return Piece(int(found[1]), int(found[2]), found[3], around)
    return None


def read_answer(text: str) -> Answer:
    """Unpack an answer.

    Raises
    ------
    UnexpectedAnswer
        If it cannot be read or is too large.
    """
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_ANSWER_BYTES)
        if unpacking.unconsumed_tail:
            raise UnexpectedAnswer(f"the session answered with more than {_MAX_ANSWER_BYTES} bytes")
        data = loads_lenient(raw)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise UnexpectedAnswer(f"the session's answer cannot be read: {error}") from None
    reply = data.get("reply") if isinstance(data, dict) else None
    if not isinstance(reply, dict):
        raise UnexpectedAnswer("the session's answer holds no reply")
    dropped = data.get("dropped_characters")
    messages = data.get("messages")
    return Answer(
        reply,
        [(item[0], item[1]) for item in messages if _is_output(item)] if isinstance(messages, list) else [],
        dropped if isinstance(dropped, int) else 0,
    )


def failed_answer(name: str, text: str, messages: Sequence[tuple[str, dict[str, Any]]] = ()) -> Answer:
    """Return the answer of a run that failed with an error text, after its outputs."""
    evalue = text.splitlines()[-1] if text else ""
    error = {"ename": name, "evalue": evalue[:_MAX_EVALUE_CHARACTERS], "traceback": text.splitlines()}
    reply = {**error, "status": "error", "payload": [], "user_expressions": {}}
    return Answer(reply, [*messages, ("error", error)])


def _is_output(item: Any) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and item[0] in _OUTPUTS
        and isinstance(item[1], dict)
    )
