"""Scoped tokens: of the secret only its hash, and what its bearer may do."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..auth.token_format import NO_HASH, matches_any
from ..errors import TokenRevoked, TooManyTokens
from ..models import Grant, StoredToken, Token
from ..protocol.records_json import grant_from_json, to_json, token_from_json, utc_timestamp
from ..protocol.strict_json import dump_bytes, dumps, loads_strict
from .database import Database
from .database_reader import Reader
from .database_writer import Writer

# One row whether there is such a token or not, so that both take the same time.
_HASHES = (
    "SELECT secret_hash, previous_hash, previous_until FROM (SELECT ? AS wanted) LEFT JOIN tokens ON tokens.id = wanted"
)
_KEPT_FOR_THE_OWNER = 10  # one in so many of the tokens that there may be
_BELOW = "(owner = ? OR substr(owner, 1, ?) = ?)"
_ENDED = "(revoked_at IS NOT NULL OR expired_at IS NOT NULL OR expires_at <= ?)"


class TokenRepository:
    """Keeps tokens. `find` and `ended` are quick enough for the event loop; everything else waits for the disk."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._expired: set[str] = set()

    # --- letting in ---

    def find(self, token_id: str, secret_hash: bytes) -> StoredToken | None:
        """Return the token with this id, ended or not, if the secret is right.

        Raises
        ------
        StoreUnavailable
        """
        (row,) = self._reader.rows(_HASHES, (token_id,))
        still_good = (row["previous_until"] or 0.0) > time.time()
        kept = [row["secret_hash"] or NO_HASH, (row["previous_hash"] if still_good else None) or NO_HASH]
        if not matches_any(secret_hash, kept):
            return None
        rows = self._reader.rows("SELECT * FROM tokens WHERE id = ?", (token_id,))
        return self._stored(rows[0]) if rows else None

    def ended(self, token_ids: Collection[str]) -> dict[str, Token | None]:
        """Return which of these tokens let nobody in any more; None for what is not known, or not any more."""
        sql = f"SELECT id FROM tokens WHERE id IN (SELECT value FROM json_each(?)) AND NOT {_ENDED}"  # noqa: S608
        rows = self._reader.rows(sql, (dumps(list(token_ids)), time.time()))
        active = {row["id"] for row in rows} - self._expired
        return {token_id: self._token(token_id) for token_id in token_ids if token_id not in active}

    def _token(self, token_id: str) -> Token | None:
        rows = self._reader.rows("SELECT * FROM tokens WHERE id = ?", (token_id,))
        return self._stored(rows[0]).token if rows else None

    def _stored(self, row: sqlite3.Row) -> StoredToken:
        """Read a row. A token once seen expired stays so, whatever the clock says later."""
        token, grants, user = _read(row["record"])
        expired = row["expired_at"] is not None or row["id"] in self._expired or row["expires_at"] <= time.time()
        if expired:
            self._expired.add(row["id"])
        token = replace(
            token,
            last_used_at=_moment(row["last_used_at"]),
            revoked_at=_moment(row["revoked_at"]),
            expired=expired,
        )
        return StoredToken(token, grants, user, row["expires_at"])

    async def note_expired(self, token_id: str) -> bool:
        """Remember for good that a token was seen expired; return whether that is news."""
        sql = "UPDATE tokens SET expired_at = ? WHERE id = ? AND expired_at IS NULL"
        moment = time.time()
        changed: list[int] = []
        await self._writer.run_last(
            f"expired {token_id}", lambda db: changed.append(db.execute(sql, (moment, token_id)).rowcount)
        )
        return changed == [1]

    async def note_use(self, token_id: str) -> None:
        """Remember that a token was used now."""
        moment = time.time()
        sql = "UPDATE tokens SET last_used_at = ? WHERE id = ?"
        await self._writer.run_last(f"used {token_id}", lambda db: db.execute(sql, (moment, token_id)))

    # --- managing ---

    async def add(self, stored: StoredToken, secret_hash: bytes, max_tokens: int) -> None:
        """Insert a token.

        Raises
        ------
        TokenRevoked
            If the token above it has ended meanwhile.
        TooManyTokens, StorageFull, StoreUnavailable
        """
        token = stored.token
        now = time.time()
        record = {"token": to_json(token), "grants": [to_json(g) for g in stored.grants], "user": dict(stored.user)}

        def job(db: Database) -> None:
            self._writer.require_reserve()
            above = f"SELECT 1 FROM tokens WHERE id = ? AND NOT {_ENDED}"  # noqa: S608
            if token.parent_id and db.execute(above, (token.parent_id, now)).fetchone() is None:
                raise TokenRevoked(f"the token {token.parent_id} has ended; ask for another one")
            sql = f"SELECT COUNT(*) AS active FROM tokens WHERE NOT {_ENDED}"  # noqa: S608
            # Tokens that others create must not keep the owner from creating one.
            most = max_tokens if token.parent_id is None else max_tokens - max(1, max_tokens // _KEPT_FOR_THE_OWNER)
            if max_tokens and db.execute(sql, (now,)).fetchone()["active"] >= most:
                raise TooManyTokens(f"there may be {most} tokens at once (max_tokens); revoke one first")
            db.execute(
                "INSERT INTO tokens (id, parent_id, owner, secret_hash, created_at, expires_at, record) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    token.id,
                    token.parent_id,
                    token.principal,
                    secret_hash,
                    now,
                    stored.expires_at_seconds,
                    dump_bytes(record).decode(),
                ),
            )

        await self._writer.run(job, write=True)

    async def list(self, root: str | None, *, ended: bool) -> Sequence[Token]:
        """Return tokens, oldest first: all, or those whose principal is `root` or below it."""
        where, values = ["1"], list[Any]()
        if root is not None:
            where.append(_BELOW)
            values += _below(root)
        if not ended:
            where.append(f"NOT {_ENDED}")
            values.append(time.time())
        sql = f"SELECT * FROM tokens WHERE {' AND '.join(where)} ORDER BY created_at, rowid"  # noqa: S608
        rows = await self._writer.run(lambda db: db.execute(sql, values).fetchall())
        return await asyncio.to_thread(lambda: [self._stored(row).token for row in rows])

    async def get(self, token_id: str) -> StoredToken | None:
        """Return a token, ended or not."""
        row = await self._writer.run(lambda db: db.execute("SELECT * FROM tokens WHERE id = ?", (token_id,)).fetchone())
        return None if row is None else self._stored(row)

    async def rotate(self, token_id: str, secret_hash: bytes, overlap_seconds: float, user: Mapping[str, Any]) -> None:
        """Give a token another secret, in the name of `user`; the one before it is good for a while longer.

        Without an overlap it is forgotten at once, so that no clock that is set back makes it good again.
        """
        kept = "secret_hash" if overlap_seconds > 0 else "NULL"
        sql = (
            f"UPDATE tokens SET previous_hash = {kept}, previous_until = ?, secret_hash = ?, "  # noqa: S608
            "record = json_set(record, '$.user', json(?)) WHERE id = ?"
        )
        values = (time.time() + overlap_seconds, secret_hash, dump_bytes(dict(user)).decode(), token_id)
        await self._writer.run(lambda db: db.execute(sql, values), write=True)

    async def revoke(self, principal: str) -> Sequence[str]:
        """Revoke a token and all that were created below it; return the ids of those that were active.

        Raises
        ------
        StorageFull, StoreUnavailable
            With nothing revoked.
        """
        now = time.time()

        def job(db: Database) -> list[str]:
            where = f"{_BELOW} AND revoked_at IS NULL"
            rows = db.execute(f"SELECT id FROM tokens WHERE {where}", _below(principal)).fetchall()  # noqa: S608
            db.execute(f"UPDATE tokens SET revoked_at = ? WHERE {where}", (now, *_below(principal)))  # noqa: S608
            return [row["id"] for row in rows]

        return await self._writer.run(job, write=True)


@lru_cache(maxsize=256)
def _read(record: str) -> tuple[Token, tuple[Grant, ...], dict[str, Any]]:
    """Read what never changes of a token; it is asked for with each request."""
    data = loads_strict(record)
    return token_from_json(data["token"]), tuple(grant_from_json(grant) for grant in data["grants"]), data["user"]


def _below(root: str) -> list[object]:
    return [root, len(root) + 1, f"{root}/"]


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc_timestamp(seconds)
