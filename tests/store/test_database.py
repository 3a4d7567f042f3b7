from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_exec_ext.errors import StorageFull, StoreUnavailable
from jupyter_exec_ext.store import database, database_writer
from jupyter_exec_ext.store.database import Database, check_file
from jupyter_exec_ext.store.database_reader import DatabaseReader
from jupyter_exec_ext.store.database_writer import DiskReserve, Writer
from jupyter_exec_ext.store.migrations import MIGRATIONS, Migration
from jupyter_exec_ext.store.store_health import StoreHealth

LOG = logging.getLogger(__name__)


def count(db: Database) -> int:
    return int(db.execute("SELECT count(*) FROM sessions").fetchone()[0])


def insert(db: Database, name: str = "s") -> None:
    db.execute("INSERT INTO sessions (id, server, ended, created_at, record) VALUES (?, 'me', 0, 'now', '{}')", (name,))


def test_the_database_is_ours_alone_and_knows_its_migrations(tmp_path: Path) -> None:
    path = tmp_path / "db"
    Database(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(path) as reader:
        applied = reader.execute("SELECT version, name FROM migrations ORDER BY version").fetchall()
        assert applied == [(migration.version, migration.name) for migration in MIGRATIONS]
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    reader.close()


def test_a_migration_that_fails_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(tmp_path / "db").close()
    bad = Migration(99, "bad", ("CREATE TABLE half (x)", "THIS IS NO SQL"))
    monkeypatch.setattr(database, "MIGRATIONS", (*MIGRATIONS, bad))
    with pytest.raises(sqlite3.OperationalError):
        Database(tmp_path / "db")
    monkeypatch.undo()
    db = Database(tmp_path / "db")
    assert db.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []
    db.close()


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    db = Database(tmp_path / "db")
    with db.transaction():
        db.execute("INSERT INTO migrations VALUES (1000, 'from the future', 'then')")
    db.close()
    with pytest.raises(StoreUnavailable, match="newer version"):
        Database(tmp_path / "db")


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    db = Database(tmp_path / "db")

    def fail() -> None:
        with db.transaction():
            insert(db)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert count(db) == 0
    db.close()


# --- F16: locked, damaged, read-only ---

HOLD_LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


async def test_a_lock_is_waited_for_and_then_the_request_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (database, database_writer):
        monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 0.5)
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    holder = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    holder.stdout.readline()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="locked") as refused:
        await writer.run(insert, write=True)
    assert 0.4 < time.monotonic() - began < 20
    assert refused.value.retry_after_seconds == 1.0
    assert await writer.run(count) == 0  # reading goes on
    holder.communicate()
    await writer.run(insert, write=True)
    assert await writer.run(count) == 1
    writer.close()


def set_aside_in(directory: Path) -> Path:
    (found,) = [p for p in directory.iterdir() if ".damaged-" in p.name and not p.name.endswith(("-wal", "-shm"))]
    return found


async def test_sync_that_fails_is_trouble_until_one_succeeds(tmp_path: Path) -> None:
    health = StoreHealth(LOG)
    writer = Writer(tmp_path / "db", None, health)
    await writer.run(insert, write=True)
    wal = (tmp_path / "db-wal").rename(tmp_path / "moved")  # SQLite has it open; a sync has yet to open it
    await writer.sync()
    assert "could not be synced" in (health.trouble or "")
    await writer.submit_last("other", lambda db: insert(db, "other"))
    assert "could not be synced" in (health.trouble or "")
    wal.rename(tmp_path / "db-wal")
    await writer.sync()
    assert health.trouble is None
    writer.close()


def test_success_withdraws_the_trouble_of_its_own_kind_only() -> None:
    health = StoreHealth(LOG)
    health.report("no sync", "sync")
    health.report("no log", "event log")
    health.report(None)
    assert health.trouble == "no sync; no log"
    health.report(None, "sync")
    assert health.trouble == "no log"


