"""What is asked of the part of the kernel that is in the session, and how its answers are found in what it prints.

The session runs a user's code, which can print what it likes. So an answer is data that may say anything: it is bounded
in size before it is unpacked, and only known kinds of messages with an object each are taken from it.
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

#: The most text and data that a run can have as outputs; the rest is left out, and said to be.
MAX_OUTPUT_CHARACTERS = 32 * 1024 * 1024
_MAX_ANSWER_BYTES = 4 * MAX_OUTPUT_CHARACTERS  # a character can be four bytes of UTF-8
#: The most that an answer can have packed, in base64.
MAX_PACKED_CHARACTERS = _MAX_ANSWER_BYTES * 4 // 3
# What outputs are made of; a session can have nothing else published.
_OUTPUTS = frozenset(
    {"stream", "display_data", "update_display_data", "execute_result", "clear_output", "error"},
)
_MAX_EVALUE_CHARACTERS = 2000
_SOURCE = Path(__file__).with_name("in_session.py")
_MODULES = '__import__("sys").modules'


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer, and what stood around it.

    Parameters
    ----------
    total : int
        How many characters the whole answer has.
    around : str
        What was printed beside it, past IPython: by subprocesses, for instance.
    """

    start: int
    total: int
    text: str
    around: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the session's part of the kernel answered.

    Parameters
    ----------
    reply : mapping
        The content of a reply, as the kernel in the session would send it.
    messages : list
        Outputs: type and content of each, in order.
    """

    reply: Mapping[str, Any]
    messages: list[tuple[str, dict[str, Any]]]
    dropped_characters: int = 0


def loading_code(mark: str, environment: Mapping[str, str], directory: str) -> str:
    """Return code that puts our part into a session, under the name `mark`; it defines nothing the user sees."""
    arguments = f"{mark!r}, {dict(environment)!r}, {directory!r}, {MAX_OUTPUT_CHARACTERS}"
    source = _SOURCE.read_text(encoding="utf-8")
    made = f'type(__import__("sys"))({mark!r})'
    load = f"exec(compile({source!r}, '<jupyter_exec_ext>', 'exec'), vars(module))"
    # As one expression: no name of ours stays behind, and None is no value to show.
    return f"(lambda module: ({load}, {_MODULES}.update({{{mark!r}: module.InSession({arguments})}}))[1])({made})"


def asking_code(mark: str, request: Mapping[str, Any]) -> str:
    """Return code that asks our part of a session something."""
    return f"await {_MODULES}[{mark!r}]({json.dumps(request)!r})"


def is_lost(mark: str, stderr: str) -> bool:
    """Return whether a run failed since our part is not in the session: it is another one, without any state."""
    last_line = stderr.rstrip().rpartition("\n")[2]
    return "KeyError" in last_line and f"'{mark}'" in last_line


def find_piece(mark: str, request_id: str, stdout: str) -> Piece | None:
    """Return the part of the answer to a request that was printed; None if it is not there as a whole."""
    for found in re.finditer(rf"<{mark} {request_id} (\d{{1,12}}) (\d{{1,12}}):([A-Za-z0-9+/=]*):{mark}>", stdout):
        around = stdout[: found.start()] + stdout[found.end() :]
        return Piece(int(found[1]), int(found[2]), found[3], around)
    return None


def read_answer(text: str) -> Answer:
    """Unpack an answer.

    Raises
    ------
    UnexpectedAnswer
        If it is none, or too large.
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


def failed(name: str, text: str, messages: Sequence[tuple[str, dict[str, Any]]] = ()) -> Answer:
    """Return the answer of a run that came to no end of its own, after what it had as outputs."""
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
