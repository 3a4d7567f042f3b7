"""The guard of the hot path: an execution's work, counted and held against a budget. It does not look at the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGET = ROOT / "tests" / "budgets" / "hot_path.json"
# Other versions of Python and of the libraries call a little more or less.
SLACK = {"calls": 1.10, "own_calls": 1.03, "json_encodes": 1.10, "json_decodes": 1.10}
# They depend on when messages come, too; a new one of each execution's shows all the same.
SLACK |= {"loop_turns": 1.25, "timers": 1.40}

HOW_TO = f"""
Where it comes from: python -m tests.hot_path --functions, here and before the change, and compare the two.
If it is worth its price, change {BUDGET.relative_to(ROOT)}, and say in the commit what the price buys.
"""


def over_budget(figures: dict[str, int], budget: dict[str, int]) -> list[str]:
    """Return, in words, what is more than the budget allows."""
    return [
        f"{name}: {count}, and the budget is {budget.get(name, 0)}"
        for name, count in figures.items()
        if count > budget.get(name, 0) * SLACK.get(name, 1.0)
    ]


def test_a_warm_execution_keeps_to_its_budget() -> None:
    command = [sys.executable, "-m", "tests.hot_path"]
    counted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert counted.returncode == 0, counted.stderr
    problems = over_budget(json.loads(counted.stdout), json.loads(BUDGET.read_text()))
    assert problems == [], "\n".join(problems) + HOW_TO


def test_what_a_budget_does_not_have_is_over_it() -> None:
    assert over_budget({"calls": 108, "syncs": 2}, {"calls": 100, "syncs": 2}) == []
    assert len(over_budget({"calls": 111, "syncs": 3, "sleeps": 1}, {"calls": 100, "syncs": 2})) == 3
