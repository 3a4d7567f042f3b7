"""What the audit trail has of an execution: one record when it is accepted, one when it has ended.

Never its output, its metadata or an error's text; its code only where the administrator wants it.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from ..models import AuditKind, Execution
from .audit_trail import AuditLog
from .database import Database


class ExecutionTrail:
    """Records executions, in the transaction that writes their row.

    Parameters
    ----------
    with_code : bool
        Whether to record the code itself beside its digest.
    """

    def __init__(self, audit: AuditLog, with_code: bool) -> None:
        self._audit = audit
        self._with_code = with_code

    def accepted(self, db: Database, execution: Execution, sender: str) -> None:
        """Record that an execution was accepted from `sender`."""
        code = execution.code.encode("utf-8", "surrogatepass")
        data: dict[str, Any] = {
            "session_id": execution.session_id,
            "code_sha256": hashlib.sha256(code).hexdigest(),
            "code_bytes": len(code),
            "language": execution.language,
            "timeout_seconds": execution.timeout_seconds,
            "isolation": execution.isolation,
        }
        if self._with_code:
            data["code"] = execution.code
        self._audit.append(db, AuditKind.EXECUTION, "accepted", sender, execution.id, data)

    def ended(self, db: Database, execution: Execution, owner: str) -> None:
        """Record that an execution of `owner` has ended."""
        data = {
            "session_id": execution.session_id,
            "state": execution.state.value,
            "run_seconds": _run_seconds(execution),
            "kernel_exit_code": execution.kernel_exit_code,
            "kernel_signal": execution.kernel_signal,
        }
        self._audit.append(db, AuditKind.EXECUTION, "ended", owner, execution.id, data)


def _run_seconds(execution: Execution) -> float | None:
    """Return how long the code ran; None if it never began, or if nobody can tell."""
    if execution.started_at is None or execution.finished_at is None:
        return None
    began = datetime.fromisoformat(execution.started_at.replace("Z", "+00:00"))
    ended = datetime.fromisoformat(execution.finished_at.replace("Z", "+00:00"))
    return max(0.0, round((ended - began).total_seconds(), 3))  # the clock may have been set back
