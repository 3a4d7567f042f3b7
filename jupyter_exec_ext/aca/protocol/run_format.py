"""Runs in the ACA protocol: requests to run code and their results, written and read in both families.

The value of the last expression is ``""`` if there is none, a JSON number or boolean for one of Python, the string
itself for a string, the text that IPython shows for every other object, and an object for a picture.
"""

from __future__ import annotations

import ast
import base64
import binascii
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import InvalidRequest, PropertiesMissing, UnexpectedAnswer
from ...protocol.strict_json import is_encodable
from .addresses import Family, family_of

RUN_PATHS = {Family.ENVELOPE: "code/execute", Family.FLAT: "executions"}
_OPTIONS_SINCE = "2025-10-02-preview"
_MAX_STREAMS_LENGTH = 2**31 - 1
_INPUT_TYPES = ("inline", "inlinetext", "inlinebase64")
# The matched text is hostile: these expressions must look at each character only once.
_MAX_NUMBER_CHARACTERS = 400
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_STRING = re.compile(r"""'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*\"""")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Code to run.

    Parameters
    ----------
    code : str
        Python source.
    timeout_seconds : int or None
        Time limit of the code; None leaves it to the service.
    asynchronous : bool
        Whether to answer at once; only in the flat family.
    streams_max_length : int or None
        Characters of stdout and of stderr to keep; None leaves it to the service. Not sent before 2025-10-02.
    jupyter_format : bool
        Answer with the text that IPython shows for a value, whatever its type. Not sent before 2025-10-02.
    """

    code: str
    timeout_seconds: int | None = None
    asynchronous: bool = False
    streams_max_length: int | None = None
    jupyter_format: bool = False


class RunStatus(str, Enum):
    """State of a run; each family has its own words for it."""

    NOT_STARTED = "not_started"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    __str__ = str.__str__

    @property
    def finished(self) -> bool:
        """True if the run has ended."""
        return self not in (RunStatus.NOT_STARTED, RunStatus.RUNNING)


_FLAT_WORDS = {
    RunStatus.NOT_STARTED: "NotStarted",
    RunStatus.RUNNING: "Running",
    RunStatus.SUCCEEDED: "Succeeded",
    RunStatus.FAILED: "Failed",
    RunStatus.CANCELED: "Canceled",
}
_STATUS_BY_WORD = {
    "success": RunStatus.SUCCEEDED,
    "failure": RunStatus.FAILED,
    **{word.lower(): status for status, word in _FLAT_WORDS.items()},
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run.

    Parameters
    ----------
    status : RunStatus
        State of the run.
    stdout, stderr : str
        Printed text; a traceback is at the end of `stderr`.
    value : str, int, float, bool, dict or None
        Value of the last expression, as JSON has it.
    duration_ms : int
        Run time of the code in milliseconds.
    id : str
        Of the run; empty if the service gives none.
    identifier : str
        Of the session.
    asynchronous : bool
        Whether the run was answered before its end.
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
        """True if the code ran to its end without an error."""
        return self.status is RunStatus.SUCCEEDED

    @property
    def image(self) -> tuple[str, bytes] | None:
        """MIME type and content of a value that is a picture, None for other values."""
        return image_of(self.value)


def run_request_to_json(request: RunRequest, api_version: str) -> dict[str, Any]:
    """Return the body of a request to run code."""
    family = family_of(api_version)
    if request.asynchronous and family is Family.ENVELOPE:
        raise InvalidRequest(f"api-version {api_version} has no asynchronous runs")
    body: dict[str, Any] = {
        "codeInputType": "inline",
        "executionType": "asynchronous" if request.asynchronous else "synchronous",
        "code": request.code,
    }
    if request.timeout_seconds is not None:
        body["timeoutInSeconds"] = request.timeout_seconds
    # Versions begin with an ISO date, so they compare as text.
    if api_version >= _OPTIONS_SINCE:
        if request.streams_max_length is not None:
            body["outputStreamsMaxLength"] = request.streams_max_length
        if request.jupyter_format:
            body["returnJupyterFormatExecutionResult"] = True
    return {"properties": body} if family is Family.ENVELOPE else body


def run_request_from_json(data: Any, family: Family) -> RunRequest:
    """Read the body of a request to run code; unknown fields are ignored, as Azure does.

    Raises
    ------
    PropertiesMissing
        If it has the form of the other family, asks for a shell, or has no code.
    InvalidRequest
        If a field has a wrong value.
    """
    if not isinstance(data, dict):
        raise PropertiesMissing("the request body must be a JSON object")
    if family is Family.ENVELOPE:
        data = data.get("properties")
        if not isinstance(data, dict):
            raise PropertiesMissing("the request body must have 'properties', with 'code' in it, in this api-version")
    elif isinstance(data.get("properties"), dict) and "code" not in data:
        raise PropertiesMissing("'code' must stand at the top of the request body, not in 'properties', on this path")
    if "shellCommand" in data or "execCommandAndArgs" in data:
        raise PropertiesMissing("this is a pool of Python sessions: send 'code', not 'shellCommand'")
    # `pythonCode` is the name in the first preview.
    code = data.get("code", data.get("pythonCode"))
    if not isinstance(code, str) or not isinstance(data.get("pythonCode", ""), str):
        raise PropertiesMissing("'code' must be a string")
    if _read_word(data, "codeInputType", _INPUT_TYPES) == "inlinebase64":
        try:
            code = base64.b64decode(code, validate=True).decode()
        except (binascii.Error, ValueError):
            raise InvalidRequest("'code' must be base64 of UTF-8 text with this codeInputType") from None
    if not is_encodable(code):  # a kernel would neither run it nor say so
        raise InvalidRequest("'code' must be valid Unicode; it has half of a surrogate pair")
    return RunRequest(
        code=code,
        timeout_seconds=_read_whole(data, "timeoutInSeconds"),
        asynchronous=_read_word(data, "executionType", ("synchronous", "asynchronous")) == "asynchronous",
        streams_max_length=_read_whole(data, "outputStreamsMaxLength"),
        jupyter_format=_read_flag(data, "returnJupyterFormatExecutionResult")
        or _read_flag(data, "returnJupyterFormat"),
    )


def _read_word(data: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = data.get(name)
    if value is None:
        return words[0]
    # Clients differ in the case of these words.
    if not isinstance(value, str) or value.lower() not in words:
        raise InvalidRequest(f"{name!r} must be one of {', '.join(words)}")
    return value.lower()


def _read_whole(data: dict[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # JSON Schema takes 3.0 for 3
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_STREAMS_LENGTH:
        raise InvalidRequest(f"{name!r} must be a whole number greater than 0")
    return value


def _read_flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name!r} must be true or false")
    return bool(value)


def run_result_to_json(result: RunResult, family: Family) -> dict[str, Any]:
    """Return the answer to a request to run code, or to read a run."""
    outputs = {
        "$id": "2",
        "stdout": result.stdout,
        "stderr": result.stderr,
        "executionResult": result.value,
        "executionTimeInMilliseconds": result.duration_ms,
    }
    if family is Family.ENVELOPE:
        status = "Success" if result.ok else "Failure"
        return {"$id": "1", "properties": {**outputs, "status": status, "result": result.value}}
    body: dict[str, Any] = {
        "$id": "1",
        "id": result.id,
        "identifier": result.identifier,
        "executionType": "Asynchronous" if result.asynchronous else "Synchronous",
        "status": _FLAT_WORDS[result.status],
    }
    return {**body, "result": outputs} if result.status.finished else body


def run_result_from_json(data: Any) -> RunResult:
    """Read the answer to a run, of either family.

    Raises
    ------
    UnexpectedAnswer
        If it has no status, or an unknown one.
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
    # In the flat family, `result` holds the outputs. In the envelope it is the value, such as a picture.
    inner = nested if isinstance(nested, dict) and nested.get("type") != "image" else top
    duration = inner.get("executionTimeInMilliseconds")
    return RunResult(
        status=status,
        stdout=_text(inner.get("stdout")),
        stderr=_text(inner.get("stderr")) or _error_text(top.get("error")),
        # The envelope has `result` in recorded traffic, and `executionResult` in Microsoft's Node.js tutorial.
        value=inner.get("executionResult", inner.get("result", "") if inner is top else ""),
        duration_ms=duration if isinstance(duration, int) and not isinstance(duration, bool) else 0,
        id=_text(top.get("id")),
        identifier=_text(top.get("identifier")),
    )


