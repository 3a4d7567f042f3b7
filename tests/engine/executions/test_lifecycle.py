from __future__ import annotations

import itertools

import pytest

from jupyter_exec_ext.engine.executions.lifecycle import TRANSITIONS, advance
from jupyter_exec_ext.models import ExecutionState


def test_every_state_is_in_the_table_as_open_or_as_terminal() -> None:
    assert {state for state in ExecutionState if not state.finished} == set(TRANSITIONS)


def test_a_terminal_state_is_never_left() -> None:
    for old, new in itertools.product(ExecutionState, repeat=2):
        if old.finished:
            with pytest.raises(ValueError, match=old.value):
                advance(old, new)


def test_every_open_state_can_end() -> None:
    for state, reachable in TRANSITIONS.items():
        assert any(new.finished for new in reachable), state


def test_advance_follows_the_table() -> None:
    for old, new in itertools.product(TRANSITIONS, ExecutionState):
        if new in TRANSITIONS[old]:
            assert advance(old, new) is new
        else:
            with pytest.raises(ValueError, match="cannot go"):
                advance(old, new)
