"""Lines of a session's history, by what ran and what was restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import Restore
from jupyter_exec_ext.protocol.history_lines import current_line


def restores(*pairs: tuple[str | None, str | None]) -> list[Restore]:
    return [Restore("chk", "", after, before) for after, before in pairs]


@pytest.mark.parametrize(
    ("executions", "returns", "line"),
    [
        ("abc", [], "abc"),
        ("abcd", [("a", "c")], "ad"),
        ("abcd", [("a", "c"), ("a", "a")], "ad"),  # twice, with nothing between
        ("abcd", [(None, "b")], "cd"),
        ("abcde", [("a", "b"), ("a", "d")], "ae"),
        ("abcde", [("b", "c"), ("a", "d")], "ae"),  # to an earlier one, then
        ("cde", [("a", "b"), ("c", "d")], "ce"),  # the oldest are not kept any more
        ("ab", [(None, None)], "ab"),
        ("abc", [("a", "b"), ("b", "c")], "ab"),  # to a checkpoint of the line that was left
        ("abcd", [("a", "b"), ("b", "a"), ("b", "c")], "abd"),
    ],
)
def test_what_ran_between_a_checkpoint_and_a_return_is_left_out(
    executions: str, returns: list[tuple[str | None, str | None]], line: str
) -> None:
    assert current_line(list(executions), restores(*returns)) == list(line)


@given(st.lists(st.one_of(st.just("run"), st.just("checkpoint"), st.integers(0, 5)), max_size=40))
def test_it_is_what_a_session_has_run(steps: list[str | int]) -> None:
    """Any history of runs, checkpoints and returns (a number chooses the checkpoint)."""
    line: list[str] = []
    executions: list[str] = []
    checkpoints: list[list[str]] = []
    returns: list[tuple[str | None, str | None]] = []
    for step in steps:
        if step == "run":
            executions.append(str(len(executions)))
            line = [*line, executions[-1]]
        elif step == "checkpoint":
            checkpoints.append(line)
        elif isinstance(step, int) and step < len(checkpoints):
            kept = checkpoints[step]
            returns.append((kept[-1] if kept else None, line[-1] if line else None))
            line = kept
    assert current_line(executions, restores(*returns)) == line
