"""Crash recovery: ends the executions, sessions and grants that a killed server left open.

Several servers of one user may share a store. Each locks a file of its own. The operating system releases the lock when
the process ends, even after a crash. A record whose server's lock is free is therefore an orphan.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import UnexpectedAnswer
from ..models import AuditKind, EndEvent, Execution, ExecutionState, OutputEvent, Session, SessionState, StateEvent
from ..protocol.output_joining import OutputFold, finished_record
from ..protocol.records_json import event_from_json, execution_from_json, session_from_json, utc_timestamp
from ..protocol.strict_json import loads_strict
from ..system.regular_file import open_regular_file
from ..system.removal import remove_tree
from .audit_trail import AuditLog
from .database import Database
from .execution_rows import ExecutionTrail, complete_row
from .grant_store import open_grants, put_ended
from .log_file import line_of, log_path, recovered, remove_spool
from .session_store import put_session


class ServerInstance:
    """A server, marked as alive until `close` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self.id = secrets.token_hex(8)
        # Lock the file before it gets the name under which others look for it, or they might find it free.
        new = directory / f"{self.id}.new"
        # O_CLOEXEC: a kernel that inherited the descriptor would hold the lock beyond the server's end.
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self._lock_of(self.id))

    def _lock_of(self, server: str) -> Path:
        return self._directory / f"{server}.lock"

    def reserve_path(self) -> Path:
        """Return the path of a file that is removed with the server."""
        return self._directory / f"{self.id}.reserve"

    def note_prepared(self, sessions: Mapping[str, str]) -> None:
        """Record the ids of sessions prepared for later use, each with its kernel's id or an empty text."""
        path = self._prepared_of(self.id)
        if not sessions:
            path.unlink(missing_ok=True)
            return
        # Renamed when it is complete, so that a kill leaves the old list or the new one.
        new = path.with_suffix(".prepared.new")
        remove_tree(new)  # code without isolation can put anything there
        with new.open("x", encoding="utf-8") as file:
            file.writelines(f"{session} {kernel}\n" for session, kernel in sessions.items())
        new.rename(path)

    def left_prepared(self) -> dict[str, str]:
        """Return the sessions that ended servers had prepared and not used, each with its kernel's id."""
        found = {}
        for server in self.gone():
            with suppress(OSError, ValueError):  # there is no such file, or it is no file
                with os.fdopen(open_regular_file(self._prepared_of(server), os.O_RDONLY), encoding="utf-8") as file:
                    lines = file.read().splitlines()
                found.update({session: kernel for session, _, kernel in (line.partition(" ") for line in lines)})
        return found

    def _prepared_of(self, server: str) -> Path:
        return self._directory / f"{server}.prepared"

    def gone(self) -> set[str]:
        """Return the ids of servers that have ended without `close`."""
        return {path.stem for path in self._directory.glob("*.lock") if self.is_gone(path.stem)}

    def is_gone(self, server: str) -> bool:
        """Return whether another server has ended."""
        if server == self.id:
            return False
        try:
            fd = os.open(self._lock_of(server), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError):  # `close` has removed it; a lock is never a directory
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def forget(self, server: str) -> None:
        """Remove the files of a server that has ended and whose records are closed."""
        for suffix in ("lock", "reserve", "prepared"):
            remove_tree(self._directory / f"{server}.{suffix}")

    def close(self) -> None:
        """Remove this server's files and release its lock."""
        self.forget(self.id)
        os.close(self._fd)


# Errors of a log that may not be opened, or has an event that is valid JSON and has values of wrong types.
_UNUSABLE = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    PermissionError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
REASON = "the server was restarted while it ran"
# The first half second of a run without a reader may have left no event.
REASON_QUEUED = "the server was restarted before it ran, or just after it had begun"


def left_behind(db: Database, instance: ServerInstance) -> list[tuple[str, Session]]:
    """Return the open sessions of servers that have ended, each with its server's id."""
    rows = db.execute("SELECT server, record FROM sessions WHERE NOT ended").fetchall()
    gone = {server for server in {row["server"] for row in rows} if instance.is_gone(server)}
    return [(row["server"], session_from_json(loads_strict(row["record"]))) for row in rows if row["server"] in gone]


