"""Eviction in the store's thread: begun as soon as a bound is exceeded, and once a minute for what is too old."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import StorageFull
from .audit_trail import AuditLog
from .database import Database
from .database_writer import Writer
from .retention import Eviction, Removed, Retention, expire, measure
from .storage_account import GrowingFiles, StorageAccount

#: Age, and what other servers of the same store have written, is looked at so often.
LOOK_SECONDS = 60.0
#: The audit trail has at most one in so many of the store's bytes; beyond that its oldest records go.
AUDIT_DIVISOR = 4
# Where nothing more could be removed, the next attempt waits so long, unless something has ended.
_RETRY_SECONDS = 0.5
_WAIT_SECONDS = 30.0


class Evictor:
    """Keeps the store within its bounds.

    Parameters
    ----------
    logs : Path
        The directory of the log files.
    server : str
        The id of this server.

    Attributes
    ----------
    account : StorageAccount
        What is stored now.
    on_forget : callable
        Gets the ids of sessions of which nothing is kept any more, in the store's thread.
    """

    def __init__(self, writer: Writer, logs: Path, server: str, retention: Retention, audit: AuditLog) -> None:
        self.account = StorageAccount(retention.max_bytes)
        self.on_forget: Callable[[Sequence[str]], None] = lambda session_ids: None
        self._writer = writer
        self._logs = logs
        self._server = server
        self._retention = retention
        self._audit = audit
        self._look_at = 0.0
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._scheduled: concurrent.futures.Future[None] | None = None

    def load(self) -> None:
        """Read what is stored, before anything is added."""
        self._writer.perform(lambda db: self.account.load(measure(db, self._logs, self._server)), write=False)

    def files_of(self, execution_id: str, owner: str) -> GrowingFiles:
        """Return the account of the files of one running execution."""
        return GrowingFiles(self.account, execution_id, owner, self.evict_soon)

    def require_room(self, owner: str) -> None:
        """Make sure that something more can be stored for `owner`.

        Raises
        ------
        StorageFull
        """
        if self.account.is_full_for(owner):
            raise StorageFull(
                f"the store's {self.account.max_bytes} bytes (ExecStore.max_bytes) are taken by executions that have "
                "not ended; wait for some to end, or cancel them"
            )

    def note_end(self) -> None:
        """Take note that something has ended, which can be removed from now on."""
        self._retry_at = 0.0

    def is_due(self, owner: str) -> bool:
        """Whether there is something to do, after something was stored for `owner`."""
        return bool(self.account.full or time.monotonic() >= self._look_at or self.account.needs_eviction(owner))

    def evict_soon(self) -> Callable[[], None]:
        """Begin an eviction in the store's thread, if none waits there; return a function that waits for its end."""
        with self._lock:
            if self._scheduled is None:
                if self.account.full and time.monotonic() < self._retry_at:
                    return _no_wait
                try:
                    self._scheduled = self._writer.thread.submit(self._run_scheduled)
                except RuntimeError:  # the store is being closed
                    return _no_wait
            return Waiting(self._scheduled).wait

    def _run_scheduled(self) -> None:
        with self._lock:
            self._scheduled = None
        self.evict()

    def evict(self) -> None:
        """Remove what is too old or too much; in the store's thread."""
        self._look_at = time.monotonic() + LOOK_SECONDS
        while self._evict_some():
            pass
        self._writer.give_back()
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _evict_some(self) -> bool:
        """Remove a number of records in one transaction; return whether there is more to remove."""
        results: list[Removed] = []

        def job(db: Database) -> None:
            results[:] = [expire(db, self._logs, self._retention.max_age_seconds)]
            stored = measure(db, self._logs, self._server)
            if stored.without_owner > self._retention.max_bytes // AUDIT_DIVISOR:
                results.append(Removed(more=self._audit.prune_oldest(db)))
                stored = measure(db, self._logs, self._server)
            self.account.load(stored)
            results.append(Eviction(db, self._logs, self.account).run())

        self._writer.perform_last("expire", job)
        if self._writer.has_unsaved("expire"):
            return False  # it is tried again
        sessions = [session_id for removed in results for session_id in removed.sessions]
        if sessions:
            self.on_forget(sessions)
        return any(removed.more for removed in results)


class Waiting:
    """Bounded wait for a job of the store's thread."""

    def __init__(self, job: concurrent.futures.Future[None]) -> None:
        self._job = job

    def wait(self) -> None:
        """Return when the job has ended, or a bounded time is over."""
        concurrent.futures.wait([self._job], timeout=_WAIT_SECONDS)


def _no_wait() -> None:
    pass
