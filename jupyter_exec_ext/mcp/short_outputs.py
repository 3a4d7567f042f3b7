"""Short outputs: the beginning and the end of long texts in an execution's outputs, before they are cleaned for a model.

Cleaning takes 0.1 s for each million characters (2026-11-27), and a model gets 20,000 bytes at most. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..models import Execution

#: Characters that are kept at either end of a text.
KEPT_CHARACTERS = 50_000


def with_short_outputs(execution: Execution) -> Execution:
    """Return the execution with the middle of each long text left out; pictures stay as they are."""
    return replace(execution, outputs=tuple(_short(output) for output in execution.outputs))


def _short(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name.startswith("image/") else _ends(value)
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {key: _short(item, key) for key, item in value.items()}
    return value


def _ends(text: str) -> str:
    left_out = len(text) - 2 * KEPT_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:KEPT_CHARACTERS]}\n[... {left_out} characters left out ...]\n{text[-KEPT_CHARACTERS:]}"
