"""Executions as tasks: statuses, and what says more."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.mcp.task_records import task_of
from jupyter_exec_ext.models import Execution, ExecutionState


def record(state: ExecutionState, **fields: Any) -> Execution:
    return Execution(id="exe_1", session_id="ses_1", state=state, code="1", created_at="2026-01-01T00:00:00Z", **fields)


@pytest.mark.parametrize("state", list(ExecutionState))
def test_task_has_the_status_of_its_execution(state: ExecutionState) -> None:
    task = task_of(record(state))
    stopped = (ExecutionState.CANCELLED, ExecutionState.TOKEN_REVOKED)
    expected = "working" if not state.finished else "cancelled" if state in stopped else "completed"
    assert (task["taskId"], task["status"], task["ttlMs"]) == ("exe_1", expected, None)
    assert ("pollIntervalMs" in task) is (not state.finished)


def test_task_is_updated_when_its_execution_was() -> None:
    times = {"started_at": "2026-01-01T00:00:01Z"}
    assert task_of(record(ExecutionState.RUNNING, **times))["lastUpdatedAt"] == times["started_at"]
    times["finished_at"] = "2026-01-01T00:00:02Z"
    assert task_of(record(ExecutionState.OK, **times))["lastUpdatedAt"] == times["finished_at"]


def test_task_says_why_it_waits_and_why_it_was_stopped() -> None:
    assert "approve" in task_of(record(ExecutionState.AWAITING_APPROVAL))["statusMessage"]
    assert task_of(record(ExecutionState.CANCELLED, reason="cancelled by x"))["statusMessage"] == "cancelled by x"
