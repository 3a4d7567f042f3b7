"""Task records: executions in the form of the tasks extension."""

from __future__ import annotations

from typing import Any

from ..models import Execution, ExecutionState

TASKS = "io.modelcontextprotocol/tasks"
#: A run that takes longer becomes a task, if the client supports tasks.
TASK_AFTER_SECONDS = 5.0
_POLL_MILLISECONDS = 1000
_STOPPED = (ExecutionState.CANCELLED, ExecutionState.TOKEN_REVOKED)


def task_of(record: Execution) -> dict[str, Any]:
    """Return an execution as a task, without its result."""
    ended = "cancelled" if record.state in _STOPPED else "completed"
    task: dict[str, Any] = {
        "taskId": record.id,
        "status": ended if record.state.finished else "working",
        "createdAt": record.created_at,
        "lastUpdatedAt": record.finished_at or record.started_at or record.created_at,
        "ttlMs": None,
    }
    if not record.state.finished:
        task["pollIntervalMs"] = _POLL_MILLISECONDS
        if record.state is ExecutionState.AWAITING_APPROVAL:
            task["statusMessage"] = "A person has to approve the code, in JupyterLab."
    elif record.reason:
        task["statusMessage"] = record.reason
    return task
