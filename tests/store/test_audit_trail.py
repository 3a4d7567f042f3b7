"""The audit trail: what is recorded, by how many at once, and that nothing can be taken away from it unseen."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.audit.digest_chain import GENESIS, Head, chained, clipped, digest_of, verify
from jupyter_exec_ext.errors import StorageFull, StoreUnavailable
from jupyter_exec_ext.models import (
    AuditKind,
    AuditRecord,
    Execution,
    ExecutionState,
    IdempotencyKey,
    Session,
    SessionState,
)
from jupyter_exec_ext.store import audit_table
from jupyter_exec_ext.store import audit_trail as audit_module
from jupyter_exec_ext.store.audit_table import AuditReader, prune, put
from jupyter_exec_ext.store.database import Database
from jupyter_exec_ext.store.event_log import DurableLog
from jupyter_exec_ext.store.execution_rows import complete_row
from jupyter_exec_ext.store.log_file import LogFile, log_path
from jupyter_exec_ext.store.store import ExecStore

NOW = "2026-01-01T00:00:00.000Z"
SECRET = "canary-that-must-stay-out"
QUEUED = Execution("exe_1", "ses_1", ExecutionState.QUEUED, f"x = '{SECRET}'", NOW, metadata={"m": SECRET}, outputs=[])


def open_store(directory: Path, **traits: Any) -> ExecStore:
    return ExecStore(path=str(directory), reserve_bytes=4096, **traits)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def records(directory: Path) -> list[AuditRecord]:
    with closing(AuditReader(directory)) as reader, reader.snapshot() as (_, lines):
        return [line.record() for line in lines]


def faults(directory: Path, known: Head | None = None) -> list[str]:
    with closing(AuditReader(directory)) as reader, reader.snapshot() as (ends, lines):
        return list(verify(lines, ends, known))


def head(directory: Path) -> Head:
    with closing(AuditReader(directory)) as reader, reader.snapshot() as (ends, _):
        return Head(ends.last_seq, ends.last_digest)


async def run_one(store: ExecStore, execution: Execution = QUEUED, **changes: Any) -> None:
    log = await store.executions.accept(execution, "me", None)
    assert isinstance(log, DurableLog)
    done = replace(execution, state=ExecutionState.OK, stdout=SECRET, session_state_preserved=True, **changes)
    await store.executions.finish(done, "me", log)


# --- what is recorded ---


async def test_an_execution_has_a_pair_of_records_without_its_secrets(store: ExecStore, tmp_path: Path) -> None:
    await run_one(store, started_at=NOW, finished_at="2026-01-01T00:00:01.500Z", reason=SECRET)
    accepted, ended = records(tmp_path)
    assert (accepted.seq, accepted.kind, accepted.action) == (1, AuditKind.EXECUTION, "accepted")
    assert (accepted.principal, accepted.subject, accepted.previous) == ("me", "exe_1", GENESIS)
    assert accepted.data == {
        "session_id": "ses_1",
        "code_sha256": hashlib.sha256(QUEUED.code.encode()).hexdigest(),
        "code_bytes": len(QUEUED.code),
        "language": None,
        "timeout_seconds": None,
        "isolation": "none",
    }
    assert (ended.seq, ended.action, ended.previous) == (2, "ended", accepted.digest)
    assert (ended.data["state"], ended.data["run_seconds"]) == ("ok", 1.5)
    assert SECRET not in str([accepted, ended])
    assert faults(tmp_path) == []


async def test_the_code_itself_is_recorded_where_that_is_wanted(tmp_path: Path) -> None:
    store = open_store(tmp_path, audit_code=True)
    code = "print('\ud800 ü')" * 1000
    await run_one(store, replace(QUEUED, code=code))
    store.close()
    assert records(tmp_path)[0].data["code"] == code
    assert faults(tmp_path) == []


async def test_a_repeated_request_is_recorded_once(store: ExecStore, tmp_path: Path) -> None:
    key = IdempotencyKey("key", "hash")
    for number in range(3):
        await store.executions.accept(replace(QUEUED, id=f"exe_{number}"), "me", key)
    assert [record.subject for record in records(tmp_path)] == ["exe_0"]


async def test_an_end_that_is_written_again_is_recorded_once(store: ExecStore, tmp_path: Path) -> None:
    await run_one(store)
    file = LogFile(log_path(store.logs, "ses_1", "exe_1"))
    again = replace(QUEUED, state=ExecutionState.SERVER_RESTARTED)
    await store._writer.run(lambda db: complete_row(db, again, "me", file, store._trail), write=True)
    assert [record.action for record in records(tmp_path)] == ["accepted", "ended"]


async def test_a_database_that_was_set_aside_meanwhile_has_both_records(store: ExecStore, tmp_path: Path) -> None:
    log = await store.executions.accept(QUEUED, "me", None)
    assert isinstance(log, DurableLog)
    new = ["DELETE FROM executions", "DELETE FROM audit"]
    new.append("UPDATE audit_ends SET first_seq = 1, last_seq = 0, last_digest = first_previous")
    tamper(tmp_path, *new)
    await store.executions.finish(replace(QUEUED, state=ExecutionState.OK), "me", log)
    assert [record.action for record in records(tmp_path)] == ["accepted", "ended"]
    assert faults(tmp_path) == []


async def test_who_sent_the_code_is_recorded_not_whose_session_it_is(store: ExecStore, tmp_path: Path) -> None:
    await store.executions.accept(QUEUED, "agent", None, "owner")
    assert records(tmp_path)[0].principal == "owner"


async def test_what_was_not_accepted_is_not_recorded(
    store: ExecStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[AuditRecord] = []
    store.audit.subscribe(given.append)
    store.audit.start()
    append = store.audit.append

    def fail_afterwards(*args: Any) -> None:
        append(*args)
        raise StorageFull("no space")

    monkeypatch.setattr(store.audit, "append", fail_afterwards)
    with pytest.raises(StorageFull):
        await store.executions.accept(QUEUED, "me", None)
    monkeypatch.undo()
    assert records(tmp_path) == []
    await store.executions.accept(QUEUED, "me", None)
    await asyncio.sleep(0)
    assert [record.seq for record in given] == [1]
    assert given == records(tmp_path)


async def test_a_session_is_recorded_from_its_beginning_to_its_end(store: ExecStore, tmp_path: Path) -> None:
    session = Session("ses_1", "me", "python3", "python", SessionState.STARTING, NOW, NOW, metadata={"m": SECRET})
    await store.sessions.add(session)
    for changes in (
        {"kernel_id": "k", "kernel_starts": 1},
        {"state": SessionState.IDLE},
        {"kernel_starts": 2},
        {"state": SessionState.ENDED, "ended_reason": "deleted"},
        {},
    ):
        session = replace(session, **changes)
        await store.sessions.save(session)
    found = records(tmp_path)
    assert [record.action for record in found] == ["created", "kernel_started", "kernel_started", "ended"]
    assert {record.subject for record in found} == {"ses_1"}
    assert found[-1].data == {"reason": "deleted"}
    assert SECRET not in str(found)


def test_a_killed_servers_executions_get_their_records(tmp_path: Path) -> None:
    """Accepted by a process that ends without a word, ended by the next one, exactly once."""
    code = f"""
