"""JSON schemas in words: what a value may be, and the fields of an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .markdown import code, sentence, table

Schema = Mapping[str, Any]


def type_of(schema: Schema) -> str:
    """Return what a value may be, such as "array of [`Token`](#token) or null"."""
    if "$ref" in schema:
        return link(schema["$ref"])
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return ", ".join("null" if value is None else code(str(value)) for value in schema["enum"])
    for word, joined in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " with ")):
        if word in schema:
            return joined.join(type_of(choice) for choice in schema[word])
    kinds = schema.get("type", "any value")
    return " or ".join(_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: Schema) -> str:
    if kind == "array" and schema.get("items"):
        return f"array of {type_of(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        return f"object with {', '.join(code(name) for name in schema['properties'])}"
    return "time" if kind == "string" and schema.get("format") == "date-time" else kind


def link(reference: str) -> str:
    """Return a link to a record's heading on the same page."""
    name = reference.rpartition("/")[2]
    return f"[`{name}`](#{name.lower()})"


def bounds(schema: Schema) -> str:
    """Return how large, long or many a value may be, and its default."""
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "maxProperties": "at most {} entries",
        "pattern": "matches `{}`",
        "default": "default `{}`",
    }
    said = [text.format(_number(schema[word])) for word, text in words.items() if word in schema]
    return sentence(", ".join(said)) if said else ""


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}".replace("_", ",") if isinstance(value, int) else str(value)


def fields(schema: Schema) -> str:
    """Return the table of an object's fields; those of all parts, if it has several."""
    rows = []
    for part in _parts(schema):
        required = part.get("required", [])
        for name, field in part.get("properties", {}).items():
            text = " ".join(filter(None, [sentence(field.get("description", "")), bounds(field)]))
            rows.append([code(name), type_of(field), "yes" if name in required else "", text])
    return table(["field", "type", "required", "meaning"], rows) if rows else ""


def _parts(schema: Schema) -> list[Schema]:
    return [part for part in schema.get("allOf", [schema]) if "$ref" not in part]


def extended(schema: Schema) -> list[str]:
    """Return the references to the records whose fields an object has as well."""
    return [part["$ref"] for part in schema.get("allOf", []) if "$ref" in part]
