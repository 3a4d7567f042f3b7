"""Audit log: appends records to the audit trail, samples floods of denials, and delivers records to subscribers.

A record that must not be missing is written in its caller's transaction (`AuditLog.append`). Other records follow soon,
and are retried until the storage takes them (`AuditLog.record`). `audit_table` keeps the chain.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..audit.digest_chain import clipped, clipped_data
from ..auth.rate_limiter import RateLimiter
from ..errors import ExecError
from ..models import AuditKind, AuditRecord
from ..protocol.records_json import utc_timestamp
from ..protocol.strict_json import dumps
from .audit_table import prune, put
from .database import Database
from .database_writer import Writer
from .store_health import Log

_KEY = "audit"
_MAX_WAITING = 10_000  # while the storage takes nothing; later records are counted as lost
_SUPPRESSED_SECONDS = 60.0
_PRUNE_SECONDS = 3600.0
_PRUNE_AGAIN_SECONDS = 60.0
_PRUNE_RECORDS = 5000  # takes some milliseconds
_PRUNE_OLDEST_RECORDS = 500
_LATEST = "9999"  # after every moment
_DENIAL_BURST = 50
_DENIALS_PER_MINUTE = 20.0
_MAX_PRINCIPALS = 1000
_OTHER = "other"

Subscriber = Callable[[AuditRecord], None]


class DenialSampler:
    """Rate limiter of recorded denials: it counts a flood of them, so that they cannot fill the disk.

    Each principal has a budget; all callers without one share a budget.
    """

    def __init__(self) -> None:
        self._rate_limiter = RateLimiter(_DENIAL_BURST, _DENIALS_PER_MINUTE, _MAX_PRINCIPALS)
        self._suppressed: Counter[str] = Counter()

    def should_record(self, principal: str, code: object, now: float) -> bool:
        """Return whether to record a denial with the error `code`; count it if not."""
        if self._rate_limiter.spend_action(principal, now) == 0.0:
            return True
        # Only known codes are keys, so that the counter stays small.
        self._suppressed[code if isinstance(code, str) and code in ExecError.codes() else _OTHER] += 1
        return False

    def pop_suppressed(self) -> dict[str, int]:
        """Return the numbers of denials that were only counted, by code, and reset them."""
        popped = dict(self._suppressed)
        self._suppressed.clear()
        return popped


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record before it has its place in the chain."""

    at: float
    kind: AuditKind
    action: str
    principal: str
    subject: str
    data: Mapping[str, Any]


def _entry(kind: AuditKind, action: str, **data: Any) -> _Entry:
    """Return an entry about the trail itself, with no principal and no subject."""
    return _Entry(time.time(), kind, action, "", "", data)


