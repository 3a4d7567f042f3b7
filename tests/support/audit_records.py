"""Records of the audit trail in an engine's store."""

from __future__ import annotations

import json
from typing import Any

from jupyter_exec_ext.engine.engine import ExecEngine


async def audit_records(engine: ExecEngine) -> list[dict[str, Any]]:
    """Return the records, oldest first."""
    rows = await engine._store._writer.run(  # type: ignore[attr-defined]
        lambda db: db.execute("SELECT record FROM audit ORDER BY seq").fetchall()
    )
    return [json.loads(row["record"]) for row in rows]
