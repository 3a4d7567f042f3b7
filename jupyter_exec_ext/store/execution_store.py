"""Execution records and their event logs.

A row is written before the code is sent and completed once, when the execution has ended. It holds everything but the
output; that is the log's, whose last line is the finished record as a whole. The log is a file or, if it is short and
its execution was over soon, a column of the row.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import IdempotencyKeyReused, StorageFull, StoreUnavailable, UnexpectedAnswer
from ..models import EndEvent, Execution, IdempotencyKey, SpooledOutput, StoredExecution
from ..protocol.large_json import is_large
from ..protocol.records_json import SUMMARY_CODE_CHARS, execution_from_json, summary_to_json, to_json
from ..protocol.strict_json import dump_bytes, loads_strict
from .database import Database
from .database_writer import SHORT_CHARACTERS, Busy, Writer
from .event_log import DurableLog, LogLine, StoredLog
from .evictor import Evictor
from .execution_trail import ExecutionTrail
from .log_file import LogFile, LogIndex, LogLines, LogText, log_path
from .log_lines import record_in
from .migrations import IS_OF_FRESH_SESSION
from .spool import FileSpool, SpoolThread, open_spooled, spool_path
from .storage_account import BLOCK_BYTES, ROW_BYTES, size_on_disk

_LISTED_AT_ONCE = 8
_ROW_BYTES = 16 * 1024  # a log that has more is a file: all that is in a row is written twice


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """A finished execution that the storage has not taken yet."""

    stored: StoredExecution
    log: DurableLog


class ExecutionRepository:
    """Keeps executions and their logs.

    Parameters
    ----------
    logs : Path
        The directory of the log files, one directory for each session.
    server : str
        The id of this server.
    max_spool_bytes : int
        How much of what an execution's output cap leaves out is kept; 0 for nothing.
    """

    def __init__(
        self,
        writer: Writer,
        logs: Path,
        server: str,
        evictor: Evictor,
        max_spool_bytes: int,
        trail: ExecutionTrail,
    ) -> None:
        self._writer = writer
        self._logs = logs
        self._server = server
        self._evictor = evictor
        self._max_spool_bytes = max_spool_bytes
        self._trail = trail
        self._spool_thread = SpoolThread()
        self._unsaved: dict[str, _Unsaved] = {}
        self._live = 0  # executions that were accepted and have not ended

    def _log_file(self, execution: Execution) -> LogFile:
        return LogFile(log_path(self._logs, execution.session_id, execution.id))

    def _finished_log(self, row: sqlite3.Row, index: LogIndex | None = None) -> LogLines:
        if row["log"] is not None:
            return LogText(row["log"], row["last_seq"])
        path = log_path(self._logs, row["session_id"], row["id"])
        return LogFile(path, row["log_bytes"], row["last_seq"], index)

    async def accept(
        self, execution: Execution, owner: str, key: IdempotencyKey | None, sender: str | None = None
    ) -> DurableLog | StoredExecution:
        """Record an execution before its code is sent, or find the one that came with the same key before.

        `sender` is who asked for it, if not its owner.

        Raises
        ------
        IdempotencyKeyReused
            If the key came with another request.
        StorageFull, StoreUnavailable
        """

        def job(db: Database) -> sqlite3.Row | None:
            earlier = None if key is None else _row_of_key(db, execution.session_id, owner, key)
            if earlier is None:
                self._writer.require_reserve()
                self._evictor.require_room(owner)
                self._insert(db, execution, owner, key)
                self._trail.accepted(db, execution, sender or owner)
            return earlier

        earlier = await self._writer.write(job, short=not is_large(execution, SHORT_CHARACTERS))
        if earlier is not None:
            return await asyncio.to_thread(self._stored, earlier)
        if self._evictor.account.needs_eviction(owner):
            self._evictor.evict_soon()
        files = self._evictor.files_of(execution.id, owner)
        log = DurableLog(self._log_file(execution), self._writer.thread, self._report, files)
        log.accepted_commit = self._writer.commits
        self._writer.sync_soon(asyncio.get_running_loop())
        self._live += 1
        return log

    async def find(self, session_id: str, owner: str, key: IdempotencyKey) -> StoredExecution | None:
        """Return the execution that was accepted with `key`, if there is one."""
        row = await self._writer.run(lambda db: _row_of_key(db, session_id, owner, key))
        return None if row is None else await asyncio.to_thread(self._stored, row)

    async def sync(self) -> None:
        """Return once what was accepted would survive a power failure too."""
        await self._writer.synced()

    def _report(self, error: OSError | None) -> None:
        self._writer.health.report(None if error is None else f"an event log could not be written: {error.strerror}")

    def spool(self, execution: Execution, owner: str) -> FileSpool | None:
        """Return where what the output cap leaves out is written; None if nothing of it is kept."""
        if self._max_spool_bytes <= 0:
            return None
        share = self._evictor.account.least_share_of(owner)
        # At most half of a share: one spool must not drive out all that its owner has.
        max_bytes = self._max_spool_bytes if share is None else min(self._max_spool_bytes, share // 2)
        directory = spool_path(self._logs, execution.session_id, execution.id)
        return FileSpool(directory, max_bytes, self._spool_thread, self._evictor.files_of(execution.id, owner))

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if much waits to be spooled, when there is less."""
        self._spool_thread.when_few_wait(callback)

    async def amend(self, execution: Execution) -> None:
        """Replace the record of an accepted execution that has not ended.

        Raises
        ------
        StorageFull, StoreUnavailable
        """
        values = (dump_bytes(to_json(execution)).decode(), execution.id)
        sql = "UPDATE executions SET record = ? WHERE id = ? AND NOT finished"
        await self._writer.run(lambda db: db.execute(sql, values), write=True)

    async def finish(self, execution: Execution, owner: str, log: DurableLog) -> None:
        """Write the end event and the terminal row; then let readers see both."""
        log.take_end(EndEvent(execution))
        at_once = not log.writing and not is_large(execution, SHORT_CHARACTERS)
        try:
            lines = await self._finish_in_row(execution, owner, log) if at_once and log.unwritten else None
            if lines is None:
                lines = await self._finish_in_file(execution, owner, log, at_once)
        finally:
            self._live -= 1
        log.publish_end(lines)
        self._evictor.note_end()
        if self._evictor.is_due(owner):
            await asyncio.get_running_loop().run_in_executor(self._writer.thread, self._evictor.evict)

    async def _finish_in_row(self, execution: Execution, owner: str, log: DurableLog) -> list[LogLine] | None:
        """Write row and log as one; return the log's lines, or None if they are too much or it has to wait."""
        lines = log.rest()
        text = LogText.of([line.line for line in lines])
        if text.size_bytes > _ROW_BYTES:
            return None
        try:
            self._writer.perform_now(lambda db: self._complete(db, execution, owner, text))
        except (Busy, StorageFull):
            return None
        await self._writer.synced(alone=self._live == 1)
        return lines

    async def _finish_in_file(self, execution: Execution, owner: str, log: DurableLog, at_once: bool) -> list[LogLine]:
        """Write what is left of the log, then the row; return the log's last lines.

        The record in the log is the one that has to survive a power failure before anybody sees it, and the row that
        says that there is such an execution: where the terminal row was lost, `recovery` makes it from the log.
        """
        loop = asyncio.get_running_loop()

        def row(db: Database) -> None:
            self._complete(db, execution, owner, log.require_saved())

        in_thread = partial(loop.run_in_executor, self._writer.thread)
        lines = log.save_rest() if at_once else await in_thread(log.save_rest)
        log_synced = loop.run_in_executor(self._writer.syncer, log.sync)
        await asyncio.sleep(0)  # the thread gets the interpreter, so that the disk is at work while the row is written
        try:
            if not at_once:
                raise Busy
            self._writer.perform_now(row)
        except (Busy, StorageFull):
            await in_thread(self._writer.perform_last, execution.id, row)
        self._writer.begin_sync(log.accepted_commit)
        # The one is synced by now, unless it took no time at all; without the other the row has to do.
        await self._writer.synced(log.accepted_commit if await log_synced else None)
        self._writer.sync_soon(loop)
        if self._writer.has_unsaved(execution.id):
            self._unsaved[execution.id] = _Unsaved(StoredExecution(owner, execution), log)
            self._writer.retry_soon(loop)
        return lines

    async def note_late_bytes(self, execution_id: str, late_bytes: int) -> None:
        """Set how much late output a finished execution has, now or as soon as the storage permits.

        The count is in the row. The log is finished and stays as it is.
        """

        def job(db: Database) -> None:
            if self._writer.has_unsaved(execution_id):
                raise StoreUnavailable(f"execution {execution_id} is not written yet")
            sql = "UPDATE executions SET record = json_set(record, '$.late_bytes', ?) "
            sql += "WHERE id = ? AND finished AND json_valid(record)"
            db.execute(sql, (late_bytes, execution_id))

        await self._writer.run_last(f"late output of {execution_id}", job)

    def _insert(self, db: Database, execution: Execution, owner: str, key: IdempotencyKey | None) -> bool:
        """Insert the row of an accepted execution; return False if it is there already."""
        row_bytes = _insert(db, execution, owner, self._server, key)
        if row_bytes:
            db.after_commit(partial(self._evictor.account.add_row, owner, row_bytes))
        return row_bytes > 0

    def _complete(self, db: Database, execution: Execution, owner: str, log: LogLines) -> None:
        size = complete_row(db, execution, owner, log, self._trail)
        if size is None and self._insert(db, execution, owner, None):
            # The first row was in a database that was set aside.
            self._trail.accepted(db, execution, owner)
            size = complete_row(db, execution, owner, log, self._trail)
        if size is not None:
            settle = partial(self._evictor.account.settle, execution.id, owner)
            db.after_commit(partial(settle, row_bytes=size.added_row_bytes, file_bytes=size.file_bytes))

    def _not_yet_saved(self, execution_id: str) -> _Unsaved | None:
        if not self._writer.has_unsaved(execution_id):
            self._unsaved.pop(execution_id, None)
        return self._unsaved.get(execution_id)

    async def get(self, execution_id: str) -> StoredExecution | None:
        """Return a record; of a finished execution with its outputs."""
        unsaved = self._not_yet_saved(execution_id)
        if unsaved is not None:
            return unsaved.stored
        row = await self._writer.run(lambda db: _row(db, execution_id))
        if row is None:
            return None
        return await asyncio.to_thread(self._stored, row)

    def _stored(self, row: sqlite3.Row) -> StoredExecution:
        execution = execution_from_json(loads_strict(row["record"]))
        if row["finished"]:
            try:
                in_log = record_in(self._finished_log(row), row["end_offset"])
                execution = replace(in_log, late_bytes=execution.late_bytes) if execution.late_bytes else in_log
            except (OSError, ValueError, UnexpectedAnswer):
                # Somebody removed or damaged the file: the row is what there is.
                reason = "; ".join(filter(None, (execution.reason, "its output is no longer kept")))
                execution = replace(execution, reason=reason)
        return StoredExecution(row["owner"], execution)

    async def log(self, execution_id: str) -> DurableLog | StoredLog | None:
        """Return the log of a finished execution, None once it is no longer kept."""
        unsaved = self._not_yet_saved(execution_id)
        if unsaved is not None:
            return unsaved.log

        def job(db: Database) -> tuple[sqlite3.Row | None, list[tuple[int, int]]]:
            sql = "SELECT seq, offset FROM event_offsets WHERE execution_id = ? ORDER BY seq"
            return _row(db, execution_id), [(r["seq"], r["offset"]) for r in db.execute(sql, (execution_id,))]

        row, index = await self._writer.run(job)
        if row is None or not row["finished"]:
            return None
        lines = self._finished_log(row, LogIndex(index))
        return StoredLog(lines) if lines.exists else None

    async def summary(self, execution_id: str) -> StoredExecution | None:
        """Return a record without its outputs."""
        unsaved = self._not_yet_saved(execution_id)
        if unsaved is not None:
            return unsaved.stored
        row = await self._writer.run(lambda db: _row(db, execution_id))
        return None if row is None else StoredExecution(row["owner"], execution_from_json(loads_strict(row["record"])))

    async def open_spooled(self, execution: Execution, output: SpooledOutput) -> int | None:
        """Open what was spooled, for reading; None if it is not there as it was written."""
        return await asyncio.to_thread(
            open_spooled, spool_path(self._logs, execution.session_id, execution.id) / output.name, output.size_bytes
        )

    def close(self) -> None:
        """Write what is left of the spools."""
        self._spool_thread.close()

    async def list_ids(self, session_id: str, limit: int) -> Sequence[str]:
        """Return the ids of the session's newest executions, oldest first."""
        sql = "SELECT id FROM executions WHERE session_id = ? ORDER BY accepted_at DESC, rowid DESC LIMIT ?"
        rows = await self._writer.run(lambda db: db.execute(sql, (session_id, limit)).fetchall())
        return [row["id"] for row in rows[::-1]]

    async def list(self, session_id: str, limit: int) -> Sequence[Execution]:
        """Return the session's newest records, oldest first, without outputs and with the beginning of long code."""
        ids = await self.list_ids(session_id, limit)
        found: list[Execution] = []
        for start in range(0, len(ids), _LISTED_AT_ONCE):  # each may have code of megabytes
            chosen = ids[start : start + _LISTED_AT_ONCE]
            sql = f"SELECT record FROM executions WHERE id IN ({', '.join('?' * len(chosen))}) "  # noqa: S608
            sql += "ORDER BY accepted_at, rowid"
            rows = await self._writer.run(partial(_fetch_all, sql, chosen))
            found += await asyncio.to_thread(_listed, rows)
        return found


