"""Requests to run code in an ACA session: as a client sends them, and as a server reads them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidRequest, PropertiesMissing
from .addresses import Family, family_of

RUN_PATHS = {Family.ENVELOPE: "code/execute", Family.FLAT: "executions"}
_OPTIONS_SINCE = "2025-10-02-preview"
_MAX_STREAMS_LENGTH = 2**31 - 1
_INPUT_TYPES = ("inline", "inlinetext", "inlinebase64")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Code to run.

    Parameters
    ----------
    timeout_seconds : int or None
        After which the service stops it; None leaves it to the service.
    asynchronous : bool
        Answer at once; only in the flat family.
    streams_max_length : int or None
        How much of stdout and stderr is kept; None leaves it to the service. Not sent before 2025-10-02.
    jupyter_format : bool
        Answer with the text that IPython shows for a value, whatever its type. Not sent before 2025-10-02.
    """

    code: str
    timeout_seconds: int | None = None
    asynchronous: bool = False
    streams_max_length: int | None = None
    jupyter_format: bool = False


def run_request_to_json(request: RunRequest, api_version: str) -> dict[str, Any]:
    """Return the body that asks for a run."""
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
    if api_version >= _OPTIONS_SINCE:
        if request.streams_max_length is not None:
            body["outputStreamsMaxLength"] = request.streams_max_length
        if request.jupyter_format:
            body["returnJupyterFormatExecutionResult"] = True
    return {"properties": body} if family is Family.ENVELOPE else body


def run_request_from_json(data: Any, family: Family) -> RunRequest:
    """Read the body of a request to run code.

    Unknown fields are left alone, as Azure does: clients send an identifier and more.

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
    code = data.get("code", data.get("pythonCode"))
    if not isinstance(code, str):
        raise PropertiesMissing("'code' must be a string")
    return RunRequest(
        code=_decoded(code, _word(data, "codeInputType", _INPUT_TYPES)),
        timeout_seconds=_whole(data, "timeoutInSeconds"),
        asynchronous=_word(data, "executionType", ("synchronous", "asynchronous")) == "asynchronous",
        streams_max_length=_whole(data, "outputStreamsMaxLength"),
        jupyter_format=_flag(data, "returnJupyterFormatExecutionResult") or _flag(data, "returnJupyterFormat"),
    )


def _decoded(code: str, input_type: str) -> str:
    if input_type != "inlinebase64":
        return code
    try:
        return base64.b64decode(code, validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidRequest("'code' must be base64 of UTF-8 text with this codeInputType") from None


def _word(data: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    value = data.get(name)
    if value is None:
        return words[0]
    if not isinstance(value, str) or value.lower() not in words:
        raise InvalidRequest(f"{name!r} must be one of {', '.join(words)}")
    return value.lower()


def _whole(data: dict[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # JSON Schema takes 3.0 for 3
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_STREAMS_LENGTH:
        raise InvalidRequest(f"{name!r} must be a whole number greater than 0")
    return value


def _flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequest(f"{name!r} must be true or false")
    return bool(value)
