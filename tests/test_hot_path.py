"""Guards of the hot paths, an execution's and a fork's: work, counted and held against a budget, without a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUDGETS = ROOT / "tests" / "budgets"
# Other versions of Python and of the libraries call a little more or less.
SLACK = {"calls": 1.10, "own_calls": 1.03, "json_encodes": 1.10, "json_decodes": 1.10}
# They depend on when messages come, too; a new one of each execution's shows all the same.
SLACK |= {"loop_turns": 1.25, "timers": 1.40}
# A busy machine makes a parent fork ahead now and then.
SLACK |= {"c_calls": 1.20, "forks": 1.50}

HOW_TO = """
Where it comes from: python -m tests.{path} --functions, here and before the change, and compare the two.
If it is worth its price, change tests/budgets/{path}.json, and say in the commit what the price buys.
"""


def over_budget(figures: dict[str, int], budget: dict[str, int]) -> list[str]:
    """Return, in words, what is more than the budget allows."""
    return [
        f"{name}: {count}, and the budget is {budget.get(name, 0)}"
        for name, count in figures.items()
        if count > budget.get(name, 0) * SLACK.get(name, 1.0)
    ]


@pytest.mark.parametrize("path", ["hot_path", "fork_path"])
def test_a_path_keeps_to_its_budget(path: str) -> None:
    command = [sys.executable, "-m", f"tests.{path}"]
    counted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert counted.returncode == 0, counted.stderr
    problems = over_budget(json.loads(counted.stdout), json.loads((BUDGETS / f"{path}.json").read_text()))
    assert problems == [], "\n".join(problems) + HOW_TO.format(path=path)


def test_what_a_budget_does_not_have_is_over_it() -> None:
    assert over_budget({"calls": 108, "syncs": 2}, {"calls": 100, "syncs": 2}) == []
    assert len(over_budget({"calls": 111, "syncs": 3, "sleeps": 1}, {"calls": 100, "syncs": 2})) == 3
