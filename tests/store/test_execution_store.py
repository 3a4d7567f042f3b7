"""Accepting, logging, finishing, finding again: the repositories on a real directory."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.audit.digest_chain import verify
from jupyter_exec_ext.engine.executions.live_execution import follow
from jupyter_exec_ext.errors import IdempotencyKeyReused
from jupyter_exec_ext.models import (
    Execution,
    ExecutionState,
    IdempotencyKey,
    OutputEvent,
    Session,
    SessionState,
    StateEvent,
    StoredExecution,
    StreamEvent,
)
from jupyter_exec_ext.protocol.output_joining import OutputFold, finished_record
from jupyter_exec_ext.protocol.strict_json import loads_strict
from jupyter_exec_ext.store.audit_table import AuditReader
from jupyter_exec_ext.store.database import Database
from jupyter_exec_ext.store.event_log import DurableLog
from jupyter_exec_ext.store.log_file import LogFile
from jupyter_exec_ext.store.store import ExecStore
from tests.support.waiting import until

NOW = "2026-01-01T00:00:00.000Z"
QUEUED = Execution("exe_1", "ses_1", ExecutionState.QUEUED, "print(1)", NOW, outputs=[])
RUNNING = StateEvent(ExecutionState.RUNNING)


def finished(execution: Execution = QUEUED, stdout: str = "") -> Execution:
    return replace(execution, state=ExecutionState.OK, stdout=stdout, finished_at=NOW, session_state_preserved=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096)
    yield opened
    opened.close()


async def accept(store: ExecStore, execution: Execution = QUEUED, key: IdempotencyKey | None = None) -> DurableLog:
    log = await store.executions.accept(execution, "me", key)
    assert isinstance(log, DurableLog)
    return log


async def texts(log: Any, after: int = 0) -> list[Any]:
    return [loads_strict(entry.line) async for batch in follow(log, after) for entry in batch]


async def test_a_finished_execution_is_found_with_everything(store: ExecStore) -> None:
    log = await accept(store)
    log.append(RUNNING)
    log.append(StreamEvent("stdout", "1\n\ud800"))
    done = finished(stdout="1\n\ud800")
    await store.executions.finish(done, "me", log)
    assert await store.executions.get("exe_1") == StoredExecution("me", done)
    stored = await store.executions.log("exe_1")
    assert stored is not None
    events = await texts(stored)
    assert [(event["seq"], event["type"]) for event in events] == [(1, "state"), (2, "stream"), (3, "end")]
    assert events == await texts(log)
    assert [line.type for line in await stored.read(0, 9)] == ["state", "stream", "end"]
    assert [e.id for e in await store.executions.list("ses_1", 10)] == ["exe_1"]


async def test_a_list_has_the_beginning_of_long_code_in_the_memory_of_a_few(store: ExecStore) -> None:
    code = "x = 1\n" * 200_000
    for number in range(40):
        execution = replace(QUEUED, id=f"exe_{number:02}", code=code)
        await store.executions.finish(finished(execution), "me", await accept(store, execution))
    tracemalloc.start()
    try:
        listed = await store.executions.list("ses_1", 30)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [execution.id for execution in listed] == [f"exe_{number:02}" for number in range(10, 40)]
    assert {execution.code for execution in listed} == {code[:4096]}
    # Of eight, as bytes, as text and parsed; meanwhile the search index reads others. All would be three times as much.
    assert most_bytes < 20 * 3 * len(code)


async def test_a_reader_follows_from_anywhere_at_its_own_pace(store: ExecStore) -> None:
    """More than what is kept in memory, read while it is written, from three places."""
    log = await accept(store)
    readers = [asyncio.create_task(texts(log, after)) for after in (0, 7)]
    for number in range(300):
        log.append(StreamEvent("stdout", f"{number}".ljust(40_000, "x")))
        if number % 50 == 0:
            await log.changed(number)
    slow = asyncio.create_task(texts(log))
    await store.executions.finish(finished(), "me", log)
    whole = await slow
    assert [event["seq"] for event in whole] == list(range(1, 302))
    assert [await reader for reader in readers] == [whole, whole[7:]]


async def test_a_reader_that_is_a_little_behind_reads_no_file(store: ExecStore) -> None:
    log = await accept(store)
    for number in range(1, 5):
        log.append(StreamEvent("stdout", "x" * 1024 * 1024))
        await log.changed(number - 1)
    (path,) = store.logs.rglob("*.ndjson")
    path.rename(path.with_suffix(".away"))
    assert [entry.seq for entry in await log.read(0, 9)] == [1, 2, 3, 4]
    path.with_suffix(".away").rename(path)
    await store.executions.finish(finished(), "me", log)


async def test_nobody_sees_what_is_not_in_the_file(store: ExecStore) -> None:
    log = await accept(store)
    log.append(RUNNING)
    assert (log.last_seq, list(await log.read(0, 9))) == (0, [])
    await log.changed(0)
    (path,) = store.logs.rglob("*.ndjson")
    assert len(path.read_bytes().splitlines()) == log.last_seq == 1
    await store.executions.finish(finished(), "me", log)


@pytest.mark.parametrize("what", [LogFile, Database])
async def test_nobody_sees_an_end_that_a_power_failure_could_take_away(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch, what: type[LogFile | Database]
) -> None:
    disk_is_done, sync = threading.Event(), what.sync

    def slow_sync(self: Any) -> None:
        disk_is_done.wait(10)
        sync(self)

    log = await accept(store)
    if what is LogFile:
        log.append(RUNNING)
        await log.changed(0)  # which is written for who waits for it
    await store.executions.sync()
    other = await accept(store, replace(QUEUED, id="exe_2"))
    monkeypatch.setattr(what, "sync", slow_sync)
    ending = asyncio.create_task(store.executions.finish(finished(), "me", log))
    reading = asyncio.create_task(texts(log, log.last_seq))
    _, waiting = await asyncio.wait([ending, reading], timeout=0.3)
    assert {ending, reading} == waiting
    disk_is_done.set()
    await ending
    assert [event["type"] for event in await reading] == ["end"]
    await store.executions.finish(finished(replace(QUEUED, id="exe_2")), "me", other)


async def test_what_is_over_soon_has_its_log_in_its_row(store: ExecStore) -> None:
    log = await accept(store)
    for event in (RUNNING, StreamEvent("stdout", "a\rb\n\u2028"), StreamEvent("stderr", "c")):
        log.append(event)
    done = finished(stdout="a\rb\n\u2028")
    await store.executions.finish(done, "me", log)
    assert list(store.logs.rglob("*")) == []
    written = await log.read(0, 9)
    again = ExecStore(path=str(store.directory))
    assert await again.executions.get("exe_1") == StoredExecution("me", done)
    stored = await again.executions.log("exe_1")
    assert stored is not None
    assert (stored.last_seq, list(await stored.read(0, 9))) == (4, list(written))
    assert [line.seq for line in await stored.read(1, 2)] == [2, 3]
    assert list(await stored.read(4, 9)) == []
    again.close()


@pytest.mark.parametrize("why", ["read", "many", "long", "large", "late", "locked"])
async def test_any_other_log_is_a_file(
    store: ExecStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "late":
        monkeypatch.setattr("jupyter_exec_ext.store.event_log._WRITE_BEHIND_SECONDS", 0.0)
    log = await accept(store)
    other = sqlite3.connect(tmp_path / "store" / "executions.db", isolation_level=None)
    if why == "locked":
        other.execute("BEGIN IMMEDIATE")
    for _ in range(100 if why == "many" else 1):
        log.append(StreamEvent("stdout", "x" * {"long": 20_000, "large": 100_000}.get(why, 1)))
    if why in ("read", "late"):
        await log.changed(0)
    ending = asyncio.create_task(store.executions.finish(finished(), "me", log))
    if why == "locked":
        assert not (await asyncio.wait([ending], timeout=0.3))[0]
        other.execute("ROLLBACK")
    await ending
    other.close()
    (path,) = store.logs.rglob("*.ndjson")
    stored = await store.executions.log("exe_1")
    assert stored is not None
    assert [line.line for line in await stored.read(0, 200)] == path.read_bytes().splitlines()
    assert await store.executions.get("exe_1") == StoredExecution("me", finished())


async def test_accepted_execution_is_synced_on_request_and_soon_without_one(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = asyncio.Event()
    loop, sync = asyncio.get_running_loop(), Database.sync
    syncs: list[Database] = []

    def noted(self: Database) -> None:
        syncs.append(self)
        sync(self)
        loop.call_soon_threadsafe(synced.set)

    monkeypatch.setattr(Database, "sync", noted)
    log = await accept(store)
    assert syncs == []
    await store.executions.sync()
    assert len(syncs) == 1
    synced.clear()
    other = await accept(store, replace(QUEUED, id="exe_2"))
    await asyncio.wait_for(synced.wait(), 30)
    await store.executions.finish(finished(), "me", log)
    await store.executions.finish(finished(replace(QUEUED, id="exe_2")), "me", other)


async def test_a_short_run_is_synced_once(store: ExecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync covers the accepted row, the events and the end."""
    monkeypatch.setattr("jupyter_exec_ext.store.database_writer._SYNC_BEHIND_SECONDS", 60.0)
    syncs: list[Database] = []
    sync = Database.sync

    def counted_sync(self: Database) -> None:
        syncs.append(self)
        sync(self)

    monkeypatch.setattr(Database, "sync", counted_sync)
    for number in range(10):
        execution = replace(QUEUED, id=f"exe_{number}")
        log = await accept(store, execution)
        log.append(RUNNING)
        log.append(StreamEvent("stdout", "1\n"))
        await store.executions.finish(finished(execution, "1\n"), "me", log)
        if number == 0:  # what the store wrote at its start is synced, too
            await store.executions.sync()
            syncs.clear()
    assert len(syncs) == 9


