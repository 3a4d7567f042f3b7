"""Executions that a search has found, as JSON and back."""

from __future__ import annotations

from typing import Any

from ..errors import UnexpectedAnswer
from ..models import FoundExecution, JSONObject
from .records_json import execution_from_json, summary_to_json

_NAMES = ("owner", "session_name", "token_name")


def found_to_json(found: FoundExecution) -> JSONObject:
    """Return a found execution as a JSON object, without its outputs."""
    return {"execution": summary_to_json(found.execution)} | {name: getattr(found, name) for name in _NAMES}


def found_from_json(data: Any) -> FoundExecution:
    """Read a `FoundExecution`; raises `UnexpectedAnswer` if it is none."""
    if not isinstance(data, dict):
        raise UnexpectedAnswer("the server sent something else than the FoundExecution that was expected")
    names = {name: str(data.get(name) or "") for name in _NAMES}
    return FoundExecution(execution_from_json(data.get("execution")), **names)
