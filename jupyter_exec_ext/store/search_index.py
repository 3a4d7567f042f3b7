"""Search index: finds executions by a part of their text. It is brought up to date behind the runs.

The index has a file and a thread of its own: it takes no time of the store's writer, and its faults are none of the
store's. Each start compares it with the store, range by range, and corrects what differs. Executions of an earlier
version are added so. `searchable_text` has what is found, and `search_database` the index itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..errors import ExecError, InvalidRequest, SearchNotAvailable, StoreUnavailable, Unavailable
from ..models import FoundExecution
from ..protocol.strict_json import dumps
from .database import is_corruption
from .database_reader import DatabaseReader
from .search_database import Entry, SearchDatabase, why_not_searchable
from .searchable_text import NAMES, WITH_NAMES, folded, found_in, searchable_text
from .store_health import StoreHealth

MIN_QUERY_CHARS = 3
_DELAY_SECONDS = 1.0  # several short runs are one transaction
_BATCH = 64  # executions in a transaction; a search waits for one
_COMPARED = 512
_MAX_DUE = 10_000
_RETRY_SECONDS = 60.0
_MERGE_REST = 100.0  # times as long as a merge has taken: merges cost one hundredth of a processor
_MAX_WAITING = 16
_MAX_SECONDS = 5.0
_LOOK_INSTRUCTIONS = 10_000  # of SQLite's virtual machine, between two looks at the clock


class SearchIndex:
    """Finds executions by a part of their text.

    Parameters
    ----------
    directory, logs : Path
        Where the index has its file, and the directory of the log files.
    source : DatabaseReader
        Reads the store's database; used by the index alone.
    health : StoreHealth
        Gets the outcome of updates.
    """

    def __init__(self, directory: Path, logs: Path, source: DatabaseReader, health: StoreHealth) -> None:
        self._database = SearchDatabase(directory)
        self._logs = logs
        self._source = source
        self._health = health
        self._thread = ThreadPoolExecutor(1, "exec-search")
        self._lock = threading.Lock()
        self._due: dict[str, None] = {}
        self._compared_to: str | None = ""  # the ids up to here are compared; None once all are
        self._timer: threading.Timer | None = None  # while an update is on its way
        self._merge_timer: threading.Timer | None = None
        self._merge_at = 0.0
        self._has_remains = True  # of removed texts; perhaps from before the start
        self._reason = why_not_searchable()
        self._waiting = 0
        self._closed = False

    # --- updates ---

    def note(self, execution_ids: Iterable[str]) -> None:
        """Bring executions up to date soon: new, ended or removed ones; in any thread."""
        with self._lock:
            if len(self._due) >= _MAX_DUE:
                self._compare_again()
            self._due.update(dict.fromkeys(execution_ids))
        self.start_soon()

    def start_soon(self, delay_seconds: float = _DELAY_SECONDS) -> None:
        """Begin an update after a delay, unless one is on its way; in any thread."""
        with self._lock:
            if self._timer is None and not self._closed and not self._reason:
                self._timer = self._submit_after(delay_seconds)

    def _compare_again(self) -> None:
        self._due.clear()
        self._compared_to = ""

    def _submit_after(self, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._submit)
        timer.daemon = True
        timer.start()
        return timer

    def _submit(self) -> None:
        with self._lock:
            if not self._closed:
                self._thread.submit(self._work)

    def _work(self) -> None:
        """Make one step. The next one is queued behind the searches that wait."""
        if self._step():
            self._submit()
            return
        self._timer = None
        if self._due:  # noted since
            self.start_soon()
        elif self._has_remains and not self._closed:
            self._merge_timer = self._submit_after(max(0.0, self._merge_at - time.monotonic()))

    def _step(self) -> bool:
        """Bring some executions up to date; return whether there are more. Failures are reported, and retried later."""
        try:
            has_more = self._update()
        except Exception as error:  # the index is derived data: whatever it is, the store goes on without it
            self._recover_from(error)
            return False
        self._health.report(None, "search")
        return has_more

    def _recover_from(self, error: Exception) -> None:
        if isinstance(error, sqlite3.DatabaseError) and is_corruption(error):
            self._database.remove()
        self._database.close()
        self._merge_at = time.monotonic() + _RETRY_SECONDS
        with self._lock:
            self._compare_again()
        reason = error.message if isinstance(error, ExecError) else str(error)
        self._health.report(f"the search index could not be updated: {reason}", "search")

    def _update(self) -> bool:
        if self._due:
            self._index_some()
        elif self._compared_to is None and self._has_remains and time.monotonic() >= self._merge_at:
            self._merge()
        if not self._due and self._compared_to is not None:
            self._compare_range(self._compared_to)
        return bool(self._due) or self._compared_to is not None

    def _compare_range(self, after: str) -> None:
        """Find out what differs from the store in the next range of ids."""
        sql = "SELECT id, finished FROM executions WHERE id > ? ORDER BY id LIMIT ?"
        stored = dict(map(tuple, self._source.rows(sql, (after, _COMPARED))))
        last = max(stored) if len(stored) == _COMPARED else None
        known = self._database.known(after, last)
        with self._lock:
            self._due.update({execution_id: None for execution_id, _ in stored.items() ^ known.items()})
            self._compared_to = last

    def _index_some(self) -> None:
        with self._lock:
            ids = [self._due.popitem()[0] for _ in range(min(_BATCH, len(self._due)))]  # the newest first
        rows = self._source.rows(f"SELECT executions.*, {NAMES} {WITH_NAMES}", (dumps(ids),))
        entries = [
            Entry(row["id"], row["owner"], row["finished"], row["accepted_at"], searchable_text(row, self._logs))
            for row in rows
        ]
        self._database.replace(ids, entries)
        self._has_remains = self._has_remains or len(entries) < len(ids)

    def _merge(self) -> None:
        began = time.monotonic()
        self._database.merge()
        self._has_remains = False
        self._merge_at = time.monotonic() + _MERGE_REST * (time.monotonic() - began)

    # --- searches ---

    async def search(
        self, text: str, principal: str, before: str | None, limit: int, is_wanted: Callable[[], bool]
    ) -> tuple[Sequence[FoundExecution], bool]:
        """Return the newest executions that have a text, and whether all executions are in the index yet.

        Parameters
        ----------
        text : str
            A part of what is looked for, in any case.
        principal : str
            Whose executions, with those of its descendants.
        before : str or None
            The id of an execution: only older ones.
        limit : int
            The greatest number of executions.
        is_wanted : callable
            Returns False once the caller no longer waits.

        Raises
        ------
        SearchNotAvailable
            If SQLite has no trigram index.
        InvalidRequest
            If the text is too short, or the search takes too long.
        ExecutionNotFound
            If `before` is not in the index.
        Unavailable, StoreUnavailable
            If too many searches wait, or the index cannot be read.
        """
        if self._reason:
            raise SearchNotAvailable(self._reason)
        wanted = folded(text)
        if len(wanted) < MIN_QUERY_CHARS:
            raise InvalidRequest(f"'query' must have at least {MIN_QUERY_CHARS} characters; write more of the text")
        if self._waiting >= _MAX_WAITING:
            raise Unavailable("too many searches wait on this server; try again", retry_after_seconds=1.0)
        if self._closed:
            raise StoreUnavailable("the server is shutting down")
        self._waiting += 1
        try:
            run = asyncio.get_running_loop().run_in_executor
            return await run(self._thread, self._search, wanted, principal, before, limit, is_wanted)
        finally:
            self._waiting -= 1

    def _search(
        self, wanted: str, principal: str, before: str | None, limit: int, is_wanted: Callable[[], bool]
    ) -> tuple[Sequence[FoundExecution], bool]:
        if not is_wanted():
            return (), False
        self._step()  # what has just run is found
        is_complete = self._compared_to is None and not self._due
        if not is_complete:
            self.start_soon(0.0)
        give_up_at = time.monotonic() + _MAX_SECONDS
        try:
            db = self._database.connection
            db.set_progress_handler(lambda: not is_wanted() or time.monotonic() > give_up_at, _LOOK_INSTRUCTIONS)
            try:
                ids = self._database.find(wanted, principal, before, limit)
            finally:
                db.set_progress_handler(None, 0)
        except (sqlite3.Error, OSError) as error:
            if str(error) == "interrupted":
                raise InvalidRequest(f"the search took {_MAX_SECONDS:g} s; write more of the text") from None
            self._recover_from(error)
            raise StoreUnavailable(
                f"the search index cannot be read ({error}); it is made again", retry_after_seconds=1.0
            ) from error
        sql = f"SELECT executions.id, executions.record, executions.owner, {NAMES} {WITH_NAMES}"
        rows = {row["id"]: row for row in self._source.rows(sql, (dumps(ids),))}
        return [found_in(rows[execution_id]) for execution_id in ids if execution_id in rows], is_complete

    def close(self) -> None:
        """Finish the step that runs, and close the index. The next start makes up for what is left."""
        with self._lock:
            self._closed = True
        for timer in (self._timer, self._merge_timer):
            if timer is not None:
                timer.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._database.close()
        self._source.close()
