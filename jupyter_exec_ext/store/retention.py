"""What is forgotten: executions and tokens that ended too long ago, and when all together is too much, the oldest.

Of what is too much, spooled outputs go before records and logs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..removal import remove_tree
from .database import Database
from .logfile import log_path
from .spool import remove_spool


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, and how much, is kept.

    Parameters
    ----------
    max_age_seconds : float
        Since the end of an execution or session.
    max_bytes : int
        Of all event logs and spooled outputs.
    """

    max_age_seconds: float
    max_bytes: int


def expire(db: Database, logs: Path, retention: Retention) -> list[str]:
    """Forget what is to be forgotten, in a transaction; return the ids of sessions of which nothing is left.

    Files go before their rows: a row without its file is forgotten the next time, a file without a row never.
    """
    horizon = time.time() - retention.max_age_seconds
    rows = db.execute(
        "SELECT id, session_id, finished_at, log_bytes, spool_bytes, "
        "SUM(log_bytes) OVER newest_first AS newer_log_bytes, SUM(spool_bytes) OVER newest_first AS newer_spool_bytes "
        "FROM executions WHERE finished WINDOW newest_first AS (ORDER BY finished_at DESC, id) "
        "ORDER BY finished_at DESC, id"
    ).fetchall()
    expired = [row for row in rows if row["finished_at"] < horizon or row["newer_log_bytes"] > retention.max_bytes]
    for row in expired:
        remove_tree(log_path(logs, row["session_id"], row["id"]))
        remove_spool(logs, row["session_id"], row["id"])
    db.executemany("DELETE FROM executions WHERE id = ?", [(row["id"],) for row in expired])
    kept = rows[: len(rows) - len(expired)]
    # Room is for records and logs first: what was left out of one never drives out another.
    max_spool_bytes = retention.max_bytes - sum(row["log_bytes"] for row in kept)
    unspooled = [row for row in kept if row["spool_bytes"] and row["newer_spool_bytes"] > max_spool_bytes]
    for row in unspooled:
        remove_spool(logs, row["session_id"], row["id"])
    db.executemany("UPDATE executions SET spool_bytes = 0 WHERE id = ?", [(row["id"],) for row in unspooled])
    db.execute("DELETE FROM tokens WHERE MIN(COALESCE(revoked_at, expires_at), expires_at) < ?", (horizon,))
    bare = db.execute(
        "SELECT id FROM sessions WHERE ended_at < ? AND NOT EXISTS "
        "(SELECT 1 FROM executions WHERE session_id = sessions.id)",
        (horizon,),
    ).fetchall()
    db.executemany("DELETE FROM sessions WHERE id = ?", [(row["id"],) for row in bare])
    for row in bare:
        _remove_directory(logs / row["id"])
    return [row["id"] for row in bare]


def _remove_directory(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # never made, or something of a later version is in it
