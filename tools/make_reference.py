"""Write the parts of the documents that are made from the code: the reference, policies, and parts of openapi.yaml.

python tools/make_reference.py            rewrite the marked parts
python tools/make_reference.py --check    exit with 1 if they are not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))  # beside the pages that it is for

import exec_docs

from jupyter_exec_ext.auth.approval_patterns import TRIGGERS
from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import (
    MAX_COUNT,
    MAX_PATTERNS,
    MAX_POLICY_SECRETS,
    MAX_SECONDS,
    MAX_TEXT,
    MAY_BE_ZERO,
    SECRET_NAME,
    policy_to_json,
)
from jupyter_exec_ext.auth.scopes import SCOPES

OPENAPI = "jupyter_exec_ext/server/openapi.yaml"
# In Markdown and in YAML, a mark is a comment of its own line; the second one ends the part.
_PART = re.compile(
    r"(?P<begin>^ *(?:<!--|#) made from the code: (?P<name>\w+)(?: -->)?\n)"
    r"(?P<body>.*?)"
    r"(?P<end>^ *(?:<!--|#) until here)",
    re.MULTILINE | re.DOTALL,
)
_YAML_TYPES = {
    "tuple[str, ...]": "type: array, items: {type: string}",
    "tuple[tuple[str, str], ...]": "type: object, additionalProperties: {type: string}",
    "int | None": 'type: [integer, "null"]',
    "float | None": 'type: [number, "null"]',
    "bool": "type: boolean",
    "str | tuple[str, ...] | None": (
        'anyOf: [{type: string, enum: [none, host]}, {type: array, items: {type: string}}, {type: "null"}]'
    ),
}


def policy_fields() -> str:
    """Return the table of a policy's fields, with the values of the built-in policies."""
    built_in = {name: policy_to_json(policy) for name, policy in BUILT_IN.items()}
    names = " | ".join(f"`{name}`" for name in built_in)
    lines = [f"| field | limits | {names} |", "|---|---|" + "---|" * len(built_in)]
    for field in fields(Policy):
        if field.name != "name":
            unset = field.metadata.get("unset", "no limit")
            values = " | ".join(_shown(data[field.name], unset) for data in built_in.values())
            lines.append(f"| `{field.name}` | {field.metadata['help']} | {values} |")
    return "\n".join(lines) + "\n"


def triggers() -> str:
    """Return the table of what a person can be asked about."""
    rows = [f"| `{name}` | {text} |" for name, text in TRIGGERS.items()]
    return "\n".join(["| `when` | asks about |", "|---|---|", *rows]) + "\n"


def _shown(value: Any, unset: str) -> str:
    if value is None:
        return unset
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    if isinstance(value, dict):
        return str(value) if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def openapi_scopes() -> str:
    """Return the scopes as a schema's values."""
    return "".join(f'        - "{name}"\n' for name in SCOPES)


def openapi_policy() -> str:
    """Return a policy's fields as a schema's properties."""
    lines = []
    for field in fields(Policy):
        if str(field.type) in _YAML_TYPES:
            text = field.metadata["help"]
            text = f"{text[0].upper()}{text[1:]}.".replace("`", "")
            lines.append(f'        {field.name}: {{{_YAML_TYPES[str(field.type)]}, description: "{text}"}}\n')
    return "".join(lines)


def openapi_limits() -> str:
    """Return the same as a request may have them."""
    lines = []
    for field in fields(Policy):
        if (kind := _YAML_TYPES.get(str(field.type))) is not None:
            lowest = 0 if field.name in MAY_BE_ZERO else 1
            kind = kind.replace("string", f"string, minLength: 1, maxLength: {MAX_TEXT}")
            kind = kind.replace("object", f"object, maxProperties: {MAX_PATTERNS}, propertyNames: {{minLength: 1}}")
            kind = kind.replace("array", f"array, maxItems: {MAX_PATTERNS}")
            if field.name == "secrets":
                name = f'{{type: string, pattern: "^{SECRET_NAME.pattern}$"}}'
                kind = f"type: array, maxItems: {MAX_POLICY_SECRETS}, items: {name}"
            kind += {
                "int | None": f", minimum: {lowest}, maximum: {MAX_COUNT}",
                "float | None": f", exclusiveMinimum: 0, maximum: {MAX_SECONDS:.0f}",
            }.get(str(field.type), "")
            lines.append(f"        {field.name}: {{{kind}}}\n")
    return "".join(lines)


def separated(part: Callable[[], str]) -> str:
    """Return a part of the reference between empty lines, so that its marks belong to no paragraph or table."""
    return "\n" + part().strip("\n") + "\n\n"


PARTS: dict[str, Callable[[], str]] = {
    **{name: partial(separated, part) for name, part in exec_docs.PARTS.items()},
    "policy_fields": policy_fields,
    "triggers": triggers,
    "openapi_scopes": openapi_scopes,
    "openapi_policy": openapi_policy,
    "openapi_limits": openapi_limits,
}


def made(text: str) -> str:
    """Return a document with its marked parts written anew."""
    return _PART.sub(lambda match: match["begin"] + PARTS[match["name"]]() + match["end"], text)


def documents() -> list[str]:
    """Return the files with marked parts; openapi.yaml first, since the reference is made from it."""
    pages = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in (OPENAPI, *pages) if _PART.search((ROOT / path).read_text(encoding="utf-8"))]


def main() -> int:
    """Write the documents, or check them."""
    is_check = "--check" in sys.argv[1:]
    stale = False
    for path in documents():
        before = (ROOT / path).read_text(encoding="utf-8")
        after = made(before)
        if after != before:
            stale = True
            print(f"{path} is not up to date; run python tools/make_reference.py" if is_check else path)
            if not is_check:
                (ROOT / path).write_text(after, encoding="utf-8")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