def recover(db: Database, logs: Path, instance: ServerInstance, audit: AuditLog, trail: ExecutionTrail) -> int:
    """End what ended servers left open, in a transaction; return the number of executions."""
    count = 0
    gone = instance.gone()
    for row in db.execute("SELECT * FROM executions WHERE NOT finished").fetchall():
        if instance.is_gone(row["server"]):
            gone.add(row["server"])
            _end_with_or_without_log(db, logs, row, trail)
            count += 1
    for server, session in left_behind(db, instance):
        gone.add(server)
        moment = utc_timestamp(time.time())
        reason = "the server was restarted"
        ended = replace(session, state=SessionState.ENDED, ended_at=moment, ended_reason=reason)
        put_session(db, ended, instance.id, audit)
    for server, grant in open_grants(db):  # the kernels have ended with their server, or nobody watches over them
        if instance.is_gone(server):
            gone.add(server)
            reason = "the server was restarted"
            put_ended(db, replace(grant, ended_at=utc_timestamp(time.time()), ended_reason=reason))
            audit.append(db, AuditKind.GRANT, "ended", "", grant.id, {"token_id": grant.token_id, "reason": reason})
    for server in gone:
        instance.forget(server)  # even before the commit: without a file it counts as ended, too
    return count


def _end_with_or_without_log(db: Database, logs: Path, row: sqlite3.Row, trail: ExecutionTrail) -> None:
    """End an execution as `end_execution` does; if its log cannot be used, remove the log first."""
    db.execute("SAVEPOINT execution")
    try:
        end_execution(db, logs, row, trail)
    except _UNUSABLE:
        # Code without isolation can write the log. It must not keep other executions from their end.
        db.execute("ROLLBACK TO execution")
        remove_tree(log_path(logs, row["session_id"], row["id"]))
        end_execution(db, logs, row, trail)
    db.execute("RELEASE execution")


def end_execution(db: Database, logs: Path, row: sqlite3.Row, trail: ExecutionTrail) -> None:
    """Complete the log and the row of an execution that a crash interrupted.

    If the log has its end already, only the row was missing, and the record in the log is used. Otherwise no record
    names the spooled outputs, so they are removed.

    Raises
    ------
    ValueError, TypeError and others in `_UNUSABLE`
        If the log has values that this package does not write.
    """
    events: list[OutputEvent] = []
    path = log_path(logs, row["session_id"], row["id"])
    if path.is_symlink() or not path.is_file():  # code without isolation can put anything there
        remove_tree(path)
    file = recovered(path, lambda line: _add_event(line, events))
    accepted = execution_from_json(loads_strict(row["record"]))
    if events and isinstance(events[-1], EndEvent):
        if events[-1].execution.id != row["id"]:
            raise ValueError("the log has the end of another execution")
        complete_row(db, events[-1].execution, row["owner"], file, trail)
        return
    remove_spool(logs, row["session_id"], row["id"])
    execution = _interrupted(accepted, events)
    lines: list[tuple[int, OutputEvent]] = [] if events else [(1, StateEvent(ExecutionState.QUEUED))]
    lines.append((file.last_seq + len(lines) + 1, EndEvent(execution)))
    moment = utc_timestamp(time.time())
    file.append([line_of(event, seq, moment) for seq, event in lines])
    # Before the row is committed: a terminal row must not name a log that a power failure took.
    # If the transaction then fails, the next start finds the end in the log.
    file.sync()
    complete_row(db, execution, row["owner"], file, trail)


def _add_event(line: bytes, events: list[OutputEvent]) -> bool:
    """Add the event of a log's line; return False if it is not the next event."""
    try:
        event = event_from_json(loads_strict(line))
    except (ValueError, UnexpectedAnswer):
        return False
    if event is None or event.seq != len(events) + 1:
        return False
    events.append(event)
    return True


def _interrupted(accepted: Execution, events: list[OutputEvent]) -> Execution:
    fold = OutputFold()
    started_at = None
    for event in events:
        fold.add(event)
        if isinstance(event, StateEvent) and event.state is ExecutionState.RUNNING:
            started_at = event.at
    return finished_record(
        replace(accepted, started_at=started_at),
        fold,
        ExecutionState.SERVER_RESTARTED,
        finished_at=utc_timestamp(time.time()),
        reason=REASON if started_at else REASON_QUEUED,
        session_state_preserved=False,
    )
