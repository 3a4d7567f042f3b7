"""Secret table: encrypted values, and the hosts and headers that they are for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ..errors import Conflict
from ..models import Secret
from ..protocol.strict_json import dumps, loads_strict
from ..protocol.view_json import secret_from_json, view_to_json
from .database import Database
from .database_writer import Writer
from .key_file import KeyFile

MAX_SECRETS = 100


class SecretRepository:
    """Keeps secrets. The encrypted part has the hosts and the header, too, so that a value cannot be moved to others.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs. The key file is read and written in them, one server at a time.
    key_path : Path
        The key file.
    """

    def __init__(self, writer: Writer, key_path: Path) -> None:
        self._writer = writer
        self._keys = KeyFile(key_path)

    async def list(self) -> Sequence[Secret]:
        """Return all secrets without their values, by name."""
        rows = await self._writer.run(lambda db: db.execute("SELECT record FROM secrets ORDER BY name").fetchall())
        return [secret_from_json(loads_strict(row["record"])) for row in rows]

    async def put(self, secret: Secret, value: str) -> None:
        """Insert a secret, or replace the one of this name.

        Raises
        ------
        Conflict
            If there are too many, or the key file cannot be used.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        record = dumps(view_to_json(secret))

        def job(db: Database) -> None:
            self._writer.require_reserve()
            others = db.execute("SELECT COUNT(*) AS others FROM secrets WHERE name != ?", (secret.name,)).fetchone()
            if others["others"] >= MAX_SECRETS:
                raise Conflict(f"there are {MAX_SECRETS} secrets already; delete one first")
            sealed = self._keys.cipher().encrypt(dumps({"secret": record, "value": value}).encode())
            sql = "INSERT OR REPLACE INTO secrets (name, record, sealed) VALUES (?, ?, ?)"
            db.execute(sql, (secret.name, record, sealed))

        await self._writer.run(job, write=True)

    async def delete(self, name: str) -> bool:
        """Delete a secret; return whether there was one."""
        sql = "DELETE FROM secrets WHERE name = ?"
        return await self._writer.run(lambda db: db.execute(sql, (name,)).rowcount == 1, write=True)

    async def values(self, names: Collection[str]) -> dict[str, tuple[Secret, str]]:
        """Return those of these secrets that exist, with their values, by name.

        Raises
        ------
        Conflict
            If the key file cannot be used, or does not decrypt one of them.
        """
        sql = "SELECT name, sealed FROM secrets WHERE name IN (SELECT value FROM json_each(?))"

        def job(db: Database) -> dict[str, tuple[Secret, str]]:
            return {row["name"]: self._open(row["name"], row["sealed"]) for row in db.execute(sql, (dumps([*names]),))}

        return await self._writer.run(job)

    async def rotate_key(self) -> int:
        """Encrypt all secrets with a new key, and forget the old ones; return how many secrets there are.

        Raises
        ------
        Conflict
            If the key file cannot be used, or does not decrypt a secret.
        StorageFull, StoreUnavailable
            If it cannot be written. The old key is then kept beside the new one.
        """

        def job(db: Database) -> int:
            rows = db.execute("SELECT name, sealed FROM secrets").fetchall()
            for row in rows:
                self._open(row["name"], row["sealed"])  # before anything is changed
            self._keys.add_key()
            cipher = self._keys.cipher()
            for row in rows:
                db.execute("UPDATE secrets SET sealed = ? WHERE name = ?", (cipher.rotate(row["sealed"]), row["name"]))
            return len(rows)

        def drop(db: Database) -> None:
            self._keys.drop_unused_keys([row["sealed"] for row in db.execute("SELECT sealed FROM secrets")])

        count = await self._writer.run(job, write=True)
        await self._writer.sync()  # a power failure must not bring back rows of a key that is gone
        await self._writer.run(drop, write=True)
        return count

    def _open(self, name: str, sealed: bytes) -> tuple[Secret, str]:
        from cryptography.fernet import InvalidToken

        try:
            plain = loads_strict(self._keys.cipher().decrypt(sealed))
        except InvalidToken:
            raise Conflict(
                f"the secret {name} was not encrypted with the key in {self._keys.path}; set it again, or delete it"
            ) from None
        return secret_from_json(loads_strict(plain["secret"])), plain["value"]
