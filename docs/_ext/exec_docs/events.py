"""The output events of an execution, from the records that make them."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, Field, fields
from typing import Any

from jupyter_exec_ext.models import OutputEvent
from jupyter_exec_ext.protocol.records_json import EVENT_TYPES

from .markdown import code, section, table

_IN_EVERY = {"seq", "at"}
# How the types of our records look in JSON.
_JSON = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "JSONObject": "object",
    "ExecutionState": "string, a state",
    "Truncation": "object",
    "Execution": "object, an execution",
    "Sequence[FileInfo]": "array of files",
}


def events() -> str:
    """Return a section for each type of event."""
    return "".join(_section(name, event) for name, event in EVENT_TYPES.items())


def _section(name: str, event: type[OutputEvent]) -> str:
    rows = [[code(field.name), json_type(str(field.type)), _default(field)] for field in own_fields(event)]
    text = inspect.cleandoc(event.__doc__ or "").partition("\nParameters\n")[0]
    body = table(["field", "type", "default"], rows) if rows else "No fields of its own."
    return section(2, code(name), text, body)


def own_fields(event: type[OutputEvent]) -> list[Field[Any]]:
    """Return the fields that other events do not have."""
    return [field for field in fields(event) if field.name not in _IN_EVERY]


def json_type(annotation: str) -> str:
    """Return how a field's type looks in JSON.

    Raises
    ------
    KeyError
        For one that nobody has put into words yet.
    """
    return " or ".join(_JSON[part.strip()] for part in annotation.split("|"))


def _default(field: Field[Any]) -> str:
    return "" if field.default is MISSING else code(json.dumps(field.default))
