"""Account of stored bytes: how many the store holds, in all and for each principal.

Each write to the store is added at once, in any thread. `eviction` reloads the account from the database and selects
the records to remove when a bound is exceeded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..auth.caller import TOKEN_PREFIX, is_within

#: Allocation unit of file systems, in bytes.
BLOCK_BYTES = 4096
#: Size of a row without its record and log, in bytes: other columns, index entries, its audit records.
ROW_BYTES = 1024
#: A top-level token without a share of its own gets a tenth of the store's bytes.
DEFAULT_SHARE_DIVISOR = 10
_MAX_HEADROOM_BYTES = 64 * 1024 * 1024
_HEADROOM_DIVISOR = 16
_MAX_SHARES = 10_000


def size_on_disk(size_bytes: int) -> int:
    """Return the bytes that a file of this size takes on disk."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def lineage_of(principal: str) -> list[str]:
    """Return a principal and its ancestors, the root first."""
    ids = principal.split("/")
    return ["/".join(ids[:count]) for count in range(1, len(ids) + 1)]


@dataclass(slots=True)
class _Growing:
    """Files of a running execution."""

    owner: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoredTotals:
    """Sizes as the database and the disk have them, in bytes.

    Parameters
    ----------
    by_owner : mapping
        Rows, event logs and spooled outputs of each owner, those of other servers' running executions included.
    files : int
        Event logs and spooled outputs on disk.
    database : int
        The database's pages in use.
    rows : int
        The rows of all owners, which are a part of the database.
    shares : mapping
        Shares of principals that have one of their own, as any server of the store has set them last.
    """

    by_owner: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    database: int = 0
    rows: int = 0
    shares: Mapping[str, int] = field(default_factory=dict)

    @property
    def without_owner(self) -> int:
        """The size of the database without rows of owners, in bytes: mostly the audit trail."""
        return self.database - self.rows


