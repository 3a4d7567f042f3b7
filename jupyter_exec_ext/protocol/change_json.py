"""JSON of changes: reads the events of the change feed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..models import Change
from .records_json import (
    execution_from_json,
    kernel_grant_from_json,
    late_output_from_json,
    session_from_json,
    token_from_json,
)
from .view_json import checkpoint_event_from_json

_READERS: dict[str, Callable[[Any], Any]] = {
    "session": session_from_json,
    "execution": execution_from_json,
    "token": token_from_json,
    "late_output": late_output_from_json,
    "grant": kernel_grant_from_json,
    "checkpointed": checkpoint_event_from_json,
    "restored": checkpoint_event_from_json,
    "branched": checkpoint_event_from_json,
    "checkpoint_deleted": checkpoint_event_from_json,
}


def change_from_json(cursor: str, kind: str, data: Any) -> Change | None:
    """Read an event of the change feed; None for a kind that this version does not know."""
    record = data.get(kind) if isinstance(data, dict) else None
    if kind in _READERS:
        return Change(cursor, **{kind: _READERS[kind](record)})
    return Change(cursor) if kind == "reset" else None
