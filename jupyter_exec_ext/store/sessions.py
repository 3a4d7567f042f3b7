"""Session records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ..models import Session, SessionState
from ..wire.jsontext import dump_bytes, loads_strict
from ..wire.native import session_from_json, to_json
from .database import Database
from .writer import Writer


class SessionRepository:
    """Keeps session records, those of ended sessions included.

    Parameters
    ----------
    server : str
        The id of this server.
    """

    def __init__(self, writer: Writer, server: str) -> None:
        self._writer = writer
        self._server = server

    async def add(self, session: Session) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

        def job(db: Database) -> None:
            self._writer.require_reserve()
            put_session(db, session, self._server)

        await self._writer.run(job, write=True)

    async def save(self, session: Session) -> None:
        """Replace a record, now or as soon as the storage lets us."""
        await self._writer.run_last(session.id, lambda db: put_session(db, session, self._server))

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


def put_session(db: Database, session: Session, server: str) -> None:
    """Insert or replace a record."""
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
