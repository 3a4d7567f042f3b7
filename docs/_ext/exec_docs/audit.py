"""The records of the audit trail, from their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import yaml

from .markdown import code, named, section, sentence, table
from .schemas import type_of


def audit() -> str:
    """Return what every record has, and a section for each kind."""
    kinds = schemas()
    common = next(iter(kinds.values()))["properties"]
    shared = ["seq", "at", "previous", "digest"]
    rows = [[code(name), type_of(common[name]), named(common[name]["description"])] for name in shared]
    head = section(2, "In every record", table(["field", "type", "meaning"], rows))
    return head + "".join(_section(name, schema) for name, schema in kinds.items())


def schemas() -> dict[str, Mapping[str, Any]]:
    """Return the schemas by kind."""
    root = files("jupyter_exec_ext.audit") / "schemas"
    kinds = sorted(kind.name for kind in root.iterdir() if kind.is_dir())
    return {kind: yaml.safe_load((root / kind / "v1.yaml").read_text(encoding="utf-8")) for kind in kinds}


def _section(kind: str, schema: Mapping[str, Any]) -> str:
    properties = schema["properties"]
    rows = [
        [code("principal"), named(properties["principal"].get("description", ""))],
        [code("subject"), named(properties["subject"].get("description", ""))],
    ]
    data = properties["data"].get("properties", {})
    return section(
        2,
        code(kind),
        f"Schema: {code(schema['$id'])}",
        named(schema["description"]),
        table(
            ["action", "when"], [[code(name), named(sentence(text))] for name, text in actions(properties["action"])]
        ),
        table(["field", "meaning"], rows),
        table(
            ["in `data`", "type", "meaning"],
            [[code(name), type_of(field), named(field.get("description", ""))] for name, field in data.items()],
        )
        if data
        else "",
    )


def actions(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the actions of a kind with what they mean.

    A schema's description says that line by line, as ``approved, edited - …``.

    Raises
    ------
    KeyError
        For an action that the description leaves out.
    """
    meanings: dict[str, str] = {}
    for line in schema["description"].splitlines():
        names, dash, meaning = line.partition(" - ")
        if dash:
            meanings |= dict.fromkeys(names.strip().split(", "), meaning)
    return [(name, meanings[name]) for name in schema["enum"]]