class AuditLog:
    """Writes the audit trail.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs.
    max_age_seconds : float
        Older records are removed from the beginning of the trail.
    log : Log
        Gets the faults of subscribers.
    """

    def __init__(self, writer: Writer, max_age_seconds: float, log: Log) -> None:
        self._writer = writer
        self._max_age_seconds = max_age_seconds
        self._log = log
        self._prune_at = 0.0
        self._waiting: list[_Entry] = []  # the loop's thread appends, the store's thread removes
        self._lost = self._recorded_lost = 0
        self._is_scheduled = False
        self._denials = DenialSampler()
        self._suppressed_timer: asyncio.TimerHandle | None = None
        self._subscribers: list[Subscriber] = []
        self._committed: deque[AuditRecord] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- records in a caller's transaction ---

    def append(
        self, db: Database, kind: AuditKind, action: str, principal: str, subject: str, data: Mapping[str, Any]
    ) -> None:
        """Append a record in the caller's transaction. Long texts other than ``code`` are cut."""
        self._prune_if_due(db)
        self._append(db, _Entry(time.time(), kind, action, principal, subject, data))

    def _append(self, db: Database, entry: _Entry) -> None:
        data = clipped_data(entry.data)
        # Of an execution `code` is its source, kept whole for `ExecStore.audit_code`. A denial's is an error code.
        if "code" in entry.data and entry.kind is AuditKind.EXECUTION:
            data["code"] = entry.data["code"]
        at, principal, subject = utc_timestamp(entry.at), clipped(entry.principal), clipped(entry.subject)
        record = put(db, AuditRecord(0, at, entry.kind, entry.action, principal, subject, data, ""))
        if self._subscribers:
            db.after_commit(lambda: self._publish(record))

    def _prune_if_due(self, db: Database) -> None:
        if time.monotonic() >= self._prune_at:
            count = self._prune(db, utc_timestamp(time.time() - self._max_age_seconds), _PRUNE_RECORDS)
            self._prune_at = time.monotonic() + (_PRUNE_AGAIN_SECONDS if count >= _PRUNE_RECORDS else _PRUNE_SECONDS)

    def prune_oldest(self, db: Database) -> bool:
        """Remove some of the oldest records in the caller's transaction; return whether there were any."""
        return self._prune(db, _LATEST, _PRUNE_OLDEST_RECORDS) > 0

    def _prune(self, db: Database, moment: str, limit: int) -> int:
        """Remove and record up to `limit` records from before `moment`; return their number."""
        removed = prune(db, moment, limit)
        if removed is None:
            return 0
        # The same transaction records it, so that a missing beginning is always explained.
        first, last = removed
        self._append(db, _entry(AuditKind.TRAIL, "pruned", first_seq=first, last_seq=last))
        return last - first + 1

    # --- records in a transaction of their own ---

    def record(self, kind: str, action: str, principal: str, subject: str, **data: Any) -> None:
        """Record an action soon, from the loop's thread. Faults of the storage are retried, never raised.

        Parameters
        ----------
        kind : str
            One of `AuditKind`.
        action : str
            The action's name in the kind's schema.
        principal : str
            The author; empty for an unknown caller.
        subject : str
            The id or path of the object.
        **data
            As in the kind's schema. A refusal (``denial``) has its error code as ``code``.
        """
        dumps(clipped_data(data))  # raises for the caller's mistake, which would block every later record
        entry = _Entry(time.time(), AuditKind(kind), action, principal, subject, data)
        if entry.kind is AuditKind.DENIAL:
            self._record_denial(entry)
        else:
            self._put(entry)

    def _record_denial(self, entry: _Entry) -> None:
        if not self._denials.should_record(entry.principal, entry.data.get("code"), time.monotonic()):
            if self._suppressed_timer is None:
                loop = asyncio.get_running_loop()
                self._suppressed_timer = loop.call_later(_SUPPRESSED_SECONDS, self._record_suppressed)
            return
        path = entry.subject.partition("?")[0]  # a query may hold a secret
        self._put(replace(entry, subject=path, data={**entry.data, "suppressed": self._pop_suppressed()}))

    def _pop_suppressed(self) -> dict[str, int]:
        if self._suppressed_timer is not None:
            self._suppressed_timer.cancel()
            self._suppressed_timer = None
        return self._denials.pop_suppressed()

    def _record_suppressed(self) -> None:
        suppressed = self._pop_suppressed()
        if suppressed:
            self._put(_entry(AuditKind.DENIAL, "suppressed", suppressed=suppressed))

    def _put(self, entry: _Entry) -> None:
        if self._writer.closed:
            self._log.error(
                "audit: %s %s came after the store was closed, so it has no record", entry.kind, entry.action
            )
        elif len(self._waiting) >= _MAX_WAITING:
            self._lost += 1
        else:
            self._waiting.append(entry)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._writer.submit_last(_KEY, self._write)

    def _write(self, db: Database) -> None:
        self._is_scheduled = False
        # Copied after the flag is reset: an entry that comes now is either in the copy or schedules a write.
        # If the transaction fails, the entries stay in `_waiting` for the retry.
        batch, lost = self._waiting[:], self._lost - self._recorded_lost
        self._prune_if_due(db)
        for entry in batch:
            self._append(db, entry)
        if lost:
            self._append(db, _entry(AuditKind.TRAIL, "lost", count=lost))
        db.after_commit(lambda: self._remove_written(len(batch), lost))

    def _remove_written(self, count: int, lost: int) -> None:
        del self._waiting[:count]  # others may have come since
        self._recorded_lost += lost

    def close(self) -> None:
        """Record what waits, before the writer is closed."""
        suppressed = self._pop_suppressed()
        if suppressed:
            self._waiting.append(_entry(AuditKind.DENIAL, "suppressed", suppressed=suppressed))
        if self._waiting or self._lost > self._recorded_lost:
            self._writer.thread.submit(self._writer.perform_last, _KEY, self._write)

    # --- subscribers ---

    def subscribe(self, subscriber: Subscriber) -> None:
        """Deliver every record that this process commits from now on to `subscriber`; see `start`."""
        self._subscribers.append(subscriber)

    def start(self) -> None:
        """Start to deliver records, in the running loop; until then they are held back."""
        self._loop = asyncio.get_running_loop()
        self._deliver()

    def _publish(self, record: AuditRecord) -> None:
        """Queue a committed record for delivery; in the store's thread."""
        self._committed.append(record)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._committed:
            record = self._committed.popleft()
            for subscriber in self._subscribers:
                try:
                    subscriber(record)
                except Exception:  # a fault of one subscriber must not keep records from the others
                    self._log.exception("audit: record %d could not be delivered", record.seq)
