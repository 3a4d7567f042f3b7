"""Spools on a real disk: written behind, bounded, gone with their executions."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_exec_ext.models import SpooledOutput, Truncation
from jupyter_exec_ext.store import spool as module
from jupyter_exec_ext.store.eviction_schedule import EvictionSchedule, GrowingFiles
from jupyter_exec_ext.store.log_file import spool_path
from jupyter_exec_ext.store.spool import FileSpool, SpoolThread, open_spooled
from jupyter_exec_ext.store.store import ExecStore
from jupyter_exec_ext.store.stored_bytes import StoredBytes

from .test_execution_store import QUEUED, accept, finished


class RoomyStore:
    """Evictions of a store that never exceeds its bound."""

    account = StoredBytes(2**40)


def unlimited() -> GrowingFiles:
    return GrowingFiles(cast(EvictionSchedule, RoomyStore()), "exe_1", "owner")


@pytest.fixture
async def thread() -> AsyncIterator[SpoolThread]:
    started = SpoolThread()
    yield started
    started.close()
    assert started.waiting_bytes == 0


@pytest.fixture
async def spool(thread: SpoolThread, tmp_path: Path) -> FileSpool:
    return FileSpool(tmp_path / "a" / "spool", 1_000_000, thread, unlimited())


async def test_what_is_appended_is_in_the_files(spool: FileSpool, tmp_path: Path) -> None:
    for number in range(1000):
        spool.append("stdout", [b"out %d\n" % number], 10)
        spool.append("stderr", [b"err ", b"%d\n" % number], 10)
        if number == 500:
            await asyncio.sleep(0.05)
            spool.remove("stderr")
    files = await spool.close()
    out = b"".join(b"out %d\n" % number for number in range(1000))
    err = b"".join(b"err %d\n" % number for number in range(501, 1000))
    directory = tmp_path / "a" / "spool"
    for name, data in (("stdout", out), ("stderr", err)):
        assert (directory / name).read_bytes() == data
        assert (files[name].size_bytes, files[name].sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert files[name].complete
        assert (directory / name).stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert spool.problem is None


async def test_a_spool_that_nothing_is_written_to_leaves_no_trace(spool: FileSpool, tmp_path: Path) -> None:
    assert await spool.close() == {}
    assert list(tmp_path.iterdir()) == []


async def test_fifo_in_place_of_a_spooled_file_cuts_it_without_blocking(spool: FileSpool, tmp_path: Path) -> None:
    path = tmp_path / "a" / "spool" / "stdout"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    spool.append("stdout", [b"x"], 1)
    spool.append("stderr", [b"y"], 1)
    files = await asyncio.wait_for(spool.close(), 30)
    assert (files["stdout"].complete, files["stderr"].complete) == (False, True)
    assert spool.problem is not None
    assert open_spooled(path, 0) is None


async def test_a_full_disk_cuts_a_file_and_nothing_else(
    spool: FileSpool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if offset >= 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: 100 - offset], offset)

    monkeypatch.setattr(os, "pwrite", full)
    spool.append("stdout", [b"x" * 150], 150)
    spool.append("display-1.png", [b"y" * 50], 50)
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    spool.append("stdout", [b"a gap must not be hidden"], 24)
    files = await spool.close()
    assert (tmp_path / "a" / "spool" / "stdout").read_bytes() == b"x" * 100
    assert (files["stdout"].size_bytes, files["stdout"].complete) == (100, False)
    assert files["stdout"].sha256 == hashlib.sha256(b"x" * 100).hexdigest()
    assert files["display-1.png"].complete
    assert spool.problem == "it could not be written: No space left on device"


async def test_the_last_of_a_disk_is_left_to_the_records(spool: FileSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVE_FREE_BYTES", 1 << 60)
    spool.append("stdout", [b"x"], 1)
    files = await spool.close()
    assert (files["stdout"].size_bytes, files["stdout"].complete) == (0, False)
    assert spool.problem == "it could not be written: the disk is almost full"


async def test_what_waits_is_bounded_for_all_spools_together(
    spool: FileSpool, thread: SpoolThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 3000)
    monkeypatch.setattr(module, "FEW_BYTES", 1000)
    other = FileSpool(tmp_path / "other", 1_000_000, thread, unlimited())
    called: list[int] = []
    thread.when_few_wait(lambda: called.append(1))
    spool.append("stdout", [b"x" * 2000], 2000)
    thread.when_few_wait(lambda: called.append(2))
    other.append("stdout", [b"y" * 1000], 1000)
    other.append("stderr", [b"z"], 1)
    spool.append("stdout", [b"x"], 1)
    spool.append("stdout", [b"x"], 1)
    assert called == [1]
    files, others = await spool.close(), await other.close()
    await asyncio.sleep(0.05)
    assert called == [1, 2]
    assert (files["stdout"].size_bytes, files["stdout"].complete) == (2000, False)
    assert (others["stdout"].complete, set(others)) == (True, {"stdout"})
    assert spool.problem == other.problem == "the disk was too slow for all of it"


async def test_trouble_with_what_was_removed_is_no_trouble(spool: FileSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVE_FREE_BYTES", 1 << 60)
    spool.append("stdout", [b"x"], 1)
    await asyncio.sleep(0.05)
    monkeypatch.undo()
    spool.remove("stdout")
    spool.append("stdout", [b"y"], 1)
    files = await spool.close()
    assert files["stdout"].complete
    assert spool.problem is None


# --- with their executions ---


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Any]:
    opened: list[ExecStore] = []

    def make(**traits: Any) -> ExecStore:
        opened.append(ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096, **traits))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


async def finish_with_spool(store: ExecStore, name: str, size: int) -> None:
    execution = replace(QUEUED, id=name)
    log = await accept(store, execution)
    spool = store.executions.spool(execution, "me")
    assert spool is not None
    spool.append("stdout", [b"x" * size], size)
    file = (await spool.close())["stdout"]
    truncated = Truncation(1, spooled=(SpooledOutput("stdout", "text/plain", file.size_bytes, file.sha256),))
    await store.executions.finish(replace(finished(execution), truncated=truncated), "me", log)


def spools(store: ExecStore) -> set[str]:
    return {path.stem for path in store.logs.rglob("*.outputs")}


async def test_a_spooled_output_is_opened_as_it_was_written(open_store: Any) -> None:
    store = open_store()
    await finish_with_spool(store, "exe_1", 5000)
    stored = await store.executions.summary("exe_1")
    (output,) = stored.execution.spooled
    descriptor = await store.executions.open_spooled(stored.execution, output)
    assert os.read(descriptor, 9999) == b"x" * 5000
    os.close(descriptor)
    path = spool_path(store.logs, "ses_1", "exe_1") / "stdout"
    path.write_bytes(b"shorter")
    assert await store.executions.open_spooled(stored.execution, output) is None
    path.unlink()
    assert await store.executions.open_spooled(stored.execution, output) is None
    assert await store.executions.summary("exe_2") is None


async def test_when_there_is_too_much_old_spools_go_before_any_record(open_store: Any) -> None:
    store = open_store(max_bytes=1_000_000)
    for number in range(20):
        await finish_with_spool(store, f"exe_{number:02}", 100_000)
    assert len(await store.executions.list("ses_1", 100)) == 20
    spooled = spools(store)
    assert spooled == {f"exe_{number:02}" for number in range(20 - len(spooled), 20)}
    assert 5 <= len(spooled) <= 10
    oldest = (await store.executions.summary("exe_00")).execution
    assert await store.executions.open_spooled(oldest, oldest.spooled[0]) is None


async def test_a_spool_goes_with_its_execution(open_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(max_age_seconds=1000.0)
    await finish_with_spool(store, "exe_1", 10_000)
    later = time.time() + 2000
    monkeypatch.setattr("time.time", lambda: later)
    store.close()
    store = open_store(max_age_seconds=1000.0)
    await finish_with_spool(store, "exe_2", 10_000)
    assert spools(store) == {"exe_2"}


async def test_one_spool_cannot_drive_all_else_out(open_store: Any) -> None:
    assert open_store(max_bytes=100_000).executions.spool(QUEUED, "owner").max_bytes == 50_000
    assert open_store().executions.spool(QUEUED, "owner").max_bytes == 256 * 1024**2
    assert open_store(max_spool_bytes=0).executions.spool(QUEUED, "owner") is None


DIE = """
import asyncio, os, signal, sys
from dataclasses import replace
from jupyter_exec_ext.models import EndEvent
from jupyter_exec_ext.store.store import ExecStore
from tests.store.test_execution_store import QUEUED, RUNNING, accept, finished
from tests.store.test_spool import finish_with_spool

async def main():
    store = ExecStore(path=sys.argv[1], reserve_bytes=4096)
    await finish_with_spool(store, "done", 1000)
    for name in ("running", "ended"):
        execution = replace(QUEUED, id=name)
        log = await accept(store, execution)
        log.append(RUNNING)
        await log.changed(0)
        spool = store.executions.spool(execution, "me")
        spool.append("stdout", [b"x" * 1000], 1000)
        await spool.close()
        if name == "ended":
            log.add_end(EndEvent(finished(execution)))
            await asyncio.get_running_loop().run_in_executor(None, log.save_rest)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_after_a_kill_no_spool_is_left_that_no_record_names(tmp_path: Path, open_store: Any) -> None:
    killed = subprocess.run([sys.executable, "-c", DIE, str(tmp_path / "store")], check=False)  # noqa: ASYNC221
    assert killed.returncode == -9
    store = open_store()
    assert spools(store) == {"done", "running", "ended"}
    store.recover()
    assert spools(store) == {"done", "ended"}
    stored = await store.executions.summary("done")
    descriptor = await store.executions.open_spooled(stored.execution, stored.execution.spooled[0])
    assert os.read(descriptor, 9999) == b"x" * 1000
    os.close(descriptor)