class StoredBytes:
    """The store's bytes in all and for each principal. Thread-safe.

    Parameters
    ----------
    max_bytes : int
        Bound on the whole store, in bytes. Eviction begins a little below it, to leave room for running executions.

    Attributes
    ----------
    full : frozenset of str
        Principals without room: all of their bytes belong to running executions.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.full: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._shares: dict[str, int] = {}
        # Shares that were set since, and that the database has not yet.
        self._unsaved: dict[str, int | None] = {}
        self._within: Counter[str] = Counter()
        self._growing: dict[str, _Growing] = {}
        self._files = self._database = 0

    @property
    def eviction_mark(self) -> int:
        """The size from which records are evicted, in bytes."""
        return self.max_bytes - self._headroom

    @property
    def eviction_target(self) -> int:
        """The size that an eviction reduces the store to, in bytes."""
        return self.max_bytes - 2 * self._headroom

    @property
    def _headroom(self) -> int:
        return min(_MAX_HEADROOM_BYTES, self.max_bytes // _HEADROOM_DIVISOR)

    @property
    def total(self) -> int:
        """The size of the whole store, in bytes."""
        return self._files + self._database

    # --- shares ---

    def set_shares(self, shares: Mapping[str, int | None]) -> dict[str, int | None]:
        """Set the shares of principals, in bytes; None for the default. Return those that were others before."""
        with self._lock:
            changed = {who: share for who, share in shares.items() if self._shares.get(who) != share}
            if len(self._shares) + len(shares) > _MAX_SHARES:
                # Each request of a token sets its share again, so those without records can be dropped.
                self._shares = {who: share for who, share in self._shares.items() if self._within[who]}
            if len(self._unsaved) + len(shares) > _MAX_SHARES:
                self._unsaved.clear()
            self._use_shares(shares)
            self._unsaved.update(changed)
            return changed

    def _use_shares(self, shares: Mapping[str, int | None]) -> None:
        for principal, share in shares.items():
            if share is None:
                self._shares.pop(principal, None)
            else:
                self._shares[principal] = share

    def note_saved(self, principal: str, share: int | None) -> None:
        """Note that the database has a share now."""
        with self._lock:
            if self._unsaved.get(principal, -1) == share:  # or it was set anew meanwhile
                del self._unsaved[principal]

    def share_of(self, principal: str) -> int | None:
        """Return the share of a principal with its descendants, in bytes; None if it has none of its own."""
        is_top_level_token = principal.startswith(TOKEN_PREFIX) and "/" not in principal
        return self._shares.get(principal, self.max_bytes // DEFAULT_SHARE_DIVISOR if is_top_level_token else None)

    def least_share_of(self, owner: str) -> int | None:
        """Return the least share of `owner` and its ancestors, in bytes; None if none has one."""
        shares = [self.share_of(principal) for principal in lineage_of(owner)]
        return min((share for share in shares if share is not None), default=None)

    def used(self, principal: str) -> int:
        """Return the bytes of a principal with its descendants."""
        return self._within[principal]

    def roots(self) -> list[str]:
        """Return the owner and the top-level tokens that have records."""
        with self._lock:
            return [who for who, size in self._within.items() if "/" not in who and size > 0]

    def over_share(self) -> list[str]:
        """Return the principals that exceed their share, the deepest first."""
        with self._lock:
            principals = list(self._within)
        found = [who for who in principals if (share := self.share_of(who)) is not None and self.used(who) > share]
        # A child's losses lower its ancestors as well, which may then be within their shares.
        return sorted(found, key=lambda who: -who.count("/"))

    def needs_eviction(self, owner: str) -> bool:
        """Return whether `owner`, an ancestor or the store exceeds its bound."""
        if self.total > self.eviction_mark:
            return True
        shares = ((self.share_of(principal), self.used(principal)) for principal in lineage_of(owner))
        return any(share is not None and used > share for share, used in shares)

    def is_full_for(self, owner: str) -> bool:
        """Return whether the store has no room for `owner`."""
        return any(is_within(owner, principal) for principal in self.full)

    # --- changes ---

    def load(self, stored: StoredTotals) -> None:
        """Replace the sizes of the database and of ended executions, and the shares."""
        with self._lock:
            self._shares = dict(stored.shares)
            self._use_shares(self._unsaved)
            self._within = Counter()
            for owner, size in stored.by_owner.items():
                self._add(owner, size)
            # The database has no sizes of files that still grow.
            for growing in self._growing.values():
                self._add(growing.owner, growing.size_bytes)
            self._files = stored.files + sum(growing.size_bytes for growing in self._growing.values())
            self._database = stored.database

    def _add(self, owner: str, size_bytes: int) -> None:
        for principal in lineage_of(owner):
            self._within[principal] += size_bytes

    def add_row(self, owner: str, size_bytes: int) -> None:
        """Add the growth of rows of `owner` in the database."""
        with self._lock:
            self._add(owner, size_bytes)
            self._database += size_bytes

    def grow(self, execution_id: str, owner: str, size_bytes: int) -> None:
        """Add the growth of a running execution's files; negative if they shrank."""
        with self._lock:
            growing = self._growing.setdefault(execution_id, _Growing(owner))
            growing.size_bytes += size_bytes
            self._add(owner, size_bytes)
            self._files += size_bytes

    def settle(self, execution_id: str, owner: str, *, row_bytes: int, file_bytes: int) -> None:
        """End an execution: add the growth of its row, and replace its running size by its final size in files."""
        with self._lock:
            grown = self._growing.pop(execution_id, _Growing(owner)).size_bytes
            self._add(owner, row_bytes + file_bytes - grown)
            self._files += file_bytes - grown
            self._database += row_bytes

    def remove(self, owner: str, *, row_bytes: int = 0, file_bytes: int = 0) -> None:
        """Subtract removed bytes of `owner`."""
        with self._lock:
            self._add(owner, -row_bytes - file_bytes)
            self._files -= file_bytes
            self._database -= row_bytes


def entitlements(account: StoredBytes, roots: Iterable[str]) -> dict[str, int]:
    """Return the bytes that each root can keep regardless of the others.

    This is an equal part of the size after an eviction, or the root's share if that is less. Evictions start with the
    root furthest beyond it, so they never reach a root that has less.
    """
    roots = list(roots)
    without_owner = max(0, account.total - sum(map(account.used, roots)))  # the audit trail and free parts of tables
    equal = max(0, account.eviction_target - without_owner) // max(1, len(roots))
    return {root: equal if (share := account.share_of(root)) is None else min(share, equal) for root in roots}
