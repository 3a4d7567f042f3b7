"""Recovery of executions whose log was written by hostile code."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.models import ExecutionState
from jupyter_exec_ext.protocol.records_json import to_json
from jupyter_exec_ext.protocol.strict_json import dump_bytes
from jupyter_exec_ext.store.log_file import log_path
from jupyter_exec_ext.store.recovery import ServerInstance
from jupyter_exec_ext.store.store import ExecStore

from .test_execution_store import NOW, QUEUED, accept, finished


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096)
    yield opened
    opened.close()


async def leave_orphan(store: ExecStore) -> Path:
    """Make an execution that seems to be of a server that has ended; return the path of its log."""
    await accept(store)
    await store._writer.run(lambda db: db.execute("UPDATE executions SET server = 'ended'"), write=True)
    path = log_path(store.logs, QUEUED.session_id, QUEUED.id)
    path.parent.mkdir(exist_ok=True)
    return path


def event(kind: Any, *, seq: int = 1, **fields: Any) -> bytes:
    return dump_bytes({"seq": seq, "type": kind, "at": NOW, **fields})


def end_with(**changes: Any) -> bytes:
    return event("end", execution={**to_json(finished()), **changes})


HOSTILE_LINES = {
    "type is a list": event(["stream"]),
    "text is a list": b"\n".join(event("stream", seq=seq, name="stdout", text=[]) for seq in (1, 2)),
    "display id is a list": event("display", data={}, metadata={}, display_id=[1], update=False),
    "traceback is a number": event("error", name="E", value="v", traceback=1),
    "files are null": event("files", files=None),
    "truncation is null": event("truncated", truncated=None),
    "execution is null": event("end", execution=None),
    "state is null": end_with(state=None),
    "id is a list": end_with(id=[]),
    "id is of another execution": end_with(id="exe_2"),
    "start is a number": end_with(started_at=1),
    "start is no time": end_with(started_at="x"),
    "size is a text": end_with(
        truncated={
            "max_output_bytes": 1,
            "spooled": [{"name": "a", "mime_type": "t", "size_bytes": "x", "sha256": "s"}],
        }
    ),
    "size is infinite": end_with(
        truncated={
            "max_output_bytes": 1,
            "spooled": [{"name": "a", "mime_type": "t", "size_bytes": 10**400, "sha256": "s"}],
        }
    ),
    "nested deep": b"[" * 100_000,
    "no JSON": b"\0",
}


@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
async def test_recovery_of_hostile_log_ends_the_execution(store: ExecStore, line: bytes) -> None:
    path = await leave_orphan(store)
    path.write_bytes(line + b"\n")
    store.recover()
    stored = await store.executions.get(QUEUED.id)
    assert stored is not None
    assert stored.execution.state is ExecutionState.SERVER_RESTARTED
    *_, end = path.read_bytes().splitlines()
    assert json.loads(end)["execution"]["state"] == "server_restarted"


async def test_recovery_while_another_server_writes_waits_for_the_lock(store: ExecStore) -> None:
    await leave_orphan(store)
    database = store.directory / "executions.db"
    with closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        release.start()
        store.recover()
        release.join()
    stored = await store.executions.get(QUEUED.id)
    assert stored is not None
    assert stored.execution.state is ExecutionState.SERVER_RESTARTED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
async def test_recovery_of_log_without_permissions_ends_the_execution(store: ExecStore) -> None:
    path = await leave_orphan(store)
    path.touch(mode=0)
    store.recover()
    stored = await store.executions.get(QUEUED.id)
    assert stored is not None
    assert stored.execution.state is ExecutionState.SERVER_RESTARTED


def test_fifos_in_place_of_the_prepared_sessions_do_not_block(tmp_path: Path) -> None:
    instance = ServerInstance(tmp_path)
    os.mkfifo(tmp_path / f"{instance.id}.prepared.new")
    instance.note_prepared({"ses_1": "kernel"})
    assert (tmp_path / f"{instance.id}.prepared").read_text() == "ses_1 kernel\n"
    (tmp_path / "ended.lock").touch()
    os.mkfifo(tmp_path / "ended.prepared")
    assert instance.left_prepared() == {}
    instance.close()
