"""Eviction: selects and removes ended records that are too old, or that exceed a size bound.

Each top-level token has a share of the store. A token over its share loses its own oldest records. When the whole store
exceeds its bound, the principal furthest beyond its entitlement loses its oldest records first. Of each principal,
spooled outputs are removed before records and logs. `eviction_schedule` runs this in the store's thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..auth.token_format import NO_HASH
from ..system.removal import remove_tree
from .database import Database
from .log_file import log_path, remove_spool, spool_path
from .search_database import SEARCH_DATABASE
from .stored_bytes import ROW_BYTES, StoredBytes, StoredTotals, entitlements, size_on_disk

#: Records removed in one transaction. The rest follows in later ones, so that other writes come between.
MAX_REMOVED = 256
# An eviction goes so much below the share, or the next write would cause another one.
_SHARE_SLACK_DIVISOR = 16
# Rows from before migration 8 have no sizes. Their logs count as files, which is never too little.
_ROW_SIZE = f"COALESCE(row_bytes, {ROW_BYTES})"
_FILE_SIZE = "COALESCE(file_bytes, log_bytes)"
# Rows of a principal and its descendants. The character '0' follows '/'.
_WITHIN = "(owner = ? OR (owner > ? || '/' AND owner < ? || '0'))"
_NO_EXECUTIONS = "NOT EXISTS (SELECT 1 FROM executions WHERE session_id = sessions.id)"
# Records of a share's principal and its descendants.
_OF_SHARE = "(owner = principal OR (owner > principal || '/' AND owner < principal || '0'))"
_HAS_EXECUTIONS = f"EXISTS (SELECT 1 FROM executions WHERE {_OF_SHARE})"
_HAS_SESSIONS = f"EXISTS (SELECT 1 FROM sessions WHERE {_OF_SHARE})"
# The earlier of both ends counts: a token can be revoked after it has expired.
_TOKEN_ENDED_AT = "MIN(COALESCE(revoked_at, expires_at), expires_at)"
# The deletion of a token deletes those below it, and one below the record of a Hub token may end later.
_KEPT_BELOW = (
    "SELECT 1 FROM tokens AS below WHERE below.owner > tokens.owner || '/' AND below.owner < tokens.owner || '0' "
    "AND MIN(COALESCE(below.revoked_at, below.expires_at), below.expires_at) >= ?"
)
# Hub tokens that are kept out here. Without their records they would be let in again as new ones, since a Hub token may
# be good for ever. The newest are kept: who has a Hub token can make more, and revoke them.
_REVOKED_OF_HUB = (
    "SELECT id FROM tokens WHERE secret_hash = ? AND hub_token IS NOT NULL AND revoked_at IS NOT NULL "
    "ORDER BY revoked_at DESC LIMIT ?"
)
_MAX_REVOKED_OF_HUB = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds on age and size.

    Parameters
    ----------
    max_age_seconds : float
        Longest age since the end of an execution or session.
    max_bytes : int
        Largest size of the whole store.
    """

    max_age_seconds: float
    max_bytes: int


@dataclass(slots=True)
class Removed:
    """Outcome of one removal.

    Parameters
    ----------
    sessions : list of str
        Ids of sessions of which no record is left.
    executions : list of str
        Ids of executions of which no record is left.
    more : bool
        True if there is more to remove, in another transaction.
    """

    sessions: list[str] = field(default_factory=list)
    executions: list[str] = field(default_factory=list)
    more: bool = False


def expire(db: Database, logs: Path, max_age_seconds: float) -> Removed:
    """Remove records that ended too long ago, in a transaction.

    Files are removed before their rows: a row without a file is removed the next time, a file without a row never.
    """
    horizon = time.time() - max_age_seconds
    expired = db.execute(
        "SELECT id, session_id FROM executions WHERE finished AND finished_at < ? ORDER BY finished_at LIMIT ?",
        (horizon, MAX_REMOVED),
    ).fetchall()
    for row in expired:
        _remove_execution(db, logs, row["session_id"], row["id"])
    old = f"{_TOKEN_ENDED_AT} < ? AND NOT EXISTS ({_KEPT_BELOW}) AND id NOT IN ({_REVOKED_OF_HUB})"
    db.execute(f"DELETE FROM tokens WHERE {old}", (horizon, horizon, NO_HASH, _MAX_REVOKED_OF_HUB))
    db.execute("DELETE FROM accepted_executions WHERE accepted_at < ?", (horizon,))
    bare = db.execute(
        f"SELECT id FROM sessions WHERE ended_at < ? AND {_NO_EXECUTIONS} LIMIT ?",
        (horizon, MAX_REMOVED),
    ).fetchall()
    for row in bare:
        _remove_session(db, logs, row["id"])
    # A share is set just before the first record, so a new one may have none yet.
    unused = f"set_at < ? AND NOT {_HAS_EXECUTIONS} AND NOT {_HAS_SESSIONS}"
    db.execute(f"DELETE FROM stored_shares WHERE {unused}", (horizon,))
    has_more = len(expired) == MAX_REMOVED or len(bare) == MAX_REMOVED
    return Removed([row["id"] for row in bare], [row["id"] for row in expired], has_more)