async def test_one_sync_of_a_slow_disk_serves_all_waiting_runs(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[Database] = []
    sync = Database.sync

    def slow_sync(self: Database) -> None:
        syncs.append(self)
        time.sleep(0.1)  # the disk
        sync(self)

    monkeypatch.setattr(Database, "sync", slow_sync)

    async def run(name: str) -> None:
        execution = replace(QUEUED, id=name)
        log = await accept(store, execution)
        await store.executions.sync()
        await store.executions.finish(finished(execution), "me", log)

    await asyncio.gather(*(run(f"exe_{number}") for number in range(50)))
    assert 1 <= len(syncs) < 10


async def test_a_database_in_use_is_waited_for_without_holding_up_the_loop(store: ExecStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store" / "executions.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    accepting = asyncio.create_task(accept(store))
    done, _ = await asyncio.wait([accepting], timeout=0.3)  # the loop's own timer comes
    assert not done
    other.execute("ROLLBACK")
    log = await accepting
    other.execute("BEGIN IMMEDIATE")
    ending = asyncio.create_task(store.executions.finish(finished(), "me", log))
    assert not (await asyncio.wait([ending], timeout=0.3))[0]
    other.execute("ROLLBACK")
    other.close()
    await ending
    assert await store.executions.get("exe_1") == StoredExecution("me", finished())


async def test_one_reader_that_gives_up_does_not_take_the_others_along(store: ExecStore) -> None:
    log = await accept(store)
    waiting = [asyncio.create_task(log.changed(0)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    log.append(RUNNING)
    await asyncio.wait_for(waiting[1], 30)
    await store.executions.finish(finished(), "me", log)


# --- idempotency ---

KEY = IdempotencyKey("key", "hash")


async def test_a_key_finds_the_execution_it_was_first_sent_with(store: ExecStore) -> None:
    log = await accept(store, key=KEY)
    again = replace(QUEUED, id="exe_2")
    earlier = await store.executions.accept(again, "me", KEY)
    assert isinstance(earlier, StoredExecution)
    assert (earlier.execution.id, earlier.execution.state) == ("exe_1", ExecutionState.QUEUED)
    await store.executions.finish(finished(stdout="out"), "me", log)
    earlier = await store.executions.accept(again, "me", KEY)
    assert isinstance(earlier, StoredExecution)
    assert earlier.execution == finished(stdout="out")
    assert await store.executions.find("ses_1", "me", KEY) == earlier
    with pytest.raises(IdempotencyKeyReused, match="exe_1"):
        await store.executions.accept(again, "me", IdempotencyKey("key", "other"))


async def test_a_key_counts_for_one_principal_in_one_session(store: ExecStore) -> None:
    await accept(store, key=KEY)
    await accept(store, replace(QUEUED, id="exe_2", session_id="ses_2"), KEY)
    other = await store.executions.accept(replace(QUEUED, id="exe_3"), "other", KEY)
    assert isinstance(other, DurableLog)


async def test_of_many_requests_with_one_key_one_is_accepted(store: ExecStore) -> None:
    outcomes = await asyncio.gather(
        *(store.executions.accept(replace(QUEUED, id=f"exe_{n}"), "me", KEY) for n in range(20))
    )
    assert sum(isinstance(outcome, DurableLog) for outcome in outcomes) == 1


# --- sessions and servers ---

SESSION = Session("ses_1", "me", "python3", "python", SessionState.IDLE, NOW, NOW, kernel_id="kernel-1")


async def test_sessions_of_a_server_that_lives_are_its_own(store: ExecStore) -> None:
    await store.sessions.add(SESSION)
    other = ExecStore(path=str(store.directory))
    assert other.left_behind() == []
    other.recover()
    assert await other.sessions.get("ses_1") is None
    assert await store.sessions.get("ses_1") == SESSION
    await store.sessions.save(replace(SESSION, state=SessionState.ENDED, ended_at=NOW))
    assert [s.id for s in await other.sessions.list_ended(10)] == ["ses_1"]
    other.close()


async def test_adding_a_session_to_a_locked_database_waits_for_the_lock(store: ExecStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store" / "executions.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    adding = asyncio.create_task(store.sessions.add(SESSION))
    assert not (await asyncio.wait([adding], timeout=0.3))[0]
    other.execute("ROLLBACK")
    other.close()
    await adding
    assert await store.sessions.get("ses_1") == SESSION


DIE = """
import asyncio, os, signal, sys
from dataclasses import replace
from jupyter_exec_ext.models import *
from jupyter_exec_ext.store.store import ExecStore
from tests.store.test_execution_store import QUEUED, RUNNING, SESSION, KEY, finished

async def main():
    store = ExecStore(path=sys.argv[1], reserve_bytes=4096)
    await store.sessions.add(SESSION)
    async def accept(name, key=None):
        return await store.executions.accept(replace(QUEUED, id=name, code=name), "me", key)
    done = await accept("done")
    await store.executions.finish(finished(replace(QUEUED, id="done", code="done")), "me", done)
    running = await accept("running", KEY)
    running.append(RUNNING)
    running.append(StreamEvent("stdout", "seen"))
    await running.changed(1)
    await accept("queued")
    ended = await accept("ended")
    ended.append(RUNNING)
    ended.add_end(EndEvent(finished(replace(QUEUED, id="ended", code="ended"), "out")))
    await asyncio.get_running_loop().run_in_executor(None, ended.save_rest)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_after_a_kill_everything_accepted_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "store"
    killed = subprocess.run([sys.executable, "-c", DIE, str(path)], check=False)  # noqa: ASYNC221
    assert killed.returncode == -9
    log_path = next(path.rglob("running.ndjson"))
    with log_path.open("ab") as log:
        log.write(b'{"seq":3,"type":"stream","te')  # what a torn write leaves
    store = ExecStore(path=str(path))
    assert [session.kernel_id for session in store.left_behind()] == ["kernel-1"]
    store.recover()
    found = {name: await store.executions.get(name) for name in ("done", "running", "queued", "ended")}
    states = {name: stored.execution.state.value for name, stored in found.items() if stored}
    assert states == {
        "done": "ok",
        "running": "server_restarted",
        "queued": "server_restarted",
        "ended": "ok",  # its end was in the log; only the row was missing
    }
    running = found["running"]
    assert running is not None
    assert (running.execution.stdout, running.execution.session_state_preserved) == ("seen", False)
    assert running.execution.started_at is not None
    stored_log = await store.executions.log("running")
    events = await texts(stored_log)
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert events[-1]["execution"]["state"] == "server_restarted"
    assert await store.executions.find("ses_1", "me", KEY) == running
    ended = await store.sessions.get("ses_1")
    assert ended is not None
    assert (ended.state, ended.ended_reason) == (SessionState.ENDED, "the server was restarted")
    store.recover()  # a second time changes nothing
    assert await store.executions.get("running") == running
    assert [p.name for p in (path / "servers").iterdir() if store._instance.id not in p.name] == []
    store.close()
    assert list((path / "servers").iterdir()) == []


async def test_an_end_that_only_the_log_has_is_one_after_a_power_failure(tmp_path: Path) -> None:
    path, kept = tmp_path / "store", tmp_path / "what the disk has of the database"
    store = ExecStore(path=str(path), reserve_bytes=4096)
    log = await accept(store, key=KEY)
    log.append(RUNNING)
    await log.changed(0)  # which is written for who waits for it
    await store.executions.sync()
    kept.mkdir()
    for file in path.glob("executions.db*"):
        shutil.copy(file, kept)
    await store.executions.finish(finished(stdout="out"), "me", log)  # its row is on no disk when this returns
    store.close()
    for file in path.glob("executions.db*"):
        file.unlink()
    for file in kept.iterdir():
        shutil.copy(file, path)
    store = ExecStore(path=str(path), reserve_bytes=4096)
    store.recover()
    assert await store.executions.get("exe_1") == StoredExecution("me", finished(stdout="out"))
    assert await store.executions.find("ses_1", "me", KEY) == StoredExecution("me", finished(stdout="out"))
    store.close()
    trail = AuditReader(path)
    with trail.snapshot() as (ends, lines):
        assert list(verify(lines, ends)) == []
    assert [line.record().action for line in trail.newest(9)] == ["accepted", "ended"]
    trail.close()


# --- retention ---


async def finish_one(store: ExecStore, name: str, size: int = 0, *, in_file: bool = False) -> None:
    execution = replace(QUEUED, id=name)
    log = await accept(store, execution)
    log.append(StreamEvent("stdout", "x" * size))
    if in_file:
        await log.changed(0)  # which is written for who waits for it
    await store.executions.finish(finished(execution), "me", log)


@pytest.mark.parametrize("in_file", [True, False])
async def test_the_oldest_are_forgotten_when_there_is_too_much(tmp_path: Path, in_file: bool) -> None:
    store = ExecStore(path=str(tmp_path / "store"), max_bytes=1_000_000)
    for number in range(100):
        await finish_one(store, f"exe_{number:02}", 12_000, in_file=in_file)
    kept = [execution.id for execution in await store.executions.list("ses_1", 100)]
    assert kept == [f"exe_{number:02}" for number in range(100 - len(kept), 100)]
    assert 25 <= len(kept) <= 70
    assert {path.stem for path in store.logs.rglob("*.ndjson")} == set(kept if in_file else [])
    assert await store.executions.get("exe_00") is None
    assert await store.executions.log("exe_00") is None
    store.close()


async def test_the_old_are_forgotten_with_their_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ExecStore(path=str(tmp_path / "store"), max_age_seconds=1000.0)
    await store.sessions.add(SESSION)
    await finish_one(store, "exe_1")
    await store.sessions.save(replace(SESSION, state=SessionState.ENDED, ended_at=NOW))
    store.close()
    later = time.time() + 2000
    monkeypatch.setattr("time.time", lambda: later)
    store = ExecStore(path=str(tmp_path / "store"), max_age_seconds=1000.0)
    await finish_one(store, "exe_2")
    assert await store.executions.get("exe_1") is None
    assert await store.executions.get("exe_2") is not None
    assert await store.sessions.get("ses_1") is not None  # of exe_2 it is still needed
    store.close()


# --- much output ---


def much() -> tuple[list[OutputEvent], Execution]:
    events: list[OutputEvent] = [RUNNING, StreamEvent("stdout", "x" * 50_000), StreamEvent("stdout", "y" * 50_000)]
    fold = OutputFold()
    for event in events:
        fold.add(event)
    return events, finished_record(QUEUED, fold, ExecutionState.OK, finished_at=NOW, session_state_preserved=True)


async def finish_much(store: ExecStore) -> Execution:
    events, execution = much()
    log = await accept(store)
    for event in events:
        log.append(event)
    await store.executions.finish(execution, "me", log)
    return execution


async def test_much_output_is_in_the_log_once(store: ExecStore) -> None:
    execution = await finish_much(store)
    (path,) = store.logs.rglob("*.ndjson")
    assert 100_000 < path.stat().st_size < 110_000
    assert await store.executions.get("exe_1") == StoredExecution("me", execution)


async def test_a_log_that_repeats_much_output_at_its_end_is_read_as_ever(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions before wrote it."""
    monkeypatch.setattr("jupyter_exec_ext.store.log_file.is_long", lambda execution: False)
    execution = await finish_much(store)
    (path,) = store.logs.rglob("*.ndjson")
    assert path.stat().st_size > 300_000
    assert await store.executions.get("exe_1") == StoredExecution("me", execution)


@pytest.mark.parametrize("damage", ["doubled", "garbled", "torn"])
async def test_a_part_of_much_output_is_not_taken_for_all(store: ExecStore, damage: str) -> None:
    await finish_much(store)
    (path,) = store.logs.rglob("*.ndjson")
    lines = path.read_bytes().split(b"\n")
    # Of the same length, so that the end is where it was.
    lines[1] = {
        "doubled": lines[2],
        "garbled": b" " * len(lines[1]),
        "torn": lines[1][:20] + b"\n" + lines[1][21:],
    }[damage]
    path.write_bytes(b"\n".join(lines))
    stored = await store.executions.get("exe_1")
    assert stored is not None
    assert (stored.execution.stdout, stored.execution.reason) == ("", "its output is no longer kept")


# --- the disk ---


@pytest.mark.parametrize("damage", ["removed", "overwritten"])
async def test_of_an_execution_whose_log_is_gone_the_record_is_left(store: ExecStore, damage: str) -> None:
    await finish_one(store, "exe_1", in_file=True)
    (path,) = store.logs.rglob("*.ndjson")
    if damage == "removed":
        path.unlink()
        assert await store.executions.log("exe_1") is None
    else:
        path.write_bytes(b"\0" * path.stat().st_size)
    stored = await store.executions.get("exe_1")
    assert stored is not None
    assert (stored.execution.state, stored.execution.reason) == (ExecutionState.OK, "its output is no longer kept")


async def test_a_directory_that_cannot_be_used_is_replaced_and_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file is in the way")
    store = ExecStore(path=str(tmp_path / "store"))
    assert store.trouble() is not None
    assert "not found again" in str(store.trouble())
    await finish_one(store, "exe_1")
    assert await store.executions.get("exe_1") is not None
    store.close()


async def test_a_log_that_cannot_be_written_goes_on_in_memory_and_is_saved_later(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.store.database_writer._RETRY_SECONDS", 0.01)
    log = await accept(store)
    log.append(RUNNING)
    await log.changed(0)
    (path,) = store.logs.rglob("*.ndjson")
    inode = path.stat().st_ino
    kept = path.rename(path.with_suffix(".kept"))
    path.symlink_to(path)  # no write to it can work
    log.append(StreamEvent("stdout", "meanwhile"))
    await log.changed(1)
    assert "could not be written" in str(store.trouble())
    await store.executions.finish(finished(stdout="meanwhile"), "me", log)
    assert len(await texts(log)) == 3
    stored = await store.executions.get("exe_1")
    assert stored is not None
    assert stored.execution.stdout == "meanwhile"
    kept.rename(path)  # in one step: the writer tries all the time, and would make a file where there is none
    while store._writer.has_unsaved("exe_1"):
        await store.sessions.get("none")
    await until(lambda: not store.executions._unsaved)  # else each outage would cost memory for good
    stored_log = await store.executions.log("exe_1")
    assert await texts(stored_log) == await texts(log)
    assert store.trouble() is None
    assert path.stat().st_ino == inode  # the rest was added to the file, which was not replaced


async def test_sync_of_a_log_that_fails_is_trouble_until_one_succeeds(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: LogFile) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LogFile, "sync", fail)
    await finish_one(store, "exe_1", in_file=True)
    assert store.trouble() == "an event log could not be written: Input/output error"
    monkeypatch.undo()
    await finish_one(store, "exe_2", in_file=True)
    assert store.trouble() is None


async def test_late_output_is_counted_in_the_record_of_a_finished_execution(store: ExecStore) -> None:
    log = await accept(store)
    log.append(RUNNING)
    await store.executions.note_late_bytes("exe_1", 5)  # not finished, so that nothing is late
    await store.executions.finish(finished(), "me", log)
    assert await store.executions.get("exe_1") == StoredExecution("me", finished())
    for late_bytes in (5, 2**40):
        await store.executions.note_late_bytes("exe_1", late_bytes)
        counted = replace(finished(), late_bytes=late_bytes)
        assert await store.executions.get("exe_1") == StoredExecution("me", counted)
        assert [each.late_bytes for each in await store.executions.list("ses_1", 10)] == [late_bytes]
        summary = await store.executions.summary("exe_1")
        assert summary is not None and summary.execution.late_bytes == late_bytes
    stored = await store.executions.log("exe_1")
    assert stored is not None
    assert (await texts(stored))[-1]["execution"]["late_bytes"] == 0
    await store.executions.note_late_bytes("exe_of_nobody", 5)


async def test_readers_of_a_log_whose_end_cannot_be_written_do_not_wait(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await accept(store)
    log.append(RUNNING)

    def fail(*args: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(store.executions, "_complete", fail)

    async def read() -> list[int]:
        return [entry.seq async for batch in follow(log) for entry in batch]

    reading = asyncio.ensure_future(read())
    with pytest.raises(RuntimeError):
        await store.executions.finish(finished(), "me", log)
    assert await asyncio.wait_for(reading, 10) in ([], [1])
    assert log.closed and log.end is None