def value_of(text: str | None, png: str | None = None, *, jupyter_format: bool = False) -> Any:
    """Return the JSON value for the text that IPython shows of the last expression.

    Parameters
    ----------
    text : str or None
        Its ``text/plain``; None if there is no value.
    png : str, optional
        Base64 of a picture: the value's own, or else the last that was displayed.
    jupyter_format : bool
        Return the text unchanged, and null for no value.
    """
    if png is not None:
        # Base64 in notebooks may have line breaks.
        return {"type": "image", "format": "png", "base64_data": "".join(png.split())}
    if jupyter_format:
        return text
    if text is None:
        return ""
    if text in ("True", "False"):
        return text == "True"
    if text in ("nan", "inf", "-inf"):
        return None  # JSON has no such number
    is_number = len(text) <= _MAX_NUMBER_CHARACTERS and _NUMBER.fullmatch(text)
    # Parsing any other expression could take much time and memory, and the text is hostile.
    if not is_number and not _STRING.fullmatch(text):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a leading zero, or more digits than Python reads
        return text
    return None if isinstance(value, float) and math.isinf(value) else value  # `1e999` is infinite, and no JSON


def bundle_of(value: Any) -> dict[str, Any] | None:
    """Return the MIME bundle that shows a value, None if there is no value; roughly the inverse of `value_of`."""
    if value is None or value == "":
        return None
    image = image_of(value)
    if image is not None:
        mime_type, content = image
        return {mime_type: base64.b64encode(content).decode(), "text/plain": "<picture>"}
    return {"text/plain": value if isinstance(value, str) else repr(value)}


def image_of(value: Any) -> tuple[str, bytes] | None:
    """Return the MIME type and the content of a value that is a picture, None for other values."""
    if not isinstance(value, dict) or not isinstance(value.get("base64_data"), str):
        return None
    kind = _text(value.get("format")).lower() or "png"
    try:
        content = base64.b64decode(value["base64_data"])  # skips line breaks
    except ValueError:
        return None
    return {"jpg": "image/jpeg", "svg": "image/svg+xml"}.get(kind, f"image/{kind}"), content


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return ""
    inner = error.get("error")
    return _text((inner if isinstance(inner, dict) else error).get("message"))
