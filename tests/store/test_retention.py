"""Bounds of the store: whatever fills it, and whoever does."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_exec_ext.audit.digest_chain import verify
from jupyter_exec_ext.auth.caller import OWNER
from jupyter_exec_ext.errors import StorageFull
from jupyter_exec_ext.models import Execution, Session, SessionState, SpooledOutput, StreamEvent, Truncation
from jupyter_exec_ext.store.audit_table import AuditReader
from jupyter_exec_ext.store.event_log import DurableLog
from jupyter_exec_ext.store.eviction import MAX_REMOVED, expire
from jupyter_exec_ext.store.spool import FileSpool
from jupyter_exec_ext.store.store import ExecStore
from jupyter_exec_ext.store.stored_bytes import StoredBytes, StoredTotals, entitlements, lineage_of, size_on_disk

from .test_execution_store import NOW, QUEUED, finished

MAX_BYTES = 8_000_000
SMALL_BYTES = 2_000_000
SHARE = MAX_BYTES // 10
A, B = "token:aaaa", "token:bbbb"


def open_store(path: Path, max_bytes: int = MAX_BYTES) -> ExecStore:
    return ExecStore(path=str(path / "store"), max_bytes=max_bytes, reserve_bytes=4096)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


async def in_use(store: ExecStore) -> int:
    """Return what the store takes on disk, as the file system and SQLite say."""
    files = [path.lstat().st_size for path in store.logs.rglob("*") if path.is_file()]
    database = await store._writer.run(lambda db: db.size_bytes())
    return database + sum(map(size_on_disk, files))


async def settled(store: ExecStore) -> None:
    """Return when the store's thread has done what it was given."""
    await asyncio.get_running_loop().run_in_executor(store._writer.thread, lambda: None)


async def accept(store: ExecStore, name: str, owner: str, code: str = "1") -> DurableLog:
    execution = replace(QUEUED, id=name, session_id=f"ses_{owner[-4:]}", code=code)
    log = await store.executions.accept(execution, owner, None)
    assert isinstance(log, DurableLog)
    return log


def record_of(name: str, owner: str, code: str = "1") -> Execution:
    return replace(finished(replace(QUEUED, id=name, session_id=f"ses_{owner[-4:]}", code=code)), reason=None)


async def write(log: DurableLog, size: int) -> None:
    """Write output into the log, and return when it is in the file."""
    seq = log.last_seq
    log.append(StreamEvent("stdout", "x" * size))
    await log.changed(seq)


async def run_once(store: ExecStore, name: str, owner: str, size: int = 0, code: str = "1") -> None:
    log = await accept(store, name, owner, code)
    if size > 10_000:
        await write(log, size)
    else:
        log.append(StreamEvent("stdout", "x" * size))
    await store.executions.finish(record_of(name, owner, code), owner, log)


async def names_of(store: ExecStore, owner: str) -> list[str]:
    return [execution.id for execution in await store.executions.list(f"ses_{owner[-4:]}", 10_000)]


# --- what fills it: each is called with the number of a turn and stores about 100 kB ---


async def log_files(store: ExecStore, turn: int) -> None:
    await run_once(store, f"exe_{turn}", OWNER, 100_000)


async def many_batches(store: ExecStore, turn: int) -> None:
    """Write a log of which the last lines, once the only ones that were counted, are the least part."""
    log = await accept(store, f"exe_{turn}", OWNER)
    for _ in range(20):
        await write(log, 5_000)
    await store.executions.finish(record_of(f"exe_{turn}", OWNER), OWNER, log)


async def short_logs(store: ExecStore, turn: int) -> None:
    for number in range(10):
        await run_once(store, f"exe_{turn}_{number}", OWNER, 9_000)


async def empty_log_files(store: ExecStore, turn: int) -> None:
    """Write files of a few bytes, which take a block each."""
    for number in range(20):
        log = await accept(store, f"exe_{turn}_{number}", OWNER)
        await write(log, 1)
        await store.executions.finish(record_of(f"exe_{turn}_{number}", OWNER), OWNER, log)


async def long_code(store: ExecStore, turn: int) -> None:
    await run_once(store, f"exe_{turn}", OWNER, 0, "#" * 100_000)


async def sessions(store: ExecStore, turn: int) -> None:
    for number in range(2):
        session = Session(
            f"ses_{turn}_{number}",
            OWNER,
            "python3",
            "python",
            SessionState.ENDED,
            NOW,
            NOW,
            metadata={"x": "y" * 50_000},
        )
        await store.sessions.add(session)


