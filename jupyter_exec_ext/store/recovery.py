"""Crash recovery: ends the executions and sessions that a killed server left open."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

from ..errors import UnexpectedAnswer
from ..models import EndEvent, Execution, ExecutionState, OutputEvent, Session, SessionState, StateEvent
from ..protocol.output_joining import OutputFold, finished_record
from ..protocol.records_json import event_from_json, execution_from_json, session_from_json, utc_timestamp
from ..protocol.strict_json import loads_strict
from ..system.removal import remove_tree
from .audit_trail import AuditLog
from .database import Database
from .execution_rows import ExecutionTrail, complete_row
from .log_file import line_of, log_path, recovered, remove_spool
from .server_instances import ServerInstance
from .session_store import put_session

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
            end_execution(db, logs, row, trail)
            count += 1
    for server, session in left_behind(db, instance):
        gone.add(server)
        moment = utc_timestamp(time.time())
        reason = "the server was restarted"
        ended = replace(session, state=SessionState.ENDED, ended_at=moment, ended_reason=reason)
        put_session(db, ended, instance.id, audit)
    for server in gone:
        instance.forget(server)
    return count


def end_execution(db: Database, logs: Path, row: sqlite3.Row, trail: ExecutionTrail) -> None:
    """Complete the log and the row of an execution that a crash interrupted.

    If the log has its end already, only the row was missing, and the record in the log is used. Otherwise no record
    names the spooled outputs, so they are removed.
    """
    events: list[OutputEvent] = []
    path = log_path(logs, row["session_id"], row["id"])
    if path.is_symlink() or not path.is_file():  # code without isolation can put anything there
        remove_tree(path)
    file = recovered(path, lambda line: _add_event(line, events))
    accepted = execution_from_json(loads_strict(row["record"]))
    if events and isinstance(events[-1], EndEvent):
        complete_row(db, events[-1].execution, row["owner"], file, trail)
        return
    remove_spool(logs, row["session_id"], row["id"])
    execution = _interrupted(accepted, events)
    lines: list[tuple[int, OutputEvent]] = [] if events else [(1, StateEvent(ExecutionState.QUEUED))]
    lines.append((file.last_seq + len(lines) + 1, EndEvent(execution)))
    moment = utc_timestamp(time.time())
    file.append([line_of(event, seq, moment) for seq, event in lines])
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
