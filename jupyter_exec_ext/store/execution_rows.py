"""Rows of executions in the database, each with its audit records.

A row is inserted before the code is sent, and completed once, when the execution has ended. It holds the record without
its outputs. The event log is a column of the row if it is short, otherwise a file (`log_file`).
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..errors import ExecutionNotFound, IdempotencyKeyReused
from ..models import AuditKind, Execution, IdempotencyKey
from ..protocol.records_json import SUMMARY_CODE_CHARS, execution_from_json, summary_to_json, to_json
from ..protocol.strict_json import dump_bytes, loads_strict
from .audit_trail import AuditLog
from .database import Database
from .log_file import LogLines, LogText
from .migrations import IS_OF_FRESH_SESSION
from .stored_bytes import BLOCK_BYTES, ROW_BYTES, size_on_disk


class ExecutionTrail:
    """Records executions in the audit trail, in the transaction that writes their row.

    The trail has no outputs, metadata or error texts.

    Parameters
    ----------
    audit : AuditLog
        The trail.
    with_code : bool
        True to record the code itself beside its digest.
    """

    def __init__(self, audit: AuditLog, with_code: bool) -> None:
        self._audit = audit
        self._with_code = with_code

    def record_accepted(self, db: Database, execution: Execution, sender: str) -> None:
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

    def record_ended(self, db: Database, execution: Execution, owner: str) -> None:
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
    """Return the run time in seconds; None if it is not known."""
    if execution.started_at is None or execution.finished_at is None:
        return None
    began = datetime.fromisoformat(execution.started_at.replace("Z", "+00:00"))
    ended = datetime.fromisoformat(execution.finished_at.replace("Z", "+00:00"))
    return max(0.0, round((ended - began).total_seconds(), 3))  # the clock may have been set back


def row_of_id(db: Database, execution_id: str) -> sqlite3.Row | None:
    """Return the row of an execution."""
    row: sqlite3.Row | None = db.execute("SELECT * FROM executions WHERE id = ?", (execution_id,)).fetchone()
    return row


def row_of_key(db: Database, session_id: str, owner: str, key: IdempotencyKey) -> sqlite3.Row | None:
    """Return the row of the execution that was accepted with `key`.

    Raises
    ------
    IdempotencyKeyReused
        If the key came with another request.
    """
    if key.of_fresh_session:
        # SQLite uses a partial index only for a query that repeats its condition.
        sql = f"SELECT * FROM executions WHERE owner = ? AND idempotency_key = ? AND {IS_OF_FRESH_SESSION}"
        found = db.execute(sql, (owner, _stored_key(key)))
    else:
        sql = "SELECT * FROM executions WHERE owner = ? AND session_id = ? AND idempotency_key = ?"
        found = db.execute(sql, (owner, session_id, _stored_key(key)))
    row: sqlite3.Row | None = found.fetchone()
    if row is not None and row["request_hash"] != key.request_hash:
        raise IdempotencyKeyReused(f"the idempotency key was used for execution {row['id']}, with another request")
    return row


def _stored_key(key: IdempotencyKey) -> str:
    """Return a key as the rows have it. No caller's key has a space, so keys of fresh sessions are distinct."""
    return f" {key.key}" if key.of_fresh_session else key.key


def page_of_ids(db: Database, session_id: str, limit: int, before: str | None, after: str | None) -> list[str]:
    """Return the ids of a session's newest executions, oldest first; with `after`, of the oldest that follow it.

    Raises
    ------
    ExecutionNotFound
        If the session has no execution `before` or `after`.
    """
    where, values = "session_id = ?", [session_id]
    for comparison, cursor in (("<", before), (">", after)):
        if cursor is not None:
            sql = "SELECT accepted_at, rowid FROM executions WHERE id = ? AND session_id = ?"
            place = db.execute(sql, (cursor, session_id)).fetchone()
            if place is None:
                raise ExecutionNotFound(f"the session has no execution {cursor!r}; list its executions again")
            where += f" AND (accepted_at, rowid) {comparison} (?, ?)"
            values += place
    order = "DESC" if after is None else "ASC"
    sql = f"SELECT id FROM executions WHERE {where} ORDER BY accepted_at {order}, rowid {order} LIMIT ?"
    ids = [row["id"] for row in db.execute(sql, (*values, limit))]
    return ids[::-1] if after is None else ids


