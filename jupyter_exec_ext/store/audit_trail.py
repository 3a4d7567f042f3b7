"""The audit trail, for those who write to it.

What must not be without its record is recorded in its own transaction (`AuditLog.append`); the rest follows within a
moment, and is tried again until the storage takes it (`AuditLog.record`). Whoever subscribes is given every record once
it is committed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..audit.digest_chain import clipped, clipped_data
from ..models import AuditKind, AuditRecord
from ..protocol.records_json import utc_timestamp
from ..protocol.strict_json import dumps
from .audit_table import prune, put
from .database import Database
from .database_writer import Log, Writer
from .denial_sampling import DenialFilter

_KEY = "audit"
_MAX_WAITING = 10_000
_SUPPRESSED_SECONDS = 60.0
_PRUNE_SECONDS = 3600.0
_PRUNE_AGAIN_SECONDS = 60.0
_PRUNE_RECORDS = 5000  # at once: some milliseconds
_PRUNE_OLDEST_RECORDS = 500
_LATEST = "9999"  # after every moment

Subscriber = Callable[[AuditRecord], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is to be recorded."""

    at: float
    kind: AuditKind
    action: str
    principal: str
    subject: str
    data: Mapping[str, Any]


class AuditLog:
    """Writes the trail.

    Parameters
    ----------
    max_age_seconds : float
        Older records are removed from the beginning.
    """

    def __init__(self, writer: Writer, max_age_seconds: float, log: Log) -> None:
        self._writer = writer
        self._max_age_seconds = max_age_seconds
        self._log = log
        self._prune_at = 0.0
        self._waiting: list[_Entry] = []  # added to in the loop's thread, taken from in the store's
        self._lost = self._lost_told = 0
        self._scheduled = False
        self._denials = DenialFilter()
        self._suppressed_timer: asyncio.TimerHandle | None = None
        self._subscribers: list[Subscriber] = []
        self._committed: deque[AuditRecord] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0

    # --- what is recorded with what it tells of ---

    def append(
        self, db: Database, kind: AuditKind, action: str, principal: str, subject: str, data: Mapping[str, Any]
    ) -> None:
        """Add a record, in the caller's transaction. Long texts are cut, but for ``code``."""
        self._prune_if_due(db)
        self._append(db, _Entry(time.time(), kind, action, principal, subject, data))

    def _append(self, db: Database, entry: _Entry) -> None:
        data = clipped_data(entry.data)
        if "code" in entry.data and entry.kind is AuditKind.EXECUTION:
            data["code"] = entry.data["code"]
        at, principal, subject = utc_timestamp(entry.at), clipped(entry.principal), clipped(entry.subject)
        record = put(db, AuditRecord(0, at, entry.kind, entry.action, principal, subject, data, ""))
        if self._subscribers:
            db.after_commit(lambda: self._publish(record))

    def _prune_if_due(self, db: Database) -> None:
        if time.monotonic() < self._prune_at:
            return
        removed = prune(db, utc_timestamp(time.time() - self._max_age_seconds), _PRUNE_RECORDS)
        more = removed is not None and removed[1] - removed[0] + 1 >= _PRUNE_RECORDS
        self._prune_at = time.monotonic() + (_PRUNE_AGAIN_SECONDS if more else _PRUNE_SECONDS)
        if removed is not None:
            data = {"first_seq": removed[0], "last_seq": removed[1]}
            self._append(db, _Entry(time.time(), AuditKind.TRAIL, "pruned", "", "", data))

    def prune_oldest(self, db: Database) -> bool:
        """Remove some of the oldest records, in the caller's transaction; return whether there were any."""
        removed = prune(db, _LATEST, _PRUNE_OLDEST_RECORDS)
        if removed is None:
            return False
        data = {"first_seq": removed[0], "last_seq": removed[1]}
        self._append(db, _Entry(time.time(), AuditKind.TRAIL, "pruned", "", "", data))
        return True

    # --- what is recorded beside what it tells of ---

    def record(self, kind: str, action: str, principal: str, subject: str, **data: Any) -> None:
        """Record something soon, from the loop's thread. Never raises for the storage's sake.

        Parameters
        ----------
        kind : str
            One of `AuditKind`.
        **data
            As the kind's schema has it. A refusal (``denial``) has its error code as ``code``.
        """
        dumps(clipped_data(data))  # or a mistake of the caller's would stand in the way of every later record
        entry = _Entry(time.time(), AuditKind(kind), action, principal, subject, data)
        if entry.kind is AuditKind.DENIAL:
            self._record_denial(entry)
        else:
            self._put(entry)

    def _record_denial(self, entry: _Entry) -> None:
        if not self._denials.lets_through(entry.principal, entry.data.get("code"), time.monotonic()):
            if self._suppressed_timer is None:
                loop = asyncio.get_running_loop()
                self._suppressed_timer = loop.call_later(_SUPPRESSED_SECONDS, self._tell_suppressed)
            return
        path = entry.subject.partition("?")[0]  # a query may hold a secret
        data = {**entry.data, "suppressed": self._take_suppressed()}
        self._put(_Entry(entry.at, entry.kind, entry.action, entry.principal, path, data))

    def _take_suppressed(self) -> dict[str, int]:
        if self._suppressed_timer is not None:
            self._suppressed_timer.cancel()
            self._suppressed_timer = None
        return self._denials.take_suppressed()

    def _tell_suppressed(self) -> None:
        suppressed = self._take_suppressed()
        if suppressed:
            data = {"suppressed": suppressed}
            self._put(_Entry(time.time(), AuditKind.DENIAL, "suppressed", "", "", data))

    def _put(self, entry: _Entry) -> None:
        if self._writer.closed:
            self._log.error(
                "audit: %s %s came after the store was closed, so it has no record", entry.kind, entry.action
            )
        elif len(self._waiting) >= _MAX_WAITING:
            self._lost += 1
        else:
            self._waiting.append(entry)
            self._write_soon()

    def _write_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(self._writer.thread, self._writer.perform_last, _KEY, self._write)
            job.add_done_callback(lambda done: self._written(loop, done))

    def _written(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        done.result()
        self._writer.retry_soon(loop)

    def _write(self, db: Database) -> None:
        self._scheduled = False
        batch, lost = self._waiting[:], self._lost - self._lost_told
        self._prune_if_due(db)
        for entry in batch:
            self._append(db, entry)
        if lost:
            self._append(db, _Entry(time.time(), AuditKind.TRAIL, "lost", "", "", {"count": lost}))
        db.after_commit(lambda: self._forget(len(batch), lost))

    def _forget(self, count: int, lost: int) -> None:
        del self._waiting[:count]
        self._lost_told += lost

    def close(self) -> None:
        """Record what is left to be told, before the writer is closed."""
        suppressed = self._take_suppressed()
        if suppressed:
            data = {"suppressed": suppressed}
            self._waiting.append(_Entry(time.time(), AuditKind.DENIAL, "suppressed", "", "", data))
        if self._waiting or self._lost > self._lost_told:
            self._writer.thread.submit(self._writer.perform_last, _KEY, self._write)

    # --- who is told ---

    def subscribe(self, subscriber: Subscriber) -> None:
        """Give every record that this process commits from now on to `subscriber`, in its loop; see `start`."""
        self._subscribers.append(subscriber)

    def start(self) -> None:
        """Begin to give records to subscribers, in the running loop; until then they are held back."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._deliver()

    def _publish(self, record: AuditRecord) -> None:
        """Take in a committed record; in whatever thread committed it."""
        self._committed.append(record)
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if threading.get_ident() == self._loop_thread:
            loop.call_soon(self._deliver)
        else:
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._committed:
            record = self._committed.popleft()
            for subscriber in self._subscribers:
                try:
                    subscriber(record)
                except Exception:
                    self._log.exception("audit: record %d could not be passed on", record.seq)