async def test_who_waits_for_the_disk_is_let_go_when_the_store_closes(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    await writer.run(insert, write=True)
    waiting = asyncio.create_task(writer.sync())
    await asyncio.sleep(0)  # it has asked for a sync
    writer.close()
    await asyncio.wait_for(waiting, 30)


@pytest.mark.parametrize("when", ["before it is opened", "while it is in use"])
async def test_a_damaged_database_is_set_aside_and_said(
    tmp_path: Path, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "db"
    health = StoreHealth(LOG)
    writer = Writer(path, None, health)
    for number in range(500):
        await writer.run(lambda db, number=number: insert(db, f"s{number}" * 50), write=True)  # type: ignore[misc]
    if when.startswith("before"):
        writer.close()
        path.write_bytes(b"this is no database" * 1000)
        writer = Writer(path, None, health)
    else:
        await writer.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        with path.open("rb+") as file:
            for page in range(1, path.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xff" * 4096)
        await writer.run(lambda db: db.execute("PRAGMA cache_size=0") and db.execute("PRAGMA shrink_memory"))
    await writer.run(insert, write=True)
    assert await writer.run(count) == 1
    aside = set_aside_in(tmp_path)
    assert health.alarm is not None and str(aside) in health.alarm
    assert "set aside" in caplog.text
    writer.close()


def damage(path: Path, how: str) -> None:
    """Damage a database in use, as a failing disk or another program does."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        if how == "emptied":
            file.truncate(0)
        elif how == "cut":
            file.truncate(size // 2)
        else:
            file.seek(0 if how in ("all", "header") else 4096)
            file.write(b"\xff" * (100 if how == "header" else size - file.tell()))
    if how in ("all", "header"):
        wal = path.with_name(f"{path.name}-wal")
        wal.write_bytes(b"\xff" * wal.stat().st_size)


KINDS = ["all", "header", "pages", "cut", "emptied"]


async def damaged(path: Path, how: str) -> Writer:
    """Return the writer of a database whose file was damaged behind its back."""
    writer = Writer(path, None, StoreHealth(LOG))
    for number in range(250):
        await writer.run(lambda db, number=number: insert(db, f"s{number}" * 50), write=True)  # type: ignore[misc]
    await writer.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    await writer.run(insert, write=True)
    damage(path, how)
    return writer


async def refused(writer: Writer, reader: DatabaseReader) -> None:
    assert writer.health.damage is not None
    with pytest.raises(StoreUnavailable, match=r"damaged .* restarted.* backup"):
        await writer.run(lambda db: insert(db, "another"), write=True)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await writer.run(count)
    with pytest.raises(StoreUnavailable, match="damaged"):
        reader.rows("SELECT 1")
    await writer.submit_last("key", lambda db: insert(db, "last"))
    assert writer.has_unsaved("key")
    reader.close()
    writer.close()


@pytest.mark.parametrize("how", KINDS)
async def test_a_check_notices_damage_that_the_writer_does_not_meet(tmp_path: Path, how: str) -> None:
    writer = await damaged(tmp_path / "db", how)
    await writer.run(lambda db: insert(db, "unaware"), write=True)
    assert writer.health.damage is None
    writer.check()
    await refused(writer, DatabaseReader(tmp_path / "db", writer.health))


@pytest.mark.parametrize("how", KINDS)
async def test_a_reader_notices_damage(tmp_path: Path, how: str) -> None:
    writer = await damaged(tmp_path / "db", how)
    reader = DatabaseReader(tmp_path / "db", writer.health)
    with pytest.raises(StoreUnavailable, match="damaged"):
        reader.rows("SELECT * FROM sessions ORDER BY record")
    await refused(writer, reader)


@pytest.mark.parametrize("how", ["pages", "emptied"])
async def test_write_after_check_interval_starts_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    writer = await damaged(tmp_path / "db", how)
    monkeypatch.setattr(writer, "_check_at", 0.0)
    await writer.run(lambda db: insert(db, "unaware"), write=True)
    await asyncio.to_thread(writer.sync_threads.shutdown)  # waits for the check
    await refused(writer, DatabaseReader(tmp_path / "db", writer.health))


async def test_a_check_finds_nothing_wrong_with_a_database_in_use(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    lock = sqlite3.connect(tmp_path / "db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    writer.check()
    assert writer.health.damage is None
    lock.close()
    await writer.run(insert, write=True)
    writer.close()


async def test_a_database_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    await writer.run(insert, write=True)
    await writer.run(lambda db: db.execute("PRAGMA query_only=ON").fetchall())
    with pytest.raises(StoreUnavailable, match="read-only"):
        await writer.run(lambda db: insert(db, "t"), write=True)
    assert await writer.run(count) == 1
    writer.close()


# --- F15: full ---


async def fill(writer: Writer) -> None:
    """Let the database grow no further, as a full disk does."""
    await writer.run(lambda db: db.execute(f"PRAGMA max_page_count={1}").fetchall())


def test_something_else_in_place_of_the_reserve_is_removed_without_blocking(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    os.mkfifo(path)
    reserve = DiskReserve(path, 100)
    assert not reserve.is_held
    assert reserve.restore()
    path.unlink()
    path.mkdir()
    assert not reserve.restore()
    assert reserve.restore()
    reserve.release()


def test_fifo_in_place_of_the_database_is_damage(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "db")
    assert check_file(tmp_path / "db") is not None
    assert check_file(tmp_path / "none") is None


async def test_what_was_accepted_is_written_on_the_reserve(tmp_path: Path) -> None:
    """The reserve is given up once; with it gone nothing new is accepted until it can be held again."""
    reserve = DiskReserve(tmp_path / "reserve", 1024 * 1024)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1024 * 1024
    writer = Writer(tmp_path / "db", reserve, StoreHealth(LOG))
    writer.require_reserve()
    attempts: list[bool] = []

    def job(db: Database) -> None:
        attempts.append(reserve.is_held)
        if reserve.is_held:
            raise StorageFull("no space")
        insert(db)

    await writer.submit_last("key", job)
    assert attempts == [True, False]
    assert not writer.has_unsaved("key")
    assert await writer.run(count) == 1
    writer.require_reserve()  # there is room again
    assert reserve.is_held
    writer.close()
    assert not (tmp_path / "reserve").exists()


async def test_what_cannot_be_written_is_tried_again_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.store.database_writer._RETRY_SECONDS", 0.01)
    health = StoreHealth(LOG)
    writer = Writer(tmp_path / "db", None, health)
    await fill(writer)

    def job(db: Database) -> None:
        for number in range(100):
            insert(db, f"s{number}" * 1000)

    await writer.submit_last("key", job)
    assert writer.has_unsaved("key")
    assert health.trouble is not None and "full" in health.trouble
    await writer.run(lambda db: db.execute("PRAGMA max_page_count=1000000").fetchall())
    while writer.has_unsaved("key"):
        await writer.run(count)
    assert await writer.run(count) == 100
    assert health.trouble is None
    writer.close()


def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    refuse = [True]

    def job(db: Database) -> None:
        if refuse:
            refuse.pop()
            raise StorageFull("no space")
        insert(db)

    writer.perform_last("key", job)
    writer.close()
    db = Database(tmp_path / "db")
    assert count(db) == 1
    db.close()


# --- space that is given back ---

FILLER = "INSERT INTO sessions (id, server, ended, created_at, record) VALUES (?, 'me', 1, 'now', ?)"


def checkpoint(db: Database) -> None:
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def shrink(writer: Writer) -> None:
    while writer.thread.submit(writer.shrink_file).result(60):
        pass


def fill_sessions(db: Database, rows: int = 2000) -> None:
    with db.transaction():
        db.executemany(FILLER, [(f"s{number}", "x" * 4000) for number in range(rows)])


@pytest.mark.parametrize("kept", [0, 100, 1000])
def test_database_gives_back_what_was_deleted(tmp_path: Path, kept: int) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    writer.perform(lambda db: db.executemany(FILLER, [(f"s{n}", "x" * 4000) for n in range(2000)]), write=True)
    writer.perform(checkpoint, write=False)
    full = (tmp_path / "db").stat().st_size
    writer.perform(lambda db: db.execute("DELETE FROM sessions WHERE rowid > ?", (kept,)), write=True)
    shrink(writer)
    size = (tmp_path / "db").stat().st_size
    assert full >= 8_000_000
    assert size <= kept * 4096 * 2 + 1_500_000
    assert writer.perform(count, write=False) == kept
    writer.close()


def test_little_free_space_stays_for_what_comes_next(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "db", None, StoreHealth(LOG))
    writer.perform(lambda db: db.executemany(FILLER, [(f"s{n}", "x" * 4000) for n in range(100)]), write=True)
    writer.perform(checkpoint, write=False)
    before = (tmp_path / "db").stat().st_size
    writer.perform(lambda db: db.execute("DELETE FROM sessions"), write=True)
    shrink(writer)
    assert (tmp_path / "db").stat().st_size == before
    writer.close()


def make_old(path: Path) -> None:
    """Make the file one that cannot shrink, as earlier versions made it."""
    Database(path).close()
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    connection.close()


def test_database_of_an_earlier_version_can_shrink_afterwards(tmp_path: Path) -> None:
    make_old(tmp_path / "db")
    db = Database(tmp_path / "db")
    fill_sessions(db)
    with db.transaction():
        db.execute("DELETE FROM sessions")
    db.give_back(10_000)
    assert db.free_bytes() == 0
    db.close()


@pytest.mark.parametrize("reason", ["size", "disk"])
def test_database_that_cannot_be_written_anew_is_opened_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    make_old(tmp_path / "db")
    limit = {"size": ("_MAX_REWRITTEN_BYTES", 1000), "disk": ("_REWRITE_ROOM_FACTOR", 2**60)}[reason]
    monkeypatch.setattr(database, *limit)
    db = Database(tmp_path / "db")
    fill_sessions(db, 10)
    with db.transaction():
        db.execute("DELETE FROM sessions")
    free_bytes = db.free_bytes()
    db.give_back(10_000)
    assert db.free_bytes() == free_bytes > 0
    db.close()


def test_database_that_another_server_writes_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(tmp_path / "db")
    with monkeypatch.context() as patched:
        patched.setattr(database, "_MAX_REWRITTEN_BYTES", 0)
        db = Database(tmp_path / "db")
    holder = sqlite3.connect(tmp_path / "db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    db._make_shrinkable()
    assert db._pragma("auto_vacuum") != 2
    holder.execute("ROLLBACK")
    db._make_shrinkable()
    assert db._pragma("auto_vacuum") == 2
    holder.close()
    db.close()