import asyncio, os
from tests.store.test_audit_trail import *
async def main():
    store = open_store(Path({str(tmp_path)!r}))
    await store.sessions.add(Session("ses_1", "me", "python3", "python", SessionState.IDLE, NOW, NOW))
    await store.executions.accept(QUEUED, "me", None)
    os._exit(1)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 1
    for _ in range(2):
        store = open_store(tmp_path)
        store.recover()
        store.close()
    found = [(record.kind.value, record.action) for record in records(tmp_path)]
    assert found == [("session", "created"), ("execution", "accepted"), ("execution", "ended"), ("session", "ended")]
    assert records(tmp_path)[2].data["state"] == "server_restarted"
    assert faults(tmp_path) == []


# --- recorded soon ---


async def settled(store: ExecStore) -> None:
    await store._writer.run(lambda db: None)


async def test_records_beside_executions_keep_their_order_and_time(store: ExecStore, tmp_path: Path) -> None:
    before = time.time()
    for number in range(100):
        store.audit.record("file", "deleted", "me", "ses_1", path=f"{number}")
    await settled(store)
    found = records(tmp_path)
    assert [record.data["path"] for record in found] == [f"{number}" for number in range(100)]
    assert all(record.at >= time.strftime("%Y-%m-%dT%H:%M", time.gmtime(before)) for record in found)