def _remove_execution(db: Database, logs: Path, session_id: str, execution_id: str) -> None:
    remove_tree(log_path(logs, session_id, execution_id))
    remove_spool(logs, session_id, execution_id)
    db.execute("DELETE FROM executions WHERE id = ?", (execution_id,))


def _remove_session(db: Database, logs: Path, session_id: str) -> None:
    db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
    try:
        (logs / session_id).rmdir()
    except OSError:
        return  # it was never made, or has files of a later version


# --- sizes ---------------------------------------------------------------------------------------------------------


def measure(db: Database, logs: Path, server: str) -> StoredTotals:
    """Return the stored sizes from the database and the disk.

    Parameters
    ----------
    server : str
        The id of this server. The account has its running executions already.
    """
    by_owner: dict[str, int] = {}
    files = rows = 0
    sql = f"SELECT owner, SUM({_ROW_SIZE}), SUM({_FILE_SIZE} + spool_bytes) FROM executions GROUP BY owner"
    for owner, row_bytes, file_bytes in db.execute(sql):
        by_owner[owner] = by_owner.get(owner, 0) + row_bytes + file_bytes
        files += file_bytes
        rows += row_bytes
    for owner, row_bytes in db.execute(f"SELECT owner, SUM({_ROW_SIZE}) FROM sessions GROUP BY owner"):
        by_owner[owner] = by_owner.get(owner, 0) + row_bytes
        rows += row_bytes
    running = db.execute("SELECT id, session_id, owner FROM executions WHERE NOT finished AND server != ?", (server,))
    for execution_id, session_id, owner in running:
        size = _measure_files(logs, session_id, execution_id)
        by_owner[owner] = by_owner.get(owner, 0) + size
        files += size
    files += _measure_file(logs.with_name(SEARCH_DATABASE))  # of no owner: each execution is a part of it
    shares = dict(db.execute("SELECT principal, share_bytes FROM stored_shares").fetchall())
    return StoredTotals(by_owner, files, db.size_bytes(), rows, shares)


def save_share(db: Database, account: StoredBytes, principal: str, share_bytes: int | None) -> None:
    """Write a principal's share, None for the default: evictions after a restart and by other servers need it."""
    db.execute("DELETE FROM stored_shares WHERE principal = ?", (principal,))
    if share_bytes is not None:
        db.execute("INSERT INTO stored_shares VALUES (?, ?, ?)", (principal, share_bytes, time.time()))
    db.after_commit(lambda: account.note_saved(principal, share_bytes))


def _measure_files(logs: Path, session_id: str, execution_id: str) -> int:
    """Return the bytes on disk of another server's running execution."""
    paths = [log_path(logs, session_id, execution_id)]
    with suppress(OSError):  # it has no spool
        paths += spool_path(logs, session_id, execution_id).iterdir()
    return sum(map(_measure_file, paths))


def _measure_file(path: Path) -> int:
    try:
        return size_on_disk(path.lstat().st_size)
    except OSError:
        return 0  # there is none, or it was just removed


# --- eviction ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """A removable record with its sizes."""

    owner: str
    row_bytes: int
    file_bytes: int
    remove: Callable[[], None]
    session_id: str | None = None
    execution_id: str | None = None


