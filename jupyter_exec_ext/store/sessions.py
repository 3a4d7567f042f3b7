"""Session records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..models import AuditKind, Session, SessionState
from ..wire.jsontext import dump_bytes, loads_strict
from ..wire.large_json import is_large
from ..wire.native import session_from_json, to_json
from .audit import AuditLog
from .database import Database
from .writer import SHORT_CHARACTERS, Writer


class SessionRepository:
    """Keeps session records, those of ended sessions included.

    Parameters
    ----------
    server : str
        The id of this server.
    """

    def __init__(self, writer: Writer, server: str, audit: AuditLog) -> None:
        self._writer = writer
        self._server = server
        self._audit = audit

    async def add(self, session: Session) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

        def job(db: Database) -> None:
            self._writer.require_reserve()
            put_session(db, session, self._server, self._audit)

        await self._writer.write(job, short=not is_large(session.metadata, SHORT_CHARACTERS))

    async def save(self, session: Session) -> None:
        """Replace a record, now or as soon as the storage lets us."""
        await self._writer.run_last(session.id, lambda db: put_session(db, session, self._server, self._audit))

    async def get(self, session_id: str) -> Session | None:
        """Return a record."""
        sql = "SELECT record FROM sessions WHERE id = ? AND (ended OR server = ?)"
        row = await self._writer.run(lambda db: db.execute(sql, (session_id, self._server)).fetchone())
        return None if row is None else session_from_json(loads_strict(row["record"]))

    async def list_ended(self, limit: int) -> Sequence[Session]:
        """Return the newest records of ended sessions, oldest first."""
        sql = "SELECT record FROM sessions WHERE ended ORDER BY created_at DESC, rowid DESC LIMIT ?"
        rows = await self._writer.run(lambda db: db.execute(sql, (limit,)).fetchall())
        return await asyncio.to_thread(lambda: [session_from_json(loads_strict(row["record"])) for row in rows[::-1]])


def put_session(db: Database, session: Session, server: str, audit: AuditLog) -> None:
    """Insert or replace a record; the audit trail gets what is new in it."""
    row = db.execute("SELECT record FROM sessions WHERE id = ?", (session.id,)).fetchone()
    before = None if row is None else session_from_json(loads_strict(row["record"]))
    for action, data in _news(before, session):
        audit.append(db, AuditKind.SESSION, action, session.owner, session.id, data)
    ended = session.state is SessionState.ENDED
    db.execute(
        "INSERT INTO sessions (id, server, ended, created_at, ended_at, record) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET server = excluded.server, ended = excluded.ended, "
        "ended_at = excluded.ended_at, record = excluded.record",
        (
            session.id,
            server,
            ended,
            session.created_at,
            time.time() if ended else None,
            dump_bytes(to_json(session)).decode(),
        ),
    )


def _news(before: Session | None, now: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what happened to a session between two of its records, as the audit trail tells it."""
    if before is None:
        names = ("kernel_name", "name", "attached", "isolation")
        yield "created", {name: getattr(now, name) for name in names}
    if now.kernel_starts > (before.kernel_starts if before else 0):
        yield "kernel_started", {"kernel_id": now.kernel_id, "kernel_starts": now.kernel_starts}
    if now.state is SessionState.ENDED and (before is None or before.state is not SessionState.ENDED):
        yield "ended", {"reason": now.ended_reason}
