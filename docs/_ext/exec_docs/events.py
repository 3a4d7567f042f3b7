"""The output events of an execution, from the records that make them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from jupyter_exec_ext.models import OutputEvent
from jupyter_exec_ext.protocol.records_json import EVENT_TYPES

from .markdown import code, named, section, table

# `late_from` is `late` and `from` in JSON, and of two types of events alone; the page describes it.
_IN_EVERY = {"seq", "at", "late_from"}
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
    text, _, parameters = inspect.cleandoc(event.__doc__ or "").partition("\nParameters\n")
    meanings = dict(_meanings(parameters))
    rows = [
        [code(each.name), json_type(str(each.type)), _default(each), meanings.get(each.name, "")]
        for each in own_fields(event)
    ]
    body = table(["field", "type", "default", "meaning"], rows) if rows else "No fields of its own."
    return section(3, code(name), named(text), body)


def _meanings(parameters: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that a NumPy section describes, each with its description."""
    for names, text in re.findall(r"^(\w[^\n]*)\n((?:    .*\n?)+)", parameters, re.MULTILINE):
        for name in names.partition(" : ")[0].split(", "):
            yield name, named(" ".join(text.split()))


def own_fields(event: type[OutputEvent]) -> list[Field[Any]]:
    """Return the fields that other events do not have."""
    return [field for field in fields(event) if field.name not in _IN_EVERY]


def json_type(annotation: str) -> str:
    """Return how a field's type looks in JSON.

    Raises
    ------
    KeyError
        For a type that has no words yet.
    """
    return " or ".join(_JSON[part.strip()] for part in annotation.split("|"))


def _default(field: Field[Any]) -> str:
    return "" if field.default is MISSING else code(json.dumps(field.default))