class Eviction:
    """One eviction, in a transaction: reduces the store, and each principal, to its bound.

    Parameters
    ----------
    account : StoredBytes
        Loaded with the result of `measure`.
    """

    def __init__(self, db: Database, logs: Path, account: StoredBytes) -> None:
        self._db = db
        self._logs = logs
        self._account = account
        self._left = MAX_REMOVED
        self._removed = Removed()

    def run(self) -> Removed:
        """Remove records beyond the bounds, and set the account's principals without room."""
        full = set(self._keep_shares())
        full.update(self._keep_whole())
        self._removed.more = self._left <= 0
        # The principals without room are known only when nothing more can be removed.
        if not self._removed.more:
            self._account.full = frozenset(full)
        return self._removed

    def _keep_shares(self) -> Iterator[str]:
        """Remove the oldest records of principals over their share; yield those that stay over it."""
        for principal in self._account.over_share():
            share = self._account.share_of(principal) or 0
            target = share - share // _SHARE_SLACK_DIVISOR
            for item in self._items(principal):
                if self._account.used(principal) <= target or self._left <= 0:
                    break
                self._remove(item)
            if self._account.used(principal) > share:
                yield principal

    def _keep_whole(self) -> Iterator[str]:
        """Remove the oldest records of roots furthest beyond their entitlement; yield those without room."""
        account = self._account
        if account.total <= account.eviction_mark:
            return
        roots = account.roots()
        entitled = entitlements(account, roots)
        # Generators: a root is queried only when it is its turn.
        items = {root: self._items(root) for root in roots}
        while items and account.total > account.eviction_target and self._left > 0:
            root = max(items, key=lambda root: account.used(root) - entitled[root])
            if account.used(root) <= entitled[root]:
                break  # the rest belongs to executions that have not ended, of roots beyond their entitlement
            item = next(items[root], None)
            if item is None:
                del items[root]
            else:
                self._remove(item)
        if account.total > account.eviction_mark:
            beyond = account.total > account.max_bytes
            yield from (root for root in roots if beyond or account.used(root) > entitled[root])

    def _remove(self, item: _Item) -> None:
        item.remove()
        self._account.remove(item.owner, row_bytes=item.row_bytes, file_bytes=item.file_bytes)
        if item.session_id is not None:
            self._removed.sessions.append(item.session_id)
        if item.execution_id is not None:
            self._removed.executions.append(item.execution_id)
        self._left -= 1

    def _items(self, principal: str) -> Iterator[_Item]:
        """Yield the removable records of a principal and its descendants, in the order of their removal."""
        yield from self._spools(principal)
        yield from self._executions(principal)
        yield from self._sessions(principal)

    def _spools(self, principal: str) -> Iterator[_Item]:
        sql = (
            f"SELECT id, session_id, owner, spool_bytes FROM executions WHERE {_WITHIN} AND finished "
            "AND spool_bytes > 0 ORDER BY finished_at, id LIMIT ?"
        )
        for execution_id, session_id, owner, spool_bytes in self._rows(sql, principal):
            yield _Item(owner, 0, spool_bytes, partial(self._remove_spool, session_id, execution_id))

    def _remove_spool(self, session_id: str, execution_id: str) -> None:
        remove_spool(self._logs, session_id, execution_id)
        self._db.execute("UPDATE executions SET spool_bytes = 0 WHERE id = ?", (execution_id,))

    def _executions(self, principal: str) -> Iterator[_Item]:
        sql = (
            f"SELECT id, session_id, owner, {_ROW_SIZE}, {_FILE_SIZE} FROM executions "
            f"WHERE {_WITHIN} AND finished ORDER BY finished_at, id LIMIT ?"
        )
        # Without spools: `_items` has removed all of them by now, or the transaction's number is reached.
        for execution_id, session_id, owner, row_bytes, file_bytes in self._rows(sql, principal):
            remove = partial(_remove_execution, self._db, self._logs, session_id, execution_id)
            yield _Item(owner, row_bytes, file_bytes, remove, execution_id=execution_id)

    def _sessions(self, principal: str) -> Iterator[_Item]:
        sql = (
            f"SELECT id, owner, {_ROW_SIZE} FROM sessions WHERE {_WITHIN} AND ended "
            f"AND {_NO_EXECUTIONS} ORDER BY ended_at, id LIMIT ?"
        )
        for session_id, owner, row_bytes in self._rows(sql, principal):
            remove = partial(_remove_session, self._db, self._logs, session_id)
            yield _Item(owner, row_bytes, 0, remove, session_id)

    def _rows(self, sql: str, principal: str) -> list[sqlite3.Row]:
        return self._db.execute(sql, (principal, principal, principal, MAX_REMOVED)).fetchall()