def records_of_ids(db: Database, ids: Sequence[str]) -> list[str]:
    """Return the stored records of executions, oldest first."""
    marks = ", ".join("?" * len(ids))
    sql = f"SELECT record FROM executions WHERE id IN ({marks}) ORDER BY accepted_at, rowid"
    return [row["record"] for row in db.execute(sql, tuple(ids))]


def read_summaries(records: Sequence[str]) -> list[Execution]:
    """Parse stored records, with the beginning of long code only."""
    read = map(execution_from_json, map(loads_strict, records))
    return [replace(execution, code=execution.code[:SUMMARY_CODE_CHARS]) for execution in read]


def insert_row(db: Database, execution: Execution, owner: str, server: str, key: IdempotencyKey | None) -> int:
    """Insert the row of an accepted execution; return its size in bytes, 0 if it exists already."""
    record = dump_bytes(to_json(execution))
    row_bytes = ROW_BYTES + len(record)
    cursor = db.execute(
        # An end that is written again finds its row here, finished.
        "INSERT OR IGNORE INTO executions "
        "(id, session_id, owner, server, finished, accepted_at, idempotency_key, request_hash, record, row_bytes, "
        "file_bytes) VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0)",
        (
            execution.id,
            execution.session_id,
            owner,
            server,
            time.time(),
            key and _stored_key(key),
            key and key.request_hash,
            record.decode(),
            row_bytes,
        ),
    )
    return row_bytes if cursor.rowcount > 0 else 0


@dataclass(frozen=True, slots=True)
class CompletedSize:
    """Sizes of a completed execution in bytes: the growth of its row, and its files."""

    added_row_bytes: int
    file_bytes: int


def complete_row(
    db: Database, execution: Execution, owner: str, log: LogLines, trail: ExecutionTrail
) -> CompletedSize | None:
    """Make the row of an accepted execution a terminal one; return None if there is none to complete."""
    before = db.execute("SELECT row_bytes FROM executions WHERE id = ? AND NOT finished", (execution.id,)).fetchone()
    if before is None:
        return None
    record = dump_bytes(summary_to_json(execution))
    text = log.text if isinstance(log, LogText) else None
    content_bytes = len(record) + len(text or b"")
    # SQLite spreads what exceeds a page over pages of its own.
    row_bytes = ROW_BYTES + (content_bytes if content_bytes <= BLOCK_BYTES else size_on_disk(content_bytes))
    file_bytes = size_on_disk(log.size_bytes) if text is None else 0
    spool_bytes = sum(size_on_disk(spooled.size_bytes) for spooled in execution.spooled)
    db.execute(
        "UPDATE executions SET finished = 1, finished_at = ?, log_bytes = ?, spool_bytes = ?, last_seq = ?, "
        "end_offset = ?, record = ?, log = ?, row_bytes = ?, file_bytes = ? WHERE id = ?",
        (
            time.time(),
            log.size_bytes,
            spool_bytes,
            log.last_seq,
            log.last_offset,
            record.decode(),
            text,
            row_bytes,
            file_bytes,
            execution.id,
        ),
    )
    trail.record_ended(db, execution, owner)
    # An entry at offset 0 is left out: without one, a look-up begins there.
    offsets = [(execution.id, seq, offset) for seq, offset in log.index.entries if offset]
    db.executemany("INSERT OR IGNORE INTO event_offsets VALUES (?, ?, ?)", offsets)
    # A row of an earlier version has no size (migration 8).
    return CompletedSize(row_bytes - (before["row_bytes"] or ROW_BYTES), file_bytes + spool_bytes)
