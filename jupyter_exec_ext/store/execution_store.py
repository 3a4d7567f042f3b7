"""Repository of executions: accepts, finishes and reads them.

`execution_rows` has their records, `event_log` their events, and `spool` the output beyond their cap.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import StorageFull, StoreUnavailable, UnexpectedAnswer
from ..models import EndEvent, Execution, IdempotencyKey, SpooledOutput, StoredExecution
from ..protocol.records_json import execution_from_json, to_json
from ..protocol.strict_json import dump_bytes, loads_strict
from .database import Database
from .database_writer import Writer
from .event_log import DurableLog, LogLine, StoredLog
from .eviction_schedule import EvictionSchedule, GrowingFiles
from .execution_rows import (
    ExecutionTrail,
    complete_row,
    insert_row,
    page_of_ids,
    read_summaries,
    records_of_ids,
    row_of_id,
    row_of_key,
)
from .log_file import LogFile, LogIndex, LogLines, LogText, log_path, record_in, spool_path
from .search_index import SearchIndex
from .spool import FileSpool, SpoolThread, open_spooled

_LISTED_AT_ONCE = 8
# A longer log is a file, because SQLite writes every row twice: to its log, and to the database.
_ROW_LOG_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """A finished execution that the storage has not taken yet."""

    stored: StoredExecution
    log: DurableLog


class ExecutionRepository:
    """Keeps executions and their logs.

    Parameters
    ----------
    writer : Writer
        Runs the database jobs.
    logs : Path
        The directory of the log files, one directory for each session.
    server : str
        The id of this server.
    eviction : EvictionSchedule
        Keeps the store within its bounds.
    max_spool_bytes : int
        How much of the output beyond an execution's output cap is kept; 0 for nothing.
    trail : ExecutionTrail
        Audits the executions.
    index : SearchIndex
        Gets the ids of executions that are new or have ended.
    """

    def __init__(
        self,
        writer: Writer,
        logs: Path,
        server: str,
        eviction: EvictionSchedule,
        max_spool_bytes: int,
        trail: ExecutionTrail,
        index: SearchIndex,
    ) -> None:
        self._writer = writer
        self._logs = logs
        self._server = server
        self._eviction = eviction
        self._max_spool_bytes = max_spool_bytes
        self._trail = trail
        self._index = index
        self.search = index.search
        self._spool_thread = SpoolThread()
        self._unsaved: dict[str, _Unsaved] = {}
        writer.on_retried = self._drop_saved

    # --- accepted ---

    async def accept(
        self, execution: Execution, owner: str, key: IdempotencyKey | None, sender: str | None = None
    ) -> DurableLog | StoredExecution:
        """Record an execution before its code is sent, or find the one that came with the same key before.

        Parameters
        ----------
        execution : Execution
            The record.
        owner : str
            The principal of its session.
        key : IdempotencyKey or None
            The request's key.
        sender : str, optional
            The principal of the request, if it is not the owner.

        Raises
        ------
        IdempotencyKeyReused
            If the key came with another request.
        StorageFull, StoreUnavailable
            If it cannot be written.
        """

        def job(db: Database) -> sqlite3.Row | None:
            # In the transaction that inserts: of two requests with one key the second finds the first.
            earlier = None if key is None else row_of_key(db, execution.session_id, owner, key)
            if earlier is None:
                self._writer.require_reserve()
                self._eviction.require_room(owner)
                self._insert(db, execution, owner, key)
                self._trail.record_accepted(db, execution, sender or owner)
            return earlier

        earlier = await self._writer.run(job, write=True)
        if earlier is not None:
            return await asyncio.to_thread(self._stored, earlier)
        if self._eviction.account.needs_eviction(owner):
            self._eviction.evict_soon()
        # Not waited for, so that the code goes to the kernel while the disk works.
        self._writer.sync_soon()
        file = LogFile(log_path(self._logs, execution.session_id, execution.id))
        return DurableLog(file, self._writer.thread, self._report, GrowingFiles(self._eviction, execution.id, owner))

    async def find(self, session_id: str, owner: str, key: IdempotencyKey) -> StoredExecution | None:
        """Return the execution that was accepted with `key`, if there is one."""
        row = await self._writer.run(lambda db: row_of_key(db, session_id, owner, key))
        return None if row is None else await asyncio.to_thread(self._stored, row)

    async def sync(self) -> None:
        """Return once every accepted execution survives a power failure."""
        await self._writer.sync()

    def _report(self, error: OSError | None, work: str) -> None:
        trouble = None if error is None else f"an event log could not be written: {error.strerror}"
        self._writer.health.report(trouble, work)

    def spool(self, execution: Execution, owner: str) -> FileSpool | None:
        """Return the spool for the output beyond the cap; None if the store keeps none."""
        if self._max_spool_bytes <= 0:
            return None
        share = self._eviction.account.least_share_of(owner)
        # At most half of a share: one spool must not evict all other records of its owner.
        max_bytes = self._max_spool_bytes if share is None else min(self._max_spool_bytes, share // 2)
        directory = spool_path(self._logs, execution.session_id, execution.id)
        return FileSpool(directory, max_bytes, self._spool_thread, GrowingFiles(self._eviction, execution.id, owner))

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if much waits to be spooled, once there is less."""
        self._spool_thread.when_few_wait(callback)

    async def amend(self, execution: Execution) -> None:
        """Replace the record of an accepted execution that has not ended.

        Raises
        ------
        StorageFull, StoreUnavailable
            If it cannot be written.
        """
        values = (dump_bytes(to_json(execution)).decode(), execution.id)
        sql = "UPDATE executions SET record = ? WHERE id = ? AND NOT finished"
        await self._writer.run(lambda db: db.execute(sql, values), write=True)

    # --- finished ---

    async def finish(self, execution: Execution, owner: str, log: DurableLog) -> None:
        """Write the end event and the terminal row, and sync them; then show both to readers."""
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            undo.callback(log.give_up)  # after a failure readers would wait for ever
            log.add_end(EndEvent(execution))
            lines, has_file = await loop.run_in_executor(self._writer.thread, self._finish, execution, owner, log)
            if has_file:
                # The log has the whole record: if a power failure takes the row, `recovery` makes it from the log.
                await loop.run_in_executor(self._writer.sync_threads, log.sync)
            await self._writer.sync()
            undo.pop_all()
        # Before readers learn of the end: until the row is written, they get the record from memory.
        if self._writer.has_unsaved(execution.id):
            self._unsaved[execution.id] = _Unsaved(StoredExecution(owner, execution), log)
            self._writer.retry_soon(loop)
        # After the syncs: a power failure must not take back an end that readers have seen.
        log.publish_end(lines)
        self._eviction.note_end()
        if self._eviction.is_due(owner):
            await loop.run_in_executor(None, self._eviction.evict_and_wait)

    def _finish(self, execution: Execution, owner: str, log: DurableLog) -> tuple[list[LogLine], bool]:
        """Write the rest of the log and the terminal row; return the last lines, and whether the log is a file."""
        lines = log.whole_log()
        text = LogText.of([line.line for line in lines or ()])
        if lines is not None and text.size_bytes <= _ROW_LOG_BYTES:
            try:
                # This waits for no lock. `perform_last` below does, once the log is safe in a file.
                self._writer.perform(lambda db: self._complete(db, execution, owner, text), write=True)
                return lines, False
            except (StorageFull, StoreUnavailable):
                pass  # a file keeps the log until the database takes the row
        lines = log.save_rest()
        # `require_saved` is a part of the job, so that each retry completes the file first.
        self._writer.perform_last(execution.id, lambda db: self._complete(db, execution, owner, log.require_saved()))
        return lines, True

    async def note_late_bytes(self, execution_id: str, late_bytes: int) -> None:
        """Set how much late output a finished execution has, now or as soon as the storage permits.

        The count is in the row only, because a finished log does not change.
        """

        def job(db: Database) -> None:
            if self._writer.has_unsaved(execution_id):
                # The writer retries this job. If it came first, the row's own write would overwrite the count.
                raise StoreUnavailable(f"execution {execution_id} is not written yet")
            # Without `json_valid` a damaged record would fail this job again and again.
            sql = "UPDATE executions SET record = json_set(record, '$.late_bytes', ?) "
            sql += "WHERE id = ? AND finished AND json_valid(record)"
            db.execute(sql, (late_bytes, execution_id))

        await self._writer.submit_last(f"late output of {execution_id}", job)

    def _insert(self, db: Database, execution: Execution, owner: str, key: IdempotencyKey | None) -> bool:
        """Insert the row of an accepted execution; return False if it exists already."""
        row_bytes = insert_row(db, execution, owner, self._server, key)
        if row_bytes:
            db.after_commit(partial(self._eviction.account.add_row, owner, row_bytes))
            db.after_commit(partial(self._index.note, [execution.id]))
        return row_bytes > 0

    def _complete(self, db: Database, execution: Execution, owner: str, log: LogLines) -> None:
        size = complete_row(db, execution, owner, log, self._trail)
        if size is None and self._insert(db, execution, owner, None):
            # The first row was in a damaged database that was set aside.
            self._trail.record_accepted(db, execution, owner)
            size = complete_row(db, execution, owner, log, self._trail)
        if size is not None:
            settle = partial(self._eviction.account.settle, execution.id, owner)
            db.after_commit(partial(settle, row_bytes=size.added_row_bytes, file_bytes=size.file_bytes))
            db.after_commit(partial(self._index.note, [execution.id]))

    # --- reading ---

    def _drop_saved(self) -> None:
        """Drop the executions that a retry has written: their outputs may take much memory."""
        self._unsaved = {key: kept for key, kept in self._unsaved.items() if self._writer.has_unsaved(key)}

    async def get(self, execution_id: str) -> StoredExecution | None:
        """Return a record; of a finished execution with its outputs."""
        unsaved = self._unsaved.get(execution_id)
        if unsaved is not None:
            return unsaved.stored
        row = await self._writer.run(lambda db: row_of_id(db, execution_id))
        return None if row is None else await asyncio.to_thread(self._stored, row)

    def _stored(self, row: sqlite3.Row) -> StoredExecution:
        execution = execution_from_json(loads_strict(row["record"]))
        if row["finished"]:
            try:
                in_log = record_in(self._finished_log(row), row["end_offset"])
                # Late output is counted after the log has its end, so the row knows more.
                execution = replace(in_log, late_bytes=execution.late_bytes) if execution.late_bytes else in_log
            except (OSError, ValueError, UnexpectedAnswer):
                # The file was removed or damaged from outside; the row is left.
                reason = "; ".join(filter(None, (execution.reason, "its output is no longer kept")))
                execution = replace(execution, reason=reason)
        return StoredExecution(row["owner"], execution)

    def _finished_log(self, row: sqlite3.Row, index: LogIndex | None = None) -> LogLines:
        if row["log"] is not None:
            return LogText(row["log"], row["last_seq"])
        path = log_path(self._logs, row["session_id"], row["id"])
        return LogFile(path, row["log_bytes"], row["last_seq"], index)

    async def log(self, execution_id: str) -> DurableLog | StoredLog | None:
        """Return the log of a finished execution, None once it is no longer kept."""
        unsaved = self._unsaved.get(execution_id)
        if unsaved is not None:
            return unsaved.log

        def job(db: Database) -> tuple[sqlite3.Row | None, list[tuple[int, int]]]:
            sql = "SELECT seq, offset FROM event_offsets WHERE execution_id = ? ORDER BY seq"
            return row_of_id(db, execution_id), [(r["seq"], r["offset"]) for r in db.execute(sql, (execution_id,))]

        row, index = await self._writer.run(job)
        if row is None or not row["finished"]:
            return None
        lines = self._finished_log(row, LogIndex(index))
        return StoredLog(lines) if lines.exists else None

    async def summary(self, execution_id: str) -> StoredExecution | None:
        """Return a record without its outputs."""
        unsaved = self._unsaved.get(execution_id)
        if unsaved is not None:
            return unsaved.stored
        row = await self._writer.run(lambda db: row_of_id(db, execution_id))
        return None if row is None else StoredExecution(row["owner"], execution_from_json(loads_strict(row["record"])))

    async def open_spooled(self, execution: Execution, output: SpooledOutput) -> int | None:
        """Open a spooled output for reading; None if it is no longer there as it was written."""
        path = spool_path(self._logs, execution.session_id, execution.id) / output.name
        return await asyncio.to_thread(open_spooled, path, output.size_bytes)

    async def list_ids(
        self, session_id: str, limit: int, before: str | None = None, after: str | None = None
    ) -> Sequence[str]:
        """Return the ids of a page of the session's executions; see `page_of_ids`."""
        return await self._writer.run(lambda db: page_of_ids(db, session_id, limit, before, after))

    async def list(
        self, session_id: str, limit: int, before: str | None = None, after: str | None = None
    ) -> Sequence[Execution]:
        """Return the records of such a page, without outputs and with the beginning of long code."""
        ids = await self.list_ids(session_id, limit, before, after)
        found: list[Execution] = []
        for start in range(0, len(ids), _LISTED_AT_ONCE):  # each may have megabytes of code
            chosen = ids[start : start + _LISTED_AT_ONCE]
            records = await self._writer.run(partial(records_of_ids, ids=chosen))
            found += await asyncio.to_thread(read_summaries, records)
        return found

    def close(self) -> None:
        """Write what is left of the spools."""
        self._spool_thread.close()
