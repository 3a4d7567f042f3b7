"""Output truncation: what is left of long texts, and what is never cut."""

from __future__ import annotations

from typing import Any

from jupyter_exec_ext.mcp.output_truncation import KEPT_CHARACTERS, KEPT_OUTPUTS, truncate_outputs
from jupyter_exec_ext.models import Execution, ExecutionState


def shortened(output: dict[str, Any]) -> dict[str, Any]:
    record = Execution("exe", "ses", ExecutionState.OK, "", "2026-01-01T00:00:00Z", outputs=(output,))
    return dict(truncate_outputs(record).outputs[0])


def test_long_text_keeps_its_ends_and_says_how_much_is_left_out() -> None:
    text = "a" * KEPT_CHARACTERS + "b" * 7 + "c" * KEPT_CHARACTERS
    found = shortened({"output_type": "stream", "name": "stdout", "text": text})["text"]
    assert found == "a" * KEPT_CHARACTERS + "\n[... 7 characters left out ...]\n" + "c" * KEPT_CHARACTERS


def test_short_text_and_pictures_stay_as_they_are() -> None:
    picture = "iVBOR" * KEPT_CHARACTERS
    output = {"output_type": "display_data", "data": {"text/plain": "x" * 2 * KEPT_CHARACTERS, "image/png": picture}}
    assert shortened(output) == output


def test_long_lines_of_a_traceback_are_cut() -> None:
    output = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["y" * 3 * KEPT_CHARACTERS]}
    assert len(shortened(output)["traceback"][0]) < 2 * KEPT_CHARACTERS + 100


def test_middle_of_many_outputs_is_left_out_with_a_note() -> None:
    outputs = tuple({"output_type": "stream", "name": "stdout", "text": f"{n} "} for n in range(2 * KEPT_OUTPUTS + 3))
    record = Execution("exe", "ses", ExecutionState.OK, "", "2026-01-01T00:00:00Z", outputs=outputs)
    found = truncate_outputs(record).outputs
    assert len(found) == 2 * KEPT_OUTPUTS + 1
    assert found[KEPT_OUTPUTS]["text"] == "\n[... 3 outputs left out ...]\n"
    assert found[-1] == outputs[-1]
