"""Output truncation: keeps the head and the tail of long texts, before they are cleaned for a model.

Cleaning takes 0.1 s for each million characters (2026-11-27), and a model gets 20,000 bytes at most. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..models import Execution

#: Characters that are kept at either end of a text.
KEPT_CHARACTERS = 50_000
#: Outputs that are kept at either end.
KEPT_OUTPUTS = 100


def truncate_outputs(execution: Execution) -> Execution:
    """Return the execution without the middle of long texts and of many outputs; pictures stay as they are."""
    outputs = list(execution.outputs)
    left_out = len(outputs) - 2 * KEPT_OUTPUTS
    if left_out > 0:
        note = {"output_type": "stream", "name": "stdout", "text": f"\n[... {left_out} outputs left out ...]\n"}
        outputs = [*outputs[:KEPT_OUTPUTS], note, *outputs[-KEPT_OUTPUTS:]]
    return replace(execution, outputs=tuple(map(_truncate_value, outputs)))


def _truncate_value(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name.startswith("image/") else _truncate_text(value)
    if isinstance(value, list):
        return [_truncate_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _truncate_value(item, key) for key, item in value.items()}
    return value


def _truncate_text(text: str) -> str:
    left_out = len(text) - 2 * KEPT_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:KEPT_CHARACTERS]}\n[... {left_out} characters left out ...]\n{text[-KEPT_CHARACTERS:]}"
