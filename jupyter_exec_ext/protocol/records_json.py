"""JSON of our HTTP API: converts records and events to JSON and, for the client, back.

Times are UTC ISO 8601 with ``Z``, durations seconds, sizes bytes. Answers are read tolerantly, so that an older client
understands a newer server. `request_parsing` reads requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timezone
from enum import Enum
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

from ..errors import UnexpectedAnswer
from ..models import (
    Approval,
    ApprovalFinding,
    ClearEvent,
    Decision,
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    ErrorInfo,
    Execution,
    ExecutionState,
    FileInfo,
    FilesEvent,
    Grant,
    InputRequestEvent,
    IssuedToken,
    JSONObject,
    KernelGrant,
    KernelSpecInfo,
    LateOutput,
    OutputEvent,
    ResponsiveEvent,
    Restore,
    ResultEvent,
    Session,
    SessionState,
    SessionStateLostEvent,
    SpooledOutput,
    StateEvent,
    StateLoss,
    StreamEvent,
    Token,
    TruncatedEvent,
    Truncation,
    UnresponsiveEvent,
)
from .output_joining import text_in
from .strict_json import dumps

SUMMARY_CODE_CHARS = 4096

Record = (
    Execution
    | Restore
    | Session
    | ErrorInfo
    | Truncation
    | SpooledOutput
    | KernelSpecInfo
    | FileInfo
    | Approval
    | ApprovalFinding
    | StateLoss
    | Token
    | Grant
    | KernelGrant
)
R = TypeVar("R")
EVENT_TYPES: dict[str, type[OutputEvent]] = {
    cls.type: cls
    for cls in (
        StateEvent,
        StreamEvent,
        DisplayEvent,
        ResultEvent,
        ClearEvent,
        ErrorEvent,
        InputRequestEvent,
        UnresponsiveEvent,
        ResponsiveEvent,
        SessionStateLostEvent,
        TruncatedEvent,
        FilesEvent,
        EndEvent,
    )
}


def utc_timestamp(seconds: float) -> str:
    """Return the UTC time `seconds` after the epoch as ISO 8601 with milliseconds and ``Z``."""
    second, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(second)}.{microseconds // 1000:03}Z"


@lru_cache(maxsize=16)  # several texts are of the same second
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()[:19]


def seconds_of(timestamp: str) -> float:
    """Return the seconds after the epoch of what `utc_timestamp` has made."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


# --- out -----------------------------------------------------------------------------------------------------------

# Most values are JSON already.
_JSON_TYPES = frozenset({str, int, float, bool, type(None), dict, list})


def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


_names: Callable[[Any], tuple[str, ...]] = cache(_field_names)


def _plain(value: Any) -> Any:
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):  # the files of an execution, spooled outputs; everything else is JSON already
        return [_plain(item) for item in value]
    return to_json(value) if isinstance(value, Record) else value


def to_json(record: Record) -> JSONObject:
    """Return a record as a JSON object with the record's own field names."""
    return _fields(record, _names(type(record)))


def _fields(record: Any, names: tuple[str, ...]) -> JSONObject:
    values = [(name, getattr(record, name)) for name in names]
    return {name: value if type(value) in _JSON_TYPES else _plain(value) for name, value in values}


_OUTPUT_FIELDS = frozenset({"stdout", "stderr", "outputs"})
_SUMMARY_FIELDS = tuple(name for name in _names(Execution) if name not in _OUTPUT_FIELDS)


def summary_to_json(execution: Execution) -> JSONObject:
    """Return an execution for a list: without its outputs, and of long code the beginning."""
    summary = _fields(execution, _SUMMARY_FIELDS)
    summary["code"] = execution.code[:SUMMARY_CODE_CHARS]
    return summary


def bare_to_json(execution: Execution) -> JSONObject:
    """Return an execution without what the events before its end have told: its outputs."""
    return _fields(execution, _SUMMARY_FIELDS)


def is_bare(execution: Any) -> bool:
    """Return whether the JSON of an execution is what `bare_to_json` returns."""
    return isinstance(execution, dict) and "outputs" not in execution


_ONCE_FIELDS = tuple(name for name in _names(Execution) if name not in ("stdout", "stderr"))


def once_to_json(execution: Execution) -> JSONObject:
    """Return an execution with no text twice: `stdout` and `stderr` are in its outputs."""
    return _fields(execution, _ONCE_FIELDS)


def event_to_json(event: OutputEvent, seq: int, at: str) -> JSONObject:
    """Return an output event as a JSON object."""
    numbered = {"seq": seq, "type": event.type, "at": at}
    fields = _fields(event, _event_names(type(event)))
    if event.late_from is not None:
        return {**numbered, **fields, "late": True, "from": event.late_from}
    return {**numbered, **fields}


def _own_field_names(cls: Any) -> tuple[str, ...]:
    """Return the fields of a kind of event beside those that all kinds have."""
    return tuple(name for name in _names(cls) if name not in _names(OutputEvent))


_event_names: Callable[[Any], tuple[str, ...]] = cache(_own_field_names)


def event_to_text(event: OutputEvent, seq: int, at: str) -> str:
    """Return an output event as one line of JSON."""
    return dumps(event_to_json(event, seq, at))