async def spools(store: ExecStore, turn: int) -> None:
    name = f"exe_{turn}"
    log = await accept(store, name, OWNER)
    spool = await fill_spool(store, name, OWNER, 100_000)
    await finish_with_spool(store, name, log, spool)


async def finish_with_spool(store: ExecStore, name: str, log: DurableLog, spool: FileSpool) -> None:
    files = await spool.close()
    spooled = tuple(SpooledOutput(n, "text/plain", f.size_bytes, f.sha256, f.complete) for n, f in files.items())
    execution = replace(record_of(name, OWNER), truncated=Truncation(0, spooled=spooled))
    await store.executions.finish(execution, OWNER, log)


async def fill_spool(store: ExecStore, name: str, owner: str, size: int) -> FileSpool:
    spool = store.executions.spool(record_of(name, owner), owner)
    assert spool is not None
    spool.append("stdout", [b"x" * size], size)
    await spool.close()
    return spool


FILLERS: list[Callable[[ExecStore, int], Awaitable[None]]] = [
    log_files,
    many_batches,
    short_logs,
    empty_log_files,
    long_code,
    sessions,
    spools,
]


@pytest.mark.parametrize("fill", FILLERS, ids=lambda fill: str(fill.__name__))
async def test_filled_beyond_its_bound_store_stays_within_it(
    tmp_path: Path, fill: Callable[[ExecStore, int], Awaitable[None]]
) -> None:
    store = open_store(tmp_path, SMALL_BYTES)
    sizes = []
    for turn in range(3 * SMALL_BYTES // 200_000):
        await fill(store, turn)
        await settled(store)
        sizes.append(await in_use(store))
    store.close()
    assert max(sizes) <= SMALL_BYTES
    assert sizes[-1] >= SMALL_BYTES // 2  # no more goes than has to


async def test_counted_sizes_are_the_true_ones_after_reopening(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for turn, fill in enumerate(FILLERS):
        await fill(store, turn)
    running = await accept(store, "running", A)
    await write(running, 50_000)
    counted = store._eviction.account.total
    assert abs(counted - await in_use(store)) < 100_000  # what has no row is estimated
    other = open_store(tmp_path)  # of another server, which sees the first one's running log on disk
    assert abs(other._eviction.account.total - await in_use(store)) < 20_000
    assert other._eviction.account.used(A) >= 50_000
    other.close()
    await store.executions.finish(record_of("running", A), A, running)
    store.close()


async def test_running_logs_alone_exceed_the_bound_then_they_are_full(store: ExecStore) -> None:
    await run_once(store, "old", OWNER, 500_000)
    logs = [await accept(store, f"exe_{number}", OWNER) for number in range(4)]
    written = 0
    while not all(log.full for log in logs):
        for log in logs:
            if not log.full:
                await write(log, 100_000)
                written += 100_000
        await settled(store)
        assert await in_use(store) <= MAX_BYTES
        assert written < 2 * MAX_BYTES
    assert await names_of(store, OWNER) == [f"exe_{number}" for number in range(4)]  # the old one went first
    with pytest.raises(StorageFull, match="max_bytes"):
        await accept(store, "one_more", OWNER)
    await store.executions.finish(record_of("exe_0", OWNER), OWNER, logs[0])  # which can be removed now
    await accept(store, "one_more", OWNER)
    assert "exe_0" not in await names_of(store, OWNER)
    for number in (1, 2, 3):
        await store.executions.finish(record_of(f"exe_{number}", OWNER), OWNER, logs[number])
    assert await in_use(store) <= MAX_BYTES


async def test_queued_executions_alone_exceed_the_bound_then_no_more_are_accepted(store: ExecStore) -> None:
    accepted = 0
    for number in range(2 * MAX_BYTES // 100_000):
        with suppress(StorageFull):
            await accept(store, f"exe_{number}", OWNER, "#" * 100_000)
            accepted += 1
    assert MAX_BYTES // 2 < accepted * 100_000 < MAX_BYTES
    assert await in_use(store) <= MAX_BYTES


async def test_running_spools_alone_exceed_the_bound_then_they_are_cut(store: ExecStore) -> None:
    problems = []
    for number in range(4):
        await accept(store, f"exe_{number}", OWNER)
    for number in range(4):
        spool = store.executions.spool(record_of(f"exe_{number}", OWNER), OWNER)
        assert spool is not None
        for _ in range(30):
            spool.append("stdout", [b"x" * 100_000], 100_000)
            await asyncio.sleep(0.01)
        await spool.close()
        problems.append(spool.problem)
        assert await in_use(store) <= MAX_BYTES
    assert problems[0] is None
    assert "max_bytes" in (problems[-1] or "")


async def test_removed_spool_files_are_room_again(store: ExecStore) -> None:
    await accept(store, "exe_1", OWNER)
    spool = store.executions.spool(record_of("exe_1", OWNER), OWNER)
    assert spool is not None
    for _ in range(40):
        spool.append("display-1.png", [b"x" * 500_000], 500_000)
        await asyncio.sleep(0.01)
        spool.remove("display-1.png")
    spool.append("display-2.png", [b"x" * 500_000], 500_000)
    files = await spool.close()
    assert spool.problem is None
    assert files["display-2.png"].complete


async def test_spools_of_ended_executions_go_when_a_running_one_needs_room(store: ExecStore) -> None:
    for number in range(3):
        log = await accept(store, f"exe_{number}", OWNER)
        spool = await fill_spool(store, f"exe_{number}", OWNER, 3_000_000)
        assert spool.problem is None
        await finish_with_spool(store, f"exe_{number}", log, spool)
    assert await in_use(store) <= MAX_BYTES
    assert sorted(path.parent.name for path in store.logs.rglob("stdout")) == ["exe_1.outputs", "exe_2.outputs"]
    assert len(await names_of(store, OWNER)) == 3


# --- whose it is ---


@pytest.mark.parametrize("size", [0, 9_000, 50_000])
async def test_token_beyond_its_share_loses_its_own_oldest(store: ExecStore, size: int) -> None:
    for number in range(20):
        await run_once(store, f"b_{number}", B, size=9_000)
        await run_once(store, f"o_{number}", OWNER, size=9_000)
    for number in range(3 * SHARE // (size + 3000)):
        await run_once(store, f"a_{number}", A, size)
    assert store._eviction.account.used(A) <= SHARE
    kept = await names_of(store, A)
    last = 3 * SHARE // (size + 3000)
    assert kept == [f"a_{number}" for number in range(last - len(kept), last)]
    assert len(kept) >= 5
    assert await names_of(store, B) == [f"b_{number}" for number in range(20)]
    assert await names_of(store, OWNER) == [f"o_{number}" for number in range(20)]


async def test_share_counts_all_tokens_below(store: ExecStore) -> None:
    await run_once(store, "b", B, 50_000)
    for number in range(40):
        await run_once(store, f"exe_{number}", f"{A}/child{number % 3}", 50_000)
    assert store._eviction.account.used(A) <= SHARE
    assert await names_of(store, B) == ["b"]


async def test_child_with_a_share_of_its_own_keeps_to_it(store: ExecStore) -> None:
    child = f"{A}/cccc"
    store.set_shares({A: None, child: 200_000})
    await run_once(store, "parent", A, 50_000)
    for number in range(20):
        await run_once(store, f"exe_{number}", child, 50_000)
    assert store._eviction.account.used(child) <= 200_000
    assert await names_of(store, A) == ["parent"]


async def shares_in(store: ExecStore) -> dict[str, int]:
    sql = "SELECT principal, share_bytes FROM stored_shares"
    return dict(await store._writer.run(lambda db: db.execute(sql).fetchall()))


@pytest.mark.parametrize("by", ["next server", "other server"])
async def test_share_above_a_tenth_holds_in_evictions_by_other_servers(tmp_path: Path, by: str) -> None:
    store = open_store(tmp_path)
    store.set_shares({A: 3 * SHARE, f"{A}/child": None})
    for number in range(30):
        await run_once(store, f"a_{number}", A, 50_000)
    kept = await names_of(store, A)
    assert store._eviction.account.used(A) > SHARE
    if by == "next server":
        store.close()
    evicting = open_store(tmp_path)
    await asyncio.to_thread(evicting._eviction.evict_and_wait)
    assert await names_of(evicting, A) == kept
    assert await shares_in(evicting) == {A: 3 * SHARE}
    evicting.close()
    store.close()


async def test_share_is_the_last_that_a_policy_gave_and_goes_with_the_records(store: ExecStore) -> None:
    for principal in (A, B):
        await run_once(store, f"exe_{principal[-1]}", principal, 100)
    store.set_shares({A: 1000, B: 2000})
    store.set_shares({A: 2000, B: None})
    assert await shares_in(store) == {A: 2000}
    await store._writer.run(lambda db: expire(db, store.logs, 60.0), write=True)
    assert await shares_in(store) == {A: 2000}
    await store._writer.run(lambda db: expire(db, store.logs, -60.0), write=True)
    await store._writer.run(lambda db: expire(db, store.logs, -60.0), write=True)
    assert await names_of(store, A) == []
    assert await shares_in(store) == {}


async def test_running_logs_of_a_token_are_full_at_its_share_and_cost_nobody_else(store: ExecStore) -> None:
    for number in range(100):
        await run_once(store, f"o_{number}", OWNER, 60_000)
    await run_once(store, "b", B, 50_000)
    before = await names_of(store, OWNER)
    log = await accept(store, "a", A)
    for _ in range(100):
        if log.full:
            break
        await write(log, 50_000)
        await settled(store)
    assert log.full
    assert store._eviction.account.used(A) <= SHARE + 60_000
    assert store.full_share_of(A) == SHARE
    assert store.full_share_of(B) is None
    lost = len(before) - len(await names_of(store, OWNER))
    assert lost * 60_000 <= SHARE + 2 * MAX_BYTES // 16  # the owner had what A's share left free
    assert await names_of(store, B) == ["b"]
    await store.executions.finish(record_of("a", A), A, log)
    assert store.full_share_of(A) is None


async def test_running_logs_that_fill_the_store_cost_nobody_else_a_record(store: ExecStore) -> None:
    store.set_shares({A: MAX_BYTES, B: MAX_BYTES})
    for number in range(10):
        await run_once(store, f"b_{number}", B, 50_000)
    kept = await names_of(store, B)
    logs = [await accept(store, f"a_{number}", A) for number in range(8)]
    for _ in range(100):
        for log in logs:
            if not log.full:
                await write(log, 50_000)
        await settled(store)
    assert all(log.full for log in logs)
    assert await names_of(store, B) == kept
    with pytest.raises(StorageFull, match="have not ended"):
        await accept(store, "refused", A)
    await run_once(store, "b_more", B, 50_000)
    assert await names_of(store, B) == [*kept, "b_more"]


async def test_spool_of_a_token_is_at_most_half_its_share(store: ExecStore) -> None:
    store.set_shares({B: 100_000})
    for owner, expected in ((OWNER, MAX_BYTES // 2), (A, SHARE // 2), (B, 50_000), (f"{B}/x", 50_000)):
        spool = store.executions.spool(record_of("exe_1", owner), owner)
        assert spool is not None
        assert spool.max_bytes == expected


async def test_many_tokens_fill_the_store_then_those_with_most_lose_first(store: ExecStore) -> None:
    await run_once(store, "owners", OWNER, 100_000)
    small = [f"token:small{number}" for number in range(4)]
    for owner in small:
        await run_once(store, f"of_{owner[6:]}", owner, 100_000)
    large = [f"token:large{number}" for number in range(16)]
    for number in range(10):
        for owner in large:
            await run_once(store, f"exe_{owner[6:]}_{number}", owner, 70_000)
    assert await in_use(store) <= MAX_BYTES
    used = store._eviction.account.used
    assert all(used(owner) >= 100_000 for owner in [*small, OWNER])
    assert max(map(used, large)) - min(map(used, large)) <= 3 * 75_000


async def test_owner_alone_fills_the_store_and_a_tokens_records_stay(store: ExecStore) -> None:
    for number in range(5):
        await run_once(store, f"a_{number}", A, 100_000)
    for number in range(200):
        await run_once(store, f"o_{number}", OWNER, 100_000)
    assert await names_of(store, A) == [f"a_{number}" for number in range(5)]
    assert store._eviction.account.used(OWNER) > MAX_BYTES // 2


async def test_more_than_one_transaction_is_needed_then_all_of_it_goes(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=40_000_000)
    for number in range(3 * MAX_REMOVED):
        await run_once(store, f"a_{number}", A, 100)
    store.set_shares({A: 20_000})
    await run_once(store, "last", A, 100)
    assert store._eviction.account.used(A) <= 20_000
    assert (await names_of(store, A))[-1] == "last"
    store.close()


async def test_sessions_removed_by_a_retry_are_forgotten(store: ExecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.sessions.add(Session("ses_1", OWNER, "python3", "python", SessionState.ENDED, NOW, NOW))
    await store._writer.run(lambda db: db.execute("UPDATE sessions SET ended_at = 1"), write=True)
    forgotten: list[str] = []
    store.on_forget(forgotten.extend)
    monkeypatch.setattr("jupyter_exec_ext.store.database_writer.LOCK_WAIT_SECONDS", 0.0)
    with closing(sqlite3.connect(store.directory / "executions.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.wrap_future(store._eviction.evict_soon())
    assert forgotten == []
    await asyncio.get_running_loop().run_in_executor(store._writer.thread, store._writer._retry_all)
    assert await store.sessions.get("ses_1") is None
    assert forgotten == ["ses_1"]


async def test_audit_trail_keeps_to_its_part_and_costs_nobody_a_record(store: ExecStore) -> None:
    await run_once(store, "owners", OWNER, 50_000)
    await run_once(store, "a", A, 50_000)
    for _ in range(12):
        for number in range(1000):
            store.audit.record("file", "downloaded", B, "ses_1", path=f"{'x' * 300}{number}", size_bytes=1)
        await settled(store)
        await asyncio.wrap_future(store._eviction.evict_soon())
    trail = AuditReader(store.directory)
    with trail.snapshot() as (ends, lines):
        assert list(verify(lines, ends)) == []
    assert ends.first_seq > 1
    assert 2000 < ends.last_seq - ends.first_seq < 12_000
    assert "pruned" in {line.record().action for line in trail.newest(9000)}
    trail.close()
    assert await in_use(store) <= MAX_BYTES // 2
    assert await names_of(store, OWNER) == ["owners"]
    assert await names_of(store, A) == ["a"]


# --- the account ---


def test_lineage_begins_with_the_top_level_token() -> None:
    assert lineage_of("token:a/b/c") == ["token:a", "token:a/b", "token:a/b/c"]
    assert lineage_of(OWNER) == [OWNER]


def test_account_of_any_changes_is_their_sum() -> None:
    rng = random.Random(5)
    account = StoredBytes(10**9)
    account.load(StoredTotals({A: 10, f"{A}/x": 5, OWNER: 7}, files=12, database=100))
    used = {A: 10, f"{A}/x": 5, OWNER: 7, B: 0}
    total = 112
    for step in range(2000):
        owner = rng.choice(list(used))
        size = rng.randrange(1000)
        kind = rng.randrange(3)
        if kind == 0:
            account.add_row(owner, size)
        elif kind == 1:
            account.grow(f"exe_{step}", owner, size + 50)
            account.settle(f"exe_{step}", owner, row_bytes=3, file_bytes=size - 3)
        else:
            account.grow(f"exe_{step}", owner, size)
        used[owner] += size
        total += size
    assert account.total == total
    assert account.used(A) == used[A] + used[f"{A}/x"]
    assert {who: account.used(who) for who in (f"{A}/x", B, OWNER)} == {who: used[who] for who in (f"{A}/x", B, OWNER)}


def test_entitlements_never_exceed_the_store() -> None:
    account = StoredBytes(1000)
    account.set_shares({"token:small": 10, "token:large": 900})
    roots = [OWNER, "token:small", "token:large", *(f"token:{number}" for number in range(30))]
    for count in range(1, len(roots) + 1):
        found = entitlements(account, roots[:count])
        assert sum(found.values()) <= 1000
        assert found.get("token:small", 10) == 10


def test_share_that_is_not_written_yet_outlasts_an_eviction() -> None:
    account = StoredBytes(10**6)
    account.set_shares({"token:a": 900_000})
    account.load(StoredTotals())
    assert account.share_of("token:a") == 900_000
    account.note_saved("token:a", 900_000)
    account.load(StoredTotals(shares={"token:a": 500_000}))  # another server has another policy for it
    assert account.share_of("token:a") == 500_000


def test_number_of_remembered_shares_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.store.stored_bytes._MAX_SHARES", 100)
    account = StoredBytes(10**6)
    account.add_row("token:kept", 10)
    account.set_shares({"token:kept": 11})
    for number in range(1000):
        account.set_shares({f"token:{number}": 5})
    assert len(account._shares) <= 101
    assert account.share_of("token:kept") == 11


async def test_store_of_an_earlier_version_is_measured(tmp_path: Path) -> None:
    """Rows without sizes count as what their logs take."""
    store = open_store(tmp_path)
    for number in range(10):
        await run_once(store, f"exe_{number}", A, 50_000)
    size = store._eviction.account.used(A)
    await store._writer.run(
        lambda db: db.execute("UPDATE executions SET row_bytes = NULL, file_bytes = NULL"), write=True
    )
    store.close()
    store = open_store(tmp_path)
    assert abs(store._eviction.account.used(A) - size) < 0.1 * size
    for number in range(10, 40):
        await run_once(store, f"exe_{number}", A, 50_000)
    assert store._eviction.account.used(A) <= SHARE
    assert len(list(store.logs.rglob("*.ndjson"))) == len(await names_of(store, A))
    store.close()
