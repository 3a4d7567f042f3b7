"""Token table: hashes of scoped tokens' secrets, and the rights of their bearers."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from ..auth.token_format import NO_HASH, matches_any
from ..errors import TokenRevoked, TokenTooBroad, TooManyTokens
from ..models import Grant, StoredToken, Token
from ..protocol.records_json import grant_from_json, to_json, token_from_json, utc_timestamp
from ..protocol.strict_json import dump_bytes, dumps, loads_strict
from .database import Database
from .database_reader import DatabaseReader
from .database_writer import Writer

# This returns one row for a known and for an unknown token, so that both take the same time.
_HASHES = (
    "SELECT secret_hash, previous_hash, previous_until FROM (SELECT ? AS wanted) LEFT JOIN tokens ON tokens.id = wanted"
)
_OWNER_PART_DIVISOR = 10  # one in ten of the tokens is reserved for the owner
# `LIKE` would ignore case, and ids in base62 differ by it.
_BELOW = "(owner = ? OR substr(owner, 1, ?) = ?)"
_SET_END = "expires_at = ?, record = json_set(record, '$.token.expires_at', ?)"
_ENDED = "(revoked_at IS NOT NULL OR expired_at IS NOT NULL OR expires_at <= ?)"


class TokenRepository:
    """Keeps tokens. `find` and `ended` are quick enough for the event loop; all other methods wait for the disk.

    Parameters
    ----------
    writer : Writer
        Runs writes and long reads.
    reader : DatabaseReader
        Runs short reads.
    """

    def __init__(self, writer: Writer, reader: DatabaseReader) -> None:
        self._writer = writer
        self._reader = reader
        self._expired: set[str] = set()

    # --- authentication ---

    def find(self, token_id: str, secret_hash: bytes) -> StoredToken | None:
        """Return the token with this id, active or ended, if the secret is right.

        Raises
        ------
        StoreUnavailable
            If the database cannot be read.
        """
        (row,) = self._reader.rows(_HASHES, (token_id,))
        still_good = (row["previous_until"] or 0.0) > time.time()
        kept = [row["secret_hash"] or NO_HASH, (row["previous_hash"] if still_good else None) or NO_HASH]
        if not matches_any(secret_hash, kept):
            return None
        rows = self._reader.rows("SELECT * FROM tokens WHERE id = ?", (token_id,))
        return self._stored(rows[0]) if rows else None

    def ended(self, token_ids: Collection[str]) -> dict[str, Token | None]:
        """Return those of these tokens that have ended; None stands for a token that the database does not have."""
        # One parameter for all ids, because SQLite bounds the number of parameters.
        sql = f"SELECT id FROM tokens WHERE id IN (SELECT value FROM json_each(?)) AND NOT {_ENDED}"
        rows = self._reader.rows(sql, (dumps(list(token_ids)), time.time()))
        # `_expired` has tokens that the database would call active again after the clock was set back.
        active = {row["id"] for row in rows} - self._expired
        return {token_id: self._token(token_id) for token_id in token_ids if token_id not in active}

    def _token(self, token_id: str) -> Token | None:
        rows = self._reader.rows("SELECT * FROM tokens WHERE id = ?", (token_id,))
        return self._stored(rows[0]).token if rows else None

    def _stored(self, row: sqlite3.Row) -> StoredToken:
        """Read a row. A token that was seen expired stays expired, even if the clock is set back."""
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
        is_of_hub = row["secret_hash"] == NO_HASH
        return StoredToken(token, grants, user, row["expires_at"], row["hub_token"] or "", is_of_hub)

    async def note_expired(self, token_id: str) -> bool:
        """Record that a token was seen expired; return whether that was not recorded before."""
        sql = "UPDATE tokens SET expired_at = ? WHERE id = ? AND expired_at IS NULL"
        moment = time.time()
        # The job may run after this call has returned, if the storage takes it later.
        changed: list[int] = []
        await self._writer.submit_last(
            f"expired {token_id}", lambda db: changed.append(db.execute(sql, (moment, token_id)).rowcount)
        )
        return changed == [1]

    async def note_use(self, token_id: str) -> None:
        """Record that a token was used now."""
        moment = time.time()
        sql = "UPDATE tokens SET last_used_at = ? WHERE id = ?"
        await self._writer.submit_last(f"used {token_id}", lambda db: db.execute(sql, (moment, token_id)))

    # --- management ---

    async def add(self, stored: StoredToken, secret_hash: bytes, max_tokens: int) -> None:
        """Insert a token.

        Raises
        ------
        TokenRevoked
            If its parent has ended meanwhile.
        TokenTooBroad
            If its parent was rotated to an earlier end meanwhile.
        TooManyTokens
            If there are `max_tokens` active ones, or as many as others than the owner may create.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        token = stored.token
        now = time.time()
        record = {"token": to_json(token), "grants": [to_json(g) for g in stored.grants], "user": dict(stored.user)}

        def job(db: Database) -> None:
            self._writer.require_reserve()
            # In the transaction that inserts: a revocation either ends the parent before it, or finds the child.
            above = f"SELECT 1 FROM tokens WHERE id = ? AND NOT {_ENDED}"
            if token.parent_id and db.execute(above, (token.parent_id, now)).fetchone() is None:
                raise TokenRevoked(f"the token {token.parent_id} has ended; ask for another one")
            _require_no_longer(db, token.parent_id, stored.expires_at_seconds)
            sql = f"SELECT COUNT(*) AS active FROM tokens WHERE NOT {_ENDED}"
            # Tokens that others create must not keep the owner from creating one.
            is_owners = token.parent_id is None and not stored.is_of_hub
            most = max_tokens if is_owners else max_tokens - max(1, max_tokens // _OWNER_PART_DIVISOR)
            if max_tokens and db.execute(sql, (now,)).fetchone()["active"] >= most:
                raise TooManyTokens(f"there may be {most} tokens at once (max_tokens); revoke one first")
            db.execute(
                "INSERT INTO tokens (id, parent_id, owner, secret_hash, created_at, expires_at, record, hub_token) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    token.id,
                    token.parent_id,
                    token.principal,
                    secret_hash,
                    now,
                    stored.expires_at_seconds,
                    dump_bytes(record).decode(),
                    stored.hub_token or None,
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
        sql = f"SELECT * FROM tokens WHERE {' AND '.join(where)} ORDER BY created_at, rowid"
        rows = await self._writer.run(lambda db: db.execute(sql, values).fetchall())
        return await asyncio.to_thread(lambda: [self._stored(row).token for row in rows])

    async def get(self, token_id: str) -> StoredToken | None:
        """Return a token, active or ended."""
        row = await self._writer.run(lambda db: db.execute("SELECT * FROM tokens WHERE id = ?", (token_id,)).fetchone())
        return None if row is None else self._stored(row)

    async def rotate(
        self,
        token_id: str,
        secret_hash: bytes,
        overlap_seconds: float,
        user: Mapping[str, Any],
        expires_at_seconds: float,
        hub_token: str = "",
    ) -> None:
        """Replace a token's secret and end, in the name of `user`; the previous secret stays valid for the overlap.

        Without an overlap the previous secret is deleted, so that it stays invalid if the clock is set back. The tokens
        below it end with it at the latest.

        Raises
        ------
        TokenTooBroad
            If the token above it ends earlier.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        kept = "secret_hash" if overlap_seconds > 0 else "NULL"
        sql = (
            f"UPDATE tokens SET previous_hash = {kept}, previous_until = ?, secret_hash = ?, "
            "expires_at = ?, record = json_set(record, '$.user', json(?), '$.token.expires_at', ?), hub_token = ? "
            "WHERE id = ?"
        )
        until, by = time.time() + overlap_seconds, dump_bytes(dict(user)).decode()
        end = utc_timestamp(expires_at_seconds)
        values = (until, secret_hash, expires_at_seconds, by, end, hub_token or None, token_id)
        shorten = f"UPDATE tokens SET {_SET_END} WHERE {_BELOW} AND expires_at > ?"

        def job(db: Database) -> None:
            for row in db.execute("SELECT owner, parent_id FROM tokens WHERE id = ?", (token_id,)).fetchall():
                _require_no_longer(db, row["parent_id"], expires_at_seconds)
                db.execute(sql, values)
                db.execute(shorten, (expires_at_seconds, end, *_below(row["owner"]), expires_at_seconds))

        await self._writer.run(job, write=True)

    async def revoke(self, principal: str) -> Sequence[str]:
        """Revoke a token and its descendants; return the ids of those that were not revoked before.

        Raises
        ------
        StorageFull, StoreUnavailable
            If it cannot be written; no token is then revoked.
        """
        now = time.time()

        return await self._writer.run(lambda db: _revoke(db, principal, now), write=True)

    # --- JupyterHub tokens ---

    def find_of_hub(self, hub_token: str, policy: str) -> StoredToken | None:
        """Return the record of a Hub token itself: one revoked here, else an active one of the policy, else the last.

        A revocation by the server's owner is about the Hub token, and so holds under each policy. One that the Hub has
        caused is not found, since `revoke_of_hub` detaches the record.
        """
        sql = "SELECT * FROM tokens WHERE hub_token = ? AND secret_hash = ? ORDER BY created_at, rowid"
        found = [self._stored(row) for row in self._reader.rows(sql, (hub_token, NO_HASH))]
        of_policy = [stored for stored in found if stored.token.policy == policy]
        revoked = (stored for stored in found if stored.token.revoked_at is not None)
        # The first active one: should two servers with one store have made two at once, both use the same.
        active = (stored for stored in of_policy if stored.token.active)
        return next(chain(revoked, active, reversed(of_policy)), None)

    def is_in_name_of(self, hub_token: str, token_id: str) -> bool:
        """Return whether a token was made in a Hub token's name, or rotated in it since.

        Raises
        ------
        StoreUnavailable
            If the database cannot be read.
        """
        return bool(self._reader.rows("SELECT 1 FROM tokens WHERE id = ? AND hub_token = ?", (token_id, hub_token)))

    def made_until(self, hub_token: str) -> float:
        """Return when the last active token made in a Hub token's name expires, since the epoch; 0 without one."""
        sql = f"SELECT MAX(expires_at) AS latest FROM tokens WHERE hub_token = ? AND secret_hash != ? AND NOT {_ENDED}"
        (row,) = self._reader.rows(sql, (hub_token, NO_HASH, time.time()))
        return row["latest"] or 0.0

    async def extend(self, token_id: str, expires_at_seconds: float) -> None:
        """Move the end of an active token, now or as soon as the storage permits."""
        key = f"extended {token_id}"
        sql = f"UPDATE tokens SET {_SET_END} WHERE id = ? AND NOT {_ENDED}"
        values = (expires_at_seconds, utc_timestamp(expires_at_seconds), token_id)
        if not self._writer.has_unsaved(key):
            await self._writer.submit_last(key, lambda db: db.execute(sql, (*values, time.time())))

    async def revoke_of_hub(self, hub_token: str) -> Sequence[str]:
        """Revoke a Hub token's records, and all tokens made in its name or below one; return the ids of the revoked.

        They are detached from it: if the Hub lets the same token in again, it gets a new record.
        """
        made = "SELECT owner FROM tokens WHERE hub_token = ? AND revoked_at IS NULL"
        if not self._reader.rows(made, (hub_token,)):
            return ()  # most refused tokens are unknown, and need no write
        now = time.time()

        def job(db: Database) -> list[str]:
            ended: list[str] = []
            for row in db.execute(made, (hub_token,)).fetchall():
                ended += _revoke(db, row["owner"], now)
            db.execute("UPDATE tokens SET hub_token = NULL WHERE hub_token = ? AND revoked_at = ?", (hub_token, now))
            return ended

        return await self._writer.run(job, write=True)


@lru_cache(maxsize=256)
def _read(record: str) -> tuple[Token, tuple[Grant, ...], dict[str, Any]]:
    """Parse the unchanging part of a token. It is cached because each request needs it."""
    data = loads_strict(record)
    return token_from_json(data["token"]), tuple(grant_from_json(grant) for grant in data["grants"]), data["user"]


def _require_no_longer(db: Database, parent_id: str | None, expires_at_seconds: float) -> None:
    """Check that a token ends no later than its parent, in the transaction that writes it.

    The record of a Hub token bounds none: the Hub decides, and use moves the record's end.
    """
    sql = "SELECT expires_at FROM tokens WHERE id = ? AND secret_hash != ? AND expires_at < ?"
    for row in db.execute(sql, (parent_id, NO_HASH, expires_at_seconds)).fetchall():
        raise TokenTooBroad(f"the token {parent_id} above ends earlier, at {utc_timestamp(row['expires_at'])}")


def _revoke(db: Database, principal: str, now: float) -> list[str]:
    where = f"{_BELOW} AND revoked_at IS NULL"
    rows = db.execute(f"SELECT id FROM tokens WHERE {where}", _below(principal)).fetchall()
    db.execute(f"UPDATE tokens SET revoked_at = ? WHERE {where}", (now, *_below(principal)))
    return [row["id"] for row in rows]


def _below(root: str) -> list[object]:
    return [root, len(root) + 1, f"{root}/"]


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else utc_timestamp(seconds)