def execution_in(end: bytes) -> bytes:
    """Return the JSON of the execution in an `EndEvent` as `event_to_text` wrote it: what `to_json` makes of it."""
    return end[len(before_execution(end)) : -1]


def before_execution(end: bytes) -> bytes:
    """Return what stands before the execution in an `EndEvent`; after it stands a brace."""
    name = b'"execution":'
    return end[: end.index(name) + len(name)]


# --- in: answers, read by the client -------------------------------------------------------------------------------


def _build(cls: type[R], data: Any, convert: Mapping[str, Callable[[Any], Any]]) -> R:
    """Make a record from the known fields of `data`."""
    if not isinstance(data, dict):
        raise UnexpectedAnswer(f"the server sent something else than the {cls.__name__} that was expected")
    known = _names(cls)
    try:
        return cls(
            **{
                name: convert[name](value) if name in convert and value is not None else value
                for name, value in data.items()
                if name in known  # a newer server may send more
            }
        )
    except (TypeError, ValueError) as error:
        raise UnexpectedAnswer(f"the server sent a {cls.__name__} that cannot be read: {error}") from None


def _each(cls: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that makes records of a list."""
    return lambda items: tuple(_build(cls, item, {}) for item in items)


def truncation_from_json(data: Any) -> Truncation:
    """Read a `Truncation`."""
    return _build(Truncation, data, {"spooled": _each(SpooledOutput)})


def file_info_from_json(data: Any) -> FileInfo:
    """Read a `FileInfo`."""
    return _build(FileInfo, data, {})


def execution_from_json(data: Any) -> Execution:
    """Read an `Execution`, if need be from `once_to_json`; raises `UnexpectedAnswer` if it is none."""
    execution = _build(
        Execution,
        data,
        {
            "state": ExecutionState,
            "error": partial(_build, ErrorInfo, convert={}),
            "truncated": truncation_from_json,
            "files": _each(FileInfo),
            "approval": approval_from_json,
            "session_state_lost": partial(_build, StateLoss, convert={}),
            "late_from": tuple,  # JSON has no tuples
        },
    )
    if not execution.outputs or "stdout" in data:
        return execution
    try:
        stdout, stderr = (text_in(execution.outputs, name) for name in ("stdout", "stderr"))
    except (TypeError, KeyError) as error:
        raise UnexpectedAnswer(f"the server sent outputs that cannot be read: {error!r}") from None
    return replace(execution, stdout=stdout, stderr=stderr)


def approval_from_json(data: Any) -> Approval:
    """Read an `Approval`."""
    return _build(Approval, data, {"decision": Decision, "findings": _each(ApprovalFinding), "approved_kinds": tuple})


def token_from_json(data: Any) -> Token:
    """Read a `Token`; raises `UnexpectedAnswer` if it is none."""
    return _build(Token, data, {"scopes": tuple})


def grant_from_json(data: Any) -> Grant:
    """Read a `Grant`."""
    return _build(Grant, data, {})


def kernel_grant_from_json(data: Any) -> KernelGrant:
    """Read a `KernelGrant`; raises `UnexpectedAnswer` if it is none."""
    return _build(KernelGrant, data, {})


def issued_token_from_json(data: Any) -> IssuedToken:
    """Read a token with its secret; raises `UnexpectedAnswer` if there is none."""
    if not isinstance(data, dict) or not isinstance(data.get("token"), str):
        raise UnexpectedAnswer("the server sent no token")
    return IssuedToken(token_from_json(data), data["token"])


def issued_token_to_json(issued: IssuedToken) -> JSONObject:
    """Return a token with its secret, as it is shown once."""
    return {**to_json(issued.token), "token": issued.text}


def session_from_json(data: Any) -> Session:
    """Read a `Session`; raises `UnexpectedAnswer` if it is none."""
    lists = dict.fromkeys(("approved_kinds", "open_ports", "wanted_rules"), tuple)
    return _build(Session, data, {"state": SessionState, "restores": _each(Restore), **lists})


def late_output_to_json(late: LateOutput) -> JSONObject:
    """Return late output as a JSON object; its events are in no log yet, and have no numbers."""
    fields = _fields(late, ("execution_id", "session_id", "late_bytes"))
    return {**fields, "events": [event_to_json(event, event.seq, event.at) for event in late.events]}


def late_output_from_json(data: Any) -> LateOutput:
    """Read a `LateOutput`."""
    return _build(LateOutput, data, {"events": lambda items: tuple(filter(None, map(event_from_json, items)))})


def kernelspec_from_json(data: Any) -> KernelSpecInfo:
    """Read a `KernelSpecInfo`."""
    return _build(KernelSpecInfo, data, {})


def event_from_json(data: Any) -> OutputEvent | None:
    """Read an output event; None for a type that this version does not know."""
    cls = EVENT_TYPES.get(kind) if isinstance(data, dict) and isinstance(kind := data.get("type"), str) else None
    if cls is None:
        return None
    event = _build(
        cls,
        data,
        {
            "state": ExecutionState,
            "execution": execution_from_json,
            "truncated": truncation_from_json,
            "files": _each(FileInfo),
        },
    )
    return replace(event, late_from=str(data.get("from", ""))) if data.get("late") else event
