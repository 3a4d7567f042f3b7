"""Session table: records of sessions, active and ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..models import AuditKind, Session, SessionState
from ..protocol.records_json import session_from_json, to_json
from ..protocol.strict_json import dump_bytes, loads_strict
from .audit_trail import AuditLog
from .database import Database
from .database_writer import Writer
from .eviction_schedule import EvictionSchedule
from .stored_bytes import ROW_BYTES


class SessionRepository:
    """Keeps the records of active and ended sessions.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs.
    server : str
        The id of this server.
    audit : AuditLog
        Gets what happens to sessions.
    eviction : EvictionSchedule
        Keeps the store within its bounds.
    """

    def __init__(self, writer: Writer, server: str, audit: AuditLog, eviction: EvictionSchedule) -> None:
        self._writer = writer
        self._eviction = eviction
        self._server = server
        self._audit = audit

    async def add(self, session: Session) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
            If it cannot be written.
        """

        def job(db: Database) -> None:
            self._writer.require_reserve()
            self._eviction.require_room(session.owner)
            size_bytes = put_session(db, session, self._server, self._audit)
            db.after_commit(partial(self._eviction.account.add_row, session.owner, size_bytes))

        await self._writer.run(job, write=True)
        if self._eviction.account.needs_eviction(session.owner):
            self._eviction.evict_soon()

    async def save(self, session: Session) -> None:
        """Replace a record, now or as soon as the storage permits."""
        # The key is the session's id, so that a newer record replaces one that still waits.
        # A changed size is counted at the next eviction, by `measure`.
        await self._writer.submit_last(session.id, lambda db: put_session(db, session, self._server, self._audit))

    async def get(self, session_id: str) -> Session | None:
        """Return a record."""
        # Active sessions of another server are its own: this one cannot reach their kernels.
        sql = "SELECT record FROM sessions WHERE id = ? AND (ended OR server = ?)"
        row = await self._writer.run(lambda db: db.execute(sql, (session_id, self._server)).fetchone())
        return None if row is None else session_from_json(loads_strict(row["record"]))

    async def list_ended(self, limit: int) -> Sequence[Session]:
        """Return the newest records of ended sessions, oldest first."""
        sql = "SELECT record FROM sessions WHERE ended ORDER BY created_at DESC, rowid DESC LIMIT ?"
        rows = await self._writer.run(lambda db: db.execute(sql, (limit,)).fetchall())
        return await asyncio.to_thread(lambda: [session_from_json(loads_strict(row["record"])) for row in rows[::-1]])


def put_session(db: Database, session: Session, server: str, audit: AuditLog) -> int:
    """Insert or replace a record and record its changes in the audit trail; return its size in bytes."""
    row = db.execute("SELECT record FROM sessions WHERE id = ?", (session.id,)).fetchone()
    # Compared with the stored record, because a save can be repeated, or can replace one that was not written.
    before = None if row is None else session_from_json(loads_strict(row["record"]))
    for action, data in _changes(before, session):
        audit.append(db, AuditKind.SESSION, action, session.owner, session.id, data)
    ended = session.state is SessionState.ENDED
    text = dump_bytes(to_json(session))
    size_bytes = ROW_BYTES + len(text)
    db.execute(
        "INSERT INTO sessions (id, server, ended, created_at, ended_at, record, owner, row_bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
        # REPLACE would give the row a new rowid, which decides in `list_ended` where times are equal.
        "ON CONFLICT (id) DO UPDATE SET server = excluded.server, ended = excluded.ended, "
        "ended_at = excluded.ended_at, record = excluded.record, row_bytes = excluded.row_bytes",
        (
            session.id,
            server,
            ended,
            session.created_at,
            time.time() if ended else None,
            text.decode(),
            session.owner,
            size_bytes,
        ),
    )
    return size_bytes


def _changes(before: Session | None, now: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the audit actions for the changes between two records of a session, with their data."""
    if before is None:
        names = ("kernel_name", "name", "attached", "isolation")
        yield "created", {name: getattr(now, name) for name in names}
    if now.kernel_starts > (before.kernel_starts if before else 0):
        yield "kernel_started", {"kernel_id": now.kernel_id, "kernel_starts": now.kernel_starts}
    if now.state is SessionState.ENDED and (before is None or before.state is not SessionState.ENDED):
        yield "ended", {"reason": now.ended_reason}
