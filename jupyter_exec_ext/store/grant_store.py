"""Grant table: kernels that were granted to scoped tokens. A grant belongs to the server that runs the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import KernelGrant
from ..protocol.records_json import kernel_grant_from_json, to_json
from ..protocol.strict_json import dumps, loads_strict
from .database import Database
from .database_writer import Writer


class GrantRepository:
    """Keeps the records of active and ended grants.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs.
    server : str
        The id of this server.
    """

    def __init__(self, writer: Writer, server: str) -> None:
        self._writer = writer
        self._server = server

    async def add(self, grant: KernelGrant) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        sql = "INSERT INTO kernel_grants (id, token_id, server, ended, record) VALUES (?, ?, ?, 0, ?)"
        values = (grant.id, grant.token_id, self._server, dumps(to_json(grant)))

        def job(db: Database) -> None:
            self._writer.require_reserve()
            db.execute(sql, values)

        await self._writer.run(job, write=True)

    async def save_ended(self, grant: KernelGrant) -> None:
        """Replace the record of a grant that has ended, now or as soon as the storage permits."""
        await self._writer.submit_last(grant.id, lambda db: put_ended(db, grant))

    async def list_ended(self, limit: int) -> Sequence[KernelGrant]:
        """Return the newest grants that have ended, oldest first."""
        sql = "SELECT record FROM kernel_grants WHERE ended ORDER BY rowid DESC LIMIT ?"
        rows = await self._writer.run(lambda db: db.execute(sql, (limit,)).fetchall())
        return [kernel_grant_from_json(loads_strict(row["record"])) for row in rows[::-1]]


def put_ended(db: Database, grant: KernelGrant) -> None:
    """Replace the record of a grant that has ended."""
    db.execute("UPDATE kernel_grants SET ended = 1, record = ? WHERE id = ?", (dumps(to_json(grant)), grant.id))


def open_grants(db: Database) -> list[tuple[str, KernelGrant]]:
    """Return the grants that have not ended, each with its server's id."""
    rows = db.execute("SELECT server, record FROM kernel_grants WHERE NOT ended").fetchall()
    return [(row["server"], kernel_grant_from_json(loads_strict(row["record"]))) for row in rows]
