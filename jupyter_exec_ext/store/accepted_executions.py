"""Table of the executions that a pool of servers has accepted: what is left of them when their server is lost."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass

from .database import Database
from .database_writer import Writer

# With the last condition, SQLite uses the index of rows with a key.
_WITH_KEY = "principal = ? AND session_id = ? AND idempotency_key = ? AND idempotency_key != ''"


@dataclass(frozen=True, slots=True)
class AcceptedExecution:
    """An execution, and where it was sent.

    Parameters
    ----------
    principal : str
        Its owner in the pool.
    session_id : str
        Its session; empty for one that a run in a fresh session would have had.
    idempotency_key : str
        The key of the request; empty for none.
    accepted_at : float
        In seconds since the epoch.
    """

    id: str
    session_id: str
    server: str
    principal: str
    idempotency_key: str
    accepted_at: float


class AcceptedExecutions:
    """Keeps the executions for as long as `ExecStore.max_age_seconds`.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def note(self, execution: AcceptedExecution) -> None:
        """Insert an execution, soon: a caller must not wait for a record that only the loss of a server needs."""
        sql = "INSERT OR REPLACE INTO accepted_executions VALUES (?, ?, ?, ?, ?, ?)"
        self._writer.submit_last(f"accepted {execution.id}", lambda db: db.execute(sql, astuple(execution)))

    async def find(self, execution_id: str) -> AcceptedExecution | None:
        """Return the execution with this id."""
        return await self._find("id = ?", execution_id)

    async def find_by_key(self, principal: str, session_id: str, key: str) -> AcceptedExecution | None:
        """Return the execution of a request that was sent before with the same key."""
        return await self._find(_WITH_KEY, principal, session_id, key)

    async def _find(self, where: str, *values: str) -> AcceptedExecution | None:
        def job(db: Database) -> sqlite3.Row | None:
            row: sqlite3.Row | None = db.execute(f"SELECT * FROM accepted_executions WHERE {where}", values).fetchone()
            return row

        row = await self._writer.run(job)
        return None if row is None else AcceptedExecution(*row)
