"""Times of evictions: at once when a size bound is exceeded, and once a minute for records that are too old.

`eviction` selects and removes the records, in the store's thread. `stored_bytes` knows the sizes.
"""

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
from .eviction import Eviction, Removed, Retention, expire, measure
from .stored_bytes import StoredBytes

#: Interval between looks at ages, and at what other servers of the same store have written.
LOOK_SECONDS = 60.0
#: The audit trail's part of the store's bytes is one in this number; beyond it, its oldest records go.
AUDIT_DIVISOR = 4
# Where nothing more could be removed, the next attempt waits this long, unless an execution has ended.
_RETRY_SECONDS = 0.5
_WAIT_SECONDS = 30.0


class EvictionSchedule:
    """Keeps the store within its bounds.

    Parameters
    ----------
    writer : Writer
        Runs the evictions.
    logs : Path
        The directory of the log files.
    server : str
        The id of this server.
    retention : Retention
        The bounds.
    audit : AuditLog
        The trail, whose oldest records are removed too.

    Attributes
    ----------
    account : StoredBytes
        The sizes of what is stored now.
    on_forget : callable
        Gets the ids of sessions of which no record is left, in the store's thread.
    on_removed : callable
        Gets the ids of executions of which no record is left, in the store's thread.
    """

    def __init__(self, writer: Writer, logs: Path, server: str, retention: Retention, audit: AuditLog) -> None:
        self.account = StoredBytes(retention.max_bytes)
        self.on_forget: Callable[[Sequence[str]], None] = lambda session_ids: None
        self.on_removed: Callable[[Sequence[str]], None] = lambda execution_ids: None
        self._writer = writer
        self._logs = logs
        self._server = server
        self._retention = retention
        self._audit = audit
        self._look_at = 0.0
        self._retry_at = 0.0
        # The event loop, the spools' thread and workers ask for evictions.
        self._lock = threading.Lock()
        self._waiting: concurrent.futures.Future[None] | None = None
        writer.run_blocking(lambda db: self.account.load(measure(db, logs, server)))

    def require_room(self, owner: str) -> None:
        """Check that more can be stored for `owner`.

        Raises
        ------
        StorageFull
            If executions that have not ended take all of the space.
        """
        if self.account.is_full_for(owner):
            raise StorageFull(
                f"the store's {self.account.max_bytes} bytes (ExecStore.max_bytes) are taken by executions that have "
                "not ended; wait for some to end, or cancel them"
            )

    def note_end(self) -> None:
        """Note that an execution has ended, so that its records can be removed from now on."""
        self._retry_at = 0.0

    def is_due(self, owner: str) -> bool:
        """Return whether to evict, after something was stored for `owner`."""
        return bool(self.account.full or time.monotonic() >= self._look_at or self.account.needs_eviction(owner))

    def evict_soon(self) -> concurrent.futures.Future[None]:
        """Queue an eviction in the store's thread, unless one is queued there; return the future of its end."""
        with self._lock:
            if self._waiting is not None:
                return self._waiting
            done: concurrent.futures.Future[None] = concurrent.futures.Future()
            if self.account.full and time.monotonic() < self._retry_at:
                done.set_result(None)
            else:
                self._waiting = done
                self._submit(done)
            return done

    def evict_and_wait(self) -> None:
        """Evict, and return at its end or after `_WAIT_SECONDS`; in a thread that may block."""
        concurrent.futures.wait([self.evict_soon()], timeout=_WAIT_SECONDS)

    def _submit(self, done: concurrent.futures.Future[None]) -> None:
        try:
            self._writer.thread.submit(self._evict, done)
        except RuntimeError:  # the store is being closed
            done.set_result(None)

    def _evict(self, done: concurrent.futures.Future[None]) -> None:
        """Run one step of an eviction; the next step is queued behind the jobs that others wait for."""
        with self._lock:
            # From now on a caller gets an eviction of its own: this one may have measured before the caller wrote.
            if self._waiting is done:
                self._waiting = None
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            has_more = self._evict_some() or self._writer.shrink_file()
        except BaseException as error:  # whatever it is, those that wait for the eviction have to learn of it
            done.set_exception(error)
            raise
        if has_more:
            self._submit(done)
        else:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            done.set_result(None)

    def _evict_some(self) -> bool:
        """Remove a number of records in one transaction; return whether there is more to remove."""
        results: list[Removed] = []

        def job(db: Database) -> None:
            # Set anew, because a transaction that failed is run again.
            results[:] = [expire(db, self._logs, self._retention.max_age_seconds)]
            stored = measure(db, self._logs, self._server)
            if stored.without_owner > self._retention.max_bytes // AUDIT_DIVISOR:
                results.append(Removed(more=self._audit.prune_oldest(db)))
                stored = measure(db, self._logs, self._server)
            self.account.load(stored)
            results.append(Eviction(db, self._logs, self.account).run())
            # Here, because a retry of the writer runs this job alone.
            db.after_commit(lambda: self._forget(results))

        # A removal writes, too, so on a full disk it may need the reserve.
        self._writer.perform_last("expire", job)
        if self._writer.has_unsaved("expire"):
            return False  # the writer retries it
        return any(removed.more for removed in results)

    def _forget(self, results: Sequence[Removed]) -> None:
        sessions = [session_id for removed in results for session_id in removed.sessions]
        if sessions:
            self.on_forget(sessions)
        executions = [execution_id for removed in results for execution_id in removed.executions]
        if executions:
            self.on_removed(executions)


class GrowingFiles:
    """Account of the files that one running execution writes.

    Parameters
    ----------
    eviction : EvictionSchedule
        Makes room when a bound is exceeded.
    execution_id, owner : str
        The execution and its principal.
    """

    def __init__(self, eviction: EvictionSchedule, execution_id: str, owner: str) -> None:
        self._eviction = eviction
        self._account = eviction.account
        self._execution_id = execution_id
        self._owner = owner

    @property
    def is_full(self) -> bool:
        """True if the store has no room for more."""
        return self._account.is_full_for(self._owner)

    def grow(self, size_bytes: int) -> None:
        """Add the size of what was written; negative for what was removed. Does not wait."""
        self._account.grow(self._execution_id, self._owner, size_bytes)
        if size_bytes > 0 and self._account.needs_eviction(self._owner):
            self._eviction.evict_soon()

    def try_grow(self, size_bytes: int) -> bool:
        """Add the size of what is to be written, evicting if necessary; return whether there is room. Blocks."""
        self._account.grow(self._execution_id, self._owner, size_bytes)
        if self._account.needs_eviction(self._owner):
            self._eviction.evict_and_wait()
        # The size was added before the write, so that several spools cannot pass the bound together.
        if not self.is_full:
            return True
        self.grow(-size_bytes)
        return False