def _fetch_all(sql: str, values: Sequence[str], db: Database) -> Sequence[sqlite3.Row]:
    rows: Sequence[sqlite3.Row] = db.execute(sql, tuple(values)).fetchall()
    return rows


def _listed(rows: Sequence[sqlite3.Row]) -> Sequence[Execution]:
    read = (execution_from_json(loads_strict(row["record"])) for row in rows)
    return [replace(execution, code=execution.code[:SUMMARY_CODE_CHARS]) for execution in read]


def _row(db: Database, execution_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = db.execute("SELECT * FROM executions WHERE id = ?", (execution_id,)).fetchone()
    return row


def _row_of_key(db: Database, session_id: str, owner: str, key: IdempotencyKey) -> sqlite3.Row | None:
    if key.of_fresh_session:
        sql = f"SELECT * FROM executions WHERE owner = ? AND idempotency_key = ? AND {IS_OF_FRESH_SESSION}"  # noqa: S608
        found = db.execute(sql, (owner, _stored_key(key)))
    else:
        sql = "SELECT * FROM executions WHERE owner = ? AND session_id = ? AND idempotency_key = ?"
        found = db.execute(sql, (owner, session_id, _stored_key(key)))
    row: sqlite3.Row | None = found.fetchone()
    if row is not None and row["request_hash"] != key.request_hash:
        raise IdempotencyKeyReused(f"the idempotency key was used for execution {row['id']}, with another request")
    return row


def _stored_key(key: IdempotencyKey) -> str:
    """Return a key as the rows have it: no caller's key has a space, so those of fresh sessions are apart."""
    return f" {key.key}" if key.of_fresh_session else key.key


def _insert(db: Database, execution: Execution, owner: str, server: str, key: IdempotencyKey | None) -> int:
    """Insert the row of an accepted execution; return its size in bytes, 0 if it is there already."""
    record = dump_bytes(to_json(execution))
    row_bytes = ROW_BYTES + len(record)
    cursor = db.execute(
        "INSERT OR IGNORE INTO executions "
        "(id, session_id, owner, server, finished, accepted_at, idempotency_key, request_hash, record, row_bytes, "
        "file_bytes) VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0)",
        (
            execution.id,
            execution.session_id,
            owner,
            server,
            time.time(),
            None if key is None else _stored_key(key),
            key and key.request_hash,
            record.decode(),
            row_bytes,
        ),
    )
    return row_bytes if cursor.rowcount > 0 else 0


def _spooled_bytes(execution: Execution) -> int:
    return sum(size_on_disk(spooled.size_bytes) for spooled in execution.spooled)


def _in_database(size_bytes: int) -> int:
    """Return what a row takes in the database: SQLite spreads what exceeds a page over pages of its own."""
    return size_bytes if size_bytes <= BLOCK_BYTES else size_on_disk(size_bytes)


@dataclass(frozen=True, slots=True)
class CompletedSize:
    """What a completed execution takes, in bytes: how much more its row has, and its files."""

    added_row_bytes: int
    file_bytes: int


def complete_row(
    db: Database, execution: Execution, owner: str, log: LogLines, trail: ExecutionTrail
) -> CompletedSize | None:
    """Make the row of an accepted execution a terminal one; return None if there is none, or if it is that already."""
    before = db.execute("SELECT row_bytes FROM executions WHERE id = ? AND NOT finished", (execution.id,)).fetchone()
    if before is None:
        return None
    record = dump_bytes(summary_to_json(execution))
    text = log.text if isinstance(log, LogText) else None
    row_bytes = ROW_BYTES + _in_database(len(record) + len(text or b""))
    file_bytes = size_on_disk(log.size_bytes) if text is None else 0
    spool_bytes = _spooled_bytes(execution)
    db.execute(
        "UPDATE executions SET finished = 1, finished_at = ?, log_bytes = ?, spool_bytes = ?, last_seq = ?, "
        "end_offset = ?, record = ?, log = ?, row_bytes = ?, file_bytes = ? WHERE id = ?",
        (
            time.time(),
            log.size_bytes,
            spool_bytes,
            log.last_seq,
            log.last_offset,
            record.decode(),
            text,
            row_bytes,
            file_bytes,
            execution.id,
        ),
    )
    trail.ended(db, execution, owner)
    offsets = [(execution.id, seq, offset) for seq, offset in log.index.entries if offset]
    if offsets:
        db.executemany("INSERT OR IGNORE INTO event_offsets VALUES (?, ?, ?)", offsets)
    return CompletedSize(row_bytes - (before["row_bytes"] or ROW_BYTES), file_bytes + spool_bytes)