async def test_what_the_storage_does_not_take_is_recorded_later(
    store: ExecStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.store.database_writer._RETRY_SECONDS", 0.01)
    refusals = [1, 2, 3]

    def put(db: Database, record: AuditRecord) -> AuditRecord:
        if refusals:
            refusals.pop()
            raise StorageFull("no space")
        return audit_table.put(db, record)

    monkeypatch.setattr(audit_module, "put", put)
    store.audit.record("token", "created", "me", "tok_1", scopes=["a"])
    store.audit.record("token", "revoked", "me", "tok_1")
    give_up_at = time.monotonic() + 10
    while len(records(tmp_path)) < 2 and time.monotonic() < give_up_at:
        await settled(store)
    assert [record.action for record in records(tmp_path)] == ["created", "revoked"]
    assert store.trouble() is None


async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.audit.record("token", "created", "me", "tok_1")
    await asyncio.to_thread(store.close)
    assert [record.action for record in records(tmp_path)] == ["created"]


async def test_what_could_not_be_kept_is_counted(
    store: ExecStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_MAX_WAITING", 5)
    for number in range(12):  # nothing is written before the loop goes on, or soon after
        store.audit._is_scheduled = True
        store.audit.record("file", "deleted", "me", "ses_1", path=f"{number}")
    store.audit._is_scheduled = False
    store._writer.submit_last("audit", store.audit._write)
    await settled(store)
    found = records(tmp_path)
    assert [record.action for record in found] == ["deleted"] * 5 + ["lost"]
    assert found[-1].data == {"count": 7}
    store.audit.record("file", "deleted", "me", "ses_1", path="x")
    await settled(store)
    assert [record.action for record in records(tmp_path)][6:] == ["deleted"]


async def test_a_flood_of_refusals_is_counted(store: ExecStore, tmp_path: Path) -> None:
    for number in range(1000):
        store.audit.record("denial", "refused", "", f"/exec/v1/{number}?token={SECRET}", code="unauthenticated")
    for _ in range(60):
        store.audit.record("denial", "refused", "agent", "/x", code=f"made up {SECRET}")
    store.audit.record("denial", "refused", "agent-2", "/exec/v1", code="forbidden")
    await settled(store)
    found = records(tmp_path)
    strangers = [record for record in found if record.principal == ""]
    assert 50 <= len(strangers) <= 52
    assert 50 <= sum(record.principal == "agent" for record in found) <= 52
    told = [record.data["suppressed"] for record in found if record.data["suppressed"]]
    assert sum(counted["unauthenticated"] for counted in told if "unauthenticated" in counted) == 1000 - len(strangers)
    assert found[-1].principal == "agent-2"
    assert found[-1].data["suppressed"]["other"] in (8, 9, 10)
    assert f"token={SECRET}" not in str(found)


async def test_what_is_suppressed_at_the_end_is_told_too(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(60):
        store.audit.record("denial", "refused", "", "/", code="unauthenticated")
    await asyncio.to_thread(store.close)
    last = records(tmp_path)[-1]
    assert (last.action, sum(last.data["suppressed"].values())) == ("suppressed", 60 - len(records(tmp_path)) + 1)


async def test_long_names_are_cut(store: ExecStore, tmp_path: Path) -> None:
    for name in ("x" * 1_000_000, "\r\n\x1b[31m" * 1000, "\U0001f600" * 1000, "\ud800" * 1000):
        store.audit.record("file", "deleted", name, name, path=name)
    await settled(store)
    found = records(tmp_path)
    assert len(found) == 4
    assert all(len(chained(record).line) < 2000 for record in found)
    assert found[0].subject.endswith("... (1000000 characters)")
    assert faults(tmp_path) == []


@pytest.mark.parametrize("text", ["", "short", "ü" * 24, "\U0001f600" * 24])
def test_short_texts_are_kept(text: str) -> None:
    assert clipped(text) == text


# --- nothing can be taken away unseen ---


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A trail of ten records."""

    async def write() -> None:
        store = open_store(tmp_path)
        for number in range(5):
            await run_one(store, replace(QUEUED, id=f"exe_{number}"))
        store.close()

    asyncio.run(write())
    assert faults(tmp_path) == []
    return tmp_path


def tamper(directory: Path, *statements: str) -> None:
    with closing(sqlite3.connect(directory / "executions.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def rewrite(directory: Path, change: Callable[[list[AuditRecord]], list[AuditRecord]]) -> None:
    """Write a whole new chain, digests, ends and all, as somebody can who may write the database."""
    previous, rows = GENESIS, []
    for seq, record in enumerate(change(records(directory)), 1):
        line = chained(replace(record, seq=seq, previous=previous))
        previous = line.digest
        rows.append((line.seq, line.line, line.digest))
    with closing(sqlite3.connect(directory / "executions.db")) as db:
        db.execute("DELETE FROM audit")
        db.executemany("INSERT INTO audit VALUES (?, ?, ?)", rows)
        db.execute("UPDATE audit_ends SET first_seq = 1, last_seq = ?, last_digest = ?", (len(rows), previous))
        db.commit()


SWAP = [
    "UPDATE audit SET seq = -4 WHERE seq = 4",
    "UPDATE audit SET seq = 4 WHERE seq = 5",
    "UPDATE audit SET seq = 5 WHERE seq = -4",
]
TAMPERED = {
    "removed": (["DELETE FROM audit WHERE seq = 4"], ["record 4 is missing"]),
    "several removed": (["DELETE FROM audit WHERE seq IN (4, 5)"], ["records 4 to 5 are missing"]),
    "changed": (
        ["UPDATE audit SET record = replace(record, 'exe_1', 'exe_9') WHERE seq = 4"],
        ["record 4 was changed: it does not have its digest"],
    ),
    "digest changed": (
        [f"UPDATE audit SET digest = '{'a' * 64}' WHERE seq = 4"],
        [
            "record 4 was changed: it does not have its digest",
            "record 5 does not follow from the one before it: one of the two was replaced",
        ],
    ),
    "reordered": (
        SWAP,
        [
            "records were reordered: record 5 stands where record 4 belongs",
            "records were reordered: record 4 stands where record 5 belongs",
            "record 6 does not follow from the one before it: one of the two was replaced",
        ],
    ),
    "truncated tail": (
        ["DELETE FROM audit WHERE seq > 7"],
        ["records 8 to 10 are missing (cut off at the end)"],
    ),
    "truncated head": (
        ["DELETE FROM audit WHERE seq < 3"],
        ["records 1 to 2 are missing (at the beginning)"],
    ),
    "all removed": (["DELETE FROM audit"], ["records 1 to 10 are missing (cut off at the end)"]),
    "no record": (
        ["UPDATE audit SET record = 'x' WHERE seq = 1"],
        ["record 1 was changed: it does not have its digest"],
    ),
    "bytes instead of text": (
        ["UPDATE audit SET record = x'00ff' WHERE seq = 4"],
        ["record 4 was changed: it does not have its digest"],
    ),
    "text that is not UTF-8": (
        ["UPDATE audit SET record = CAST(x'00ff' AS TEXT) WHERE seq = 4"],
        ["record 4 was changed: it does not have its digest"],
    ),
    "bytes instead of a digest": (
        ["UPDATE audit SET digest = x'00ff' WHERE seq = 10"],
        [
            "record 10 was changed: it does not have its digest",
            "the last record, 10, is not the one that the trail's end names: it was replaced",
        ],
    ),
    "the end moved": (
        ["UPDATE audit_ends SET last_seq = 8"],
        ["records 9 to 10 stand after the trail's end, record 8"],
    ),
    "the beginning moved": (
        ["UPDATE audit_ends SET first_seq = 3"],
        [
            "record 1 comes before the trail's beginning, record 3",
            "record 2 comes before the trail's beginning, record 3",
            "record 3 does not follow from the one before it: one of the two was replaced",
        ],
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_done_to_the_trail_is_said(trail: Path, how: str) -> None:
    statements, said = TAMPERED[how]
    tamper(trail, *statements)
    assert faults(trail) == said


@pytest.mark.parametrize("field", ["seq", "at", "action", "principal", "subject", "data", "previous"])
def test_record_with_a_field_of_another_type_is_no_record_and_is_kept(trail: Path, field: str) -> None:
    """It has its digest, as that of a program has that can write the database."""
    line = json.dumps(json.loads(chained(records(trail)[5]).line) | {field: 5.5})
    with closing(sqlite3.connect(trail / "executions.db")) as raw:
        raw.execute("UPDATE audit SET record = ?, digest = ? WHERE seq = 6", (line, digest_of(line)))
        raw.commit()
    assert faults(trail)[0] == "record 6 was changed: it is no record"
    db = Database(trail / "executions.db")
    with closing(db), db.transaction():
        assert prune(db, "2999-01-01T00:00:00.000Z", 100) == (1, 5)


@pytest.mark.parametrize(
    "change", ["last_seq = 'x'", "last_seq = 1.5", "last_digest = x'00'", "first_previous = x'00'"]
)
def test_ends_of_another_type_are_reported_and_nothing_is_accepted(trail: Path, change: str) -> None:
    record = records(trail)[0]
    tamper(trail, f"UPDATE audit_ends SET {change}")
    with pytest.raises(StoreUnavailable, match="was tampered with"):
        faults(trail)
    db = Database(trail / "executions.db")
    with closing(db), db.transaction():
        assert prune(db, "2999-01-01T00:00:00.000Z", 100) is None
        with pytest.raises(StoreUnavailable, match="was tampered with"):
            put(db, record)


async def test_removed_ends_of_the_trail_refuse_executions_and_are_trouble(store: ExecStore) -> None:
    await store._writer.run(lambda db: db.execute("DELETE FROM audit_ends"), write=True)
    with pytest.raises(StoreUnavailable, match="was tampered with"):
        await store.executions.accept(QUEUED, "me", None)
    store.audit.record("file", "deleted", "me", "a.txt")
    await settled(store)
    assert "was tampered with" in (store.trouble() or "")


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo])
def test_something_else_in_place_of_the_database_is_no_trail(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "executions.db")
    with pytest.raises(StoreUnavailable, match="no audit trail"):
        AuditReader(tmp_path)


def test_trail_that_cannot_be_opened_is_unavailable(trail: Path) -> None:
    """Its process has no descriptor left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StoreUnavailable, match="unable to open"), closing(AuditReader(trail)) as reader:
            reader.last_seq()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_record_replaced_by_a_proper_one_is_found(trail: Path) -> None:
    forged = chained(replace(records(trail)[3], principal="somebody else"))
    with closing(sqlite3.connect(trail / "executions.db")) as db:
        db.execute("UPDATE audit SET record = ?, digest = ? WHERE seq = 4", (forged.line, forged.digest))
        db.commit()
    assert faults(trail) == ["record 5 does not follow from the one before it: one of the two was replaced"]
    with closing(sqlite3.connect(trail / "executions.db")) as db:
        forged = chained(replace(records(trail)[9], principal="somebody else"))
        db.execute("UPDATE audit SET record = ?, digest = ? WHERE seq = 10", (forged.line, forged.digest))
        db.commit()
    assert faults(trail)[-1] == "the last record, 10, is not the one that the trail's end names: it was replaced"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda found: found[:7],
            ["records 8 to 10 are missing (cut off at the end, as the head that was kept shows)"],
        ),
        (
            lambda found: [*found[:3], *found[4:], found[3]],
            ["record 10 is not the one whose head was kept: the trail was rewritten up to there"],
        ),
        (
            lambda found: [*found[:9], replace(found[9], principal="x"), found[0]],
            ["record 10 is not the one whose head was kept: the trail was rewritten up to there"],
        ),
    ],
    ids=["cut off", "reordered", "changed and gone on"],
)
def test_a_rewritten_trail_is_found_by_a_head_kept_elsewhere(
    trail: Path, change: Callable[[list[AuditRecord]], list[AuditRecord]], said: list[str]
) -> None:
    kept = Head.parse(str(head(trail)))
    assert faults(trail, kept) == []
    rewrite(trail, change)
    assert faults(trail) == []  # in itself it is whole
    assert faults(trail, kept) == said


