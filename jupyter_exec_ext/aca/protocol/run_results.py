"""What a run in an ACA session answers: written for clients of ours and theirs, and read from Azure.

The value of the last expression is ``""`` where there is none, a JSON number or boolean for one of Python, the string
itself for a string, the text that IPython shows for everything else, and an object for a picture.
"""

from __future__ import annotations

import ast
import base64
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import UnexpectedAnswer
from .addresses import Family

_STATUS_NAMES = {
    Family.ENVELOPE: {"succeeded": "Success", "failed": "Failure"},
    Family.FLAT: {
        "not_started": "NotStarted",
        "running": "Running",
        "succeeded": "Succeeded",
        "failed": "Failed",
        "canceled": "Canceled",
    },
}
# What is matched is hostile text: nothing here may take more than one look at each character.
_MAX_NUMBER_CHARACTERS = 400
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_STRING = re.compile(r"""'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*\"""")


class RunStatus(str, Enum):
    """How a run stands, in words of ours; both families have their own."""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    __str__ = str.__str__

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self not in (RunStatus.NOT_STARTED, RunStatus.RUNNING)


_STATUS_BY_WORD = {
    "success": RunStatus.SUCCEEDED,
    "failure": RunStatus.FAILED,
    **{word.lower(): RunStatus(status) for status, word in _STATUS_NAMES[Family.FLAT].items()},
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run.

    Parameters
    ----------
    value : str, int, float, bool, dict or None
        As it stands in JSON.
    duration_ms : int
        The time that the code took.
    id : str
        Of the run, where the service gave one.
    """

    status: RunStatus
    stdout: str = ""
    stderr: str = ""
    value: Any = ""
    duration_ms: int = 0
    id: str = ""
    identifier: str = ""
    asynchronous: bool = False

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an error."""
        return self.status is RunStatus.SUCCEEDED

    @property
    def image(self) -> tuple[str, bytes] | None:
        """The MIME type and the content of the picture that is the value, if it is one."""
        return image_of(self.value)


def run_result_to_json(result: RunResult, family: Family) -> dict[str, Any]:
    """Return the answer to a request to run code, or to a question for a run."""
    words = _STATUS_NAMES[family]
    if family is Family.ENVELOPE:
        return {
            "$id": "1",
            "properties": {
                "$id": "2",
                "status": words.get(result.status, "Failure"),
                "stdout": result.stdout,
                "stderr": result.stderr,
                "result": result.value,
                "executionResult": result.value,
                "executionTimeInMilliseconds": result.duration_ms,
            },
        }
    body: dict[str, Any] = {
        "$id": "1",
        "id": result.id,
        "identifier": result.identifier,
        "executionType": "Asynchronous" if result.asynchronous else "Synchronous",
        "status": words[result.status],
    }
    if result.status.finished:
        body["result"] = {
            "$id": "2",
            "stdout": result.stdout,
            "stderr": result.stderr,
            "executionResult": result.value,
            "executionTimeInMilliseconds": result.duration_ms,
        }
    return body


def run_result_from_json(data: Any) -> RunResult:
    """Read the answer to a run, of either family.

    Raises
    ------
    UnexpectedAnswer
        If there is no status in it, or one that nobody has written down.
    """
    if not isinstance(data, dict):
        raise UnexpectedAnswer("the answer to a run must be a JSON object")
    envelope = data.get("properties")
    top = envelope if isinstance(envelope, dict) else data
    word = top.get("status")
    status = _STATUS_BY_WORD.get(word.lower()) if isinstance(word, str) else None
    if status is None:
        raise UnexpectedAnswer(f"the answer to a run has the unknown status {str(word)[:64]!r}")
    nested = top.get("result")
    inner = nested if isinstance(nested, dict) and nested.get("type") != "image" else top
    value = inner.get("executionResult", inner.get("result", "") if inner is top else "")
    return RunResult(
        status=status,
        stdout=_text(inner.get("stdout")),
        stderr=_text(inner.get("stderr")) or _error_text(top.get("error")),
        value=value,
        duration_ms=_whole(inner.get("executionTimeInMilliseconds")),
        id=_text(top.get("id")),
        identifier=_text(top.get("identifier")),
    )


def value_of(text: str | None, png: str | None = None, *, jupyter_format: bool = False) -> Any:
    """Return the JSON value for what IPython shows of the last expression.

    Parameters
    ----------
    text : str or None
        Its ``text/plain``; None where there is no value.
    png : str, optional
        Base64 of a picture: the value's own, or else the last that was displayed.
    jupyter_format : bool
        Give the text as it is, whatever it stands for, and null for no value.
    """
    if png is not None:
        return {"type": "image", "format": "png", "base64_data": "".join(png.split())}
    if jupyter_format:
        return text
    if text is None:
        return ""
    if text in ("True", "False"):
        return text == "True"
    if text in ("nan", "inf", "-inf"):
        return None  # JSON has no such number
    if len(text) <= _MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(text):
        return _number(text)
    return _unquoted(text) if _STRING.fullmatch(text) else text


def bundle_of(value: Any) -> dict[str, Any] | None:
    """Return the MIME bundle that shows a value, or None where there is none: about the inverse of `value_of`."""
    if value is None or value == "":
        return None
    image = image_of(value)
    if image is not None:
        mime_type, content = image
        return {mime_type: base64.b64encode(content).decode(), "text/plain": "<picture>"}
    return {"text/plain": value if isinstance(value, str) else repr(value)}


def image_of(value: Any) -> tuple[str, bytes] | None:
    """Return the MIME type and the content of a picture, if that is what a value is."""
    if not isinstance(value, dict) or not isinstance(value.get("base64_data"), str):
        return None
    kind = _text(value.get("format")).lower() or "png"
    try:
        content = base64.b64decode(value["base64_data"])
    except ValueError:
        return None
    return {"jpg": "image/jpeg", "svg": "image/svg+xml"}.get(kind, f"image/{kind}"), content


def _number(text: str) -> Any:
    try:
        number = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a leading zero, or more digits than Python reads
        return text
    return None if isinstance(number, float) and math.isinf(number) else number


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return ""
    inner = error.get("error")
    return _text((inner if isinstance(inner, dict) else error).get("message"))
