from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.auth.budget import Budget


def test_the_burst_and_then_the_rate() -> None:
    budget = Budget(20, 10, 100)
    assert [budget.spend("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert budget.spend("a", 0.0) == pytest.approx(6.0)
    assert budget.spend("a", 5.9) > 0
    assert budget.spend("a", 6.1) == 0.0
    assert budget.spend("a", 6.1) > 0


def test_one_key_is_no_matter_of_another() -> None:
    budget = Budget(1, 1, 100)
    assert budget.spend("a", 0.0) == 0.0
    assert budget.spend("a", 0.0) > 0
    assert budget.spend("b", 0.0) == 0.0


@given(st.lists(st.floats(-100, 1000), min_size=1, max_size=200))
def test_no_more_is_spent_than_there_is_whatever_the_clock_does(times: list[float]) -> None:
    budget = Budget(5, 60, 10)
    spent = sum(budget.spend("a", now) == 0.0 for now in times)
    latest = max(times)
    assert spent <= 5 + (latest - times[0] if latest > times[0] else 0) + 1e-6


def test_memory_is_bounded_and_whoever_is_used_least_is_forgotten() -> None:
    budget = Budget(1, 1, 3)
    for key in ("a", "b", "c", "a", "d"):
        budget.spend(key, 0.0)
    assert budget.left("b", 0.0) == 1.0  # forgotten, so it has all again
    assert budget.left("a", 0.0) == budget.left("d", 0.0) == 0.0


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_budget_that_lets_nobody_in_is_an_error(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Budget(*numbers)