@pytest.mark.parametrize("text", ["", "1", "x:" + "a" * 64, "1:" + "g" * 64, "-1:" + "a" * 64, "1:" + "A" * 64])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SEQ:DIGEST"):
        Head.parse(text)


# --- growing old ---


def test_old_records_are_removed_from_the_beginning_and_that_is_recorded(
    trail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six records are 200 days old; four at a time are removed."""
    monkeypatch.setattr(audit_module, "_PRUNE_RECORDS", 4)
    rewrite(trail, lambda found: [replace(r, at=NOW.replace("2026", "2020")) if r.seq <= 6 else r for r in found])
    old = Head(6, records(trail)[5].digest)
    kept = head(trail)

    async def run_two() -> None:
        for number in (7, 8):
            store = open_store(trail, max_audit_age_seconds=200 * 86400)
            await run_one(store, replace(QUEUED, id=f"exe_{number}"))
            store.close()

    asyncio.run(run_two())
    found = records(trail)
    assert [(r.seq, r.data) for r in found if r.action == "pruned"] == [
        (11, {"first_seq": 1, "last_seq": 4}),
        (14, {"first_seq": 5, "last_seq": 6}),
    ]
    assert found[0].seq == 7
    assert faults(trail) == faults(trail, kept) == faults(trail, old) == []
    assert faults(trail, Head(3, "a" * 64)) == [
        "record 3, whose head was kept, was removed at the beginning: nothing follows from that head"
    ]
    assert faults(trail, Head(6, "a" * 64)) == [
        "record 6 is not the one whose head was kept: the trail was rewritten up to there"
    ]


def test_everything_may_be_old(trail: Path) -> None:
    db = Database(trail / "executions.db")
    with db.transaction():
        assert prune(db, "2999-01-01T00:00:00.000Z", 100) == (1, 10)
        assert prune(db, "2999-01-01T00:00:00.000Z", 100) is None
    db.close()
    assert (faults(trail), records(trail)) == ([], [])


# --- several servers ---

APPEND = """
import asyncio
from tests.store.test_audit_trail import *
async def main():
    store = open_store(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(100):
        await run_one(store, replace(QUEUED, id=f"exe_{sys.argv[2]}_{number}"))
        store.audit.record("file", "deleted", "me", "ses_1", path="x")
    await asyncio.to_thread(store.close)
asyncio.run(main())
"""


def test_two_servers_write_one_chain(tmp_path: Path) -> None:
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for server in servers:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("go\n")
        server.stdin.flush()
    for server in servers:
        server.communicate(timeout=120)
        assert server.returncode == 0
    found = records(tmp_path)
    assert faults(tmp_path) == []
    pairs = [(r.subject, r.action) for r in found if r.kind is AuditKind.EXECUTION]
    assert len(pairs) == len(set(pairs)) == 400
    assert sum(r.kind is AuditKind.FILE for r in found) == 200
    senders = "".join(subject.split("_")[1] for subject, _ in pairs)
    assert "ab" in senders and "ba" in senders  # at once, not one after the other
