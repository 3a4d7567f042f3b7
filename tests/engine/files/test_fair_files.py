"""Hashing and walking: whatever one session has, another's files are read without delay."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.files import local_files as module
from jupyter_exec_ext.engine.files.local_files import LocalFiles
from jupyter_exec_ext.engine.ports import NO_LIMITS, FileLimits
from jupyter_exec_ext.engine.sessions import file_service
from jupyter_exec_ext.engine.sessions.file_service import FileService
from jupyter_exec_ext.errors import Conflict, QuotaExceeded

HOSTILE, OTHER = "ses_hostile", "ses_other"
GIB = 1024**3
MAX_WAIT_SECONDS = 1.0  # 12 to 20 s before; this machine may be busy with other tests


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[LocalFiles]:
    made = LocalFiles(tmp_path / "work", NO_LIMITS, max_watched_entries=200, log=logging.getLogger())
    for session in (HOSTILE, OTHER):
        await made.prepare(session)
    (tmp_path / "work" / OTHER / "small").write_bytes(b"x" * 100_000)
    yield made
    made.close()


def make_sparse(directory: Path, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        with (directory / f"sparse{number}").open("wb") as file:
            file.truncate(size)


def make_written(directory: Path) -> None:
    (directory / "a").write_bytes(b"x" * 100_000_000)


def make_wide(directory: Path, entries: int) -> None:
    for number in range(entries):
        os.close(os.open(directory / f"f{number}", os.O_CREAT | os.O_WRONLY))


def make_deep(directory: Path, chains: int) -> None:
    for chain in range(chains):
        path = directory / f"d{chain}"
        for _ in range(20):
            path = path / "d"
        path.mkdir(parents=True)
        (path / "file").touch()


# What a hostile session has, and what is asked of it many times at once.
Ask = Callable[[LocalFiles], Awaitable[object]]
HOSTILE_READS: dict[str, tuple[Callable[[Path], None], Ask]] = {
    "one sparse file": (lambda d: make_sparse(d, 7 * GIB), lambda f: f.digest(HOSTILE, "sparse0")),
    "written file": (make_written, lambda f: f.digest(HOSTILE, "a")),
    "sparse files": (lambda d: make_sparse(d, *[2 * GIB] * 8), lambda f: f.digest(HOSTILE, "sparse3")),
    "wide directory": (lambda d: make_wide(d, 20_000), lambda f: f.list_files(HOSTILE)),
    "deep directories": (lambda d: make_deep(d, 500), lambda f: f.list_files(HOSTILE)),
    "measured for an upload": (lambda d: make_wide(d, 20_000), lambda f: upload(f, HOSTILE)),
}


async def upload(files: LocalFiles, session: str) -> None:
    limits = FileLimits(max_session_bytes=10**9)
    writer = await files.create(session, "new", 1, limits)
    await writer.discard()


@pytest.mark.parametrize("kind", HOSTILE_READS)
async def test_others_do_not_wait_for_hostile_reads(files: LocalFiles, tmp_path: Path, kind: str) -> None:
    make, ask = HOSTILE_READS[kind]
    make(tmp_path / "work" / HOSTILE)
    hostile = [asyncio.ensure_future(ask(files)) for _ in range(20)]
    await asyncio.sleep(0.1)
    waits = []
    for _ in range(5):
        began = time.monotonic()
        assert await files.digest(OTHER, "small") == hashlib.sha256(b"x" * 100_000).hexdigest()
        assert len((await files.list_files(OTHER)).files) == 1
        await upload(files, OTHER)
        waits.append(time.monotonic() - began)
    files._stopping.set()
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)
    assert sorted(waits)[2] <= MAX_WAIT_SECONDS, waits
    assert not files._hash_turns._taken
    assert not files._walk_turns._taken


@pytest.mark.parametrize("size", [0, 1, 16 * 1024**2 - 1, 16 * 1024**2, 16 * 1024**2 + 1, 40 * 1024**2])
async def test_digest_in_slices_is_that_of_the_whole(files: LocalFiles, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "work" / OTHER / "a").write_bytes(data)
    assert await files.digest(OTHER, "a") == hashlib.sha256(data).hexdigest()


async def test_file_beyond_the_bound_is_not_hashed(files: LocalFiles, tmp_path: Path) -> None:
    make_sparse(tmp_path / "work" / HOSTILE, module.MAX_HASHED_BYTES + 1, 8 * 1024**4)
    for name in ("sparse0", "sparse1"):
        with pytest.raises(QuotaExceeded, match="without its digest"):
            await files.digest(HOSTILE, name)


async def test_hashing_that_nobody_waits_for_is_given_up(files: LocalFiles, tmp_path: Path) -> None:
    make_sparse(tmp_path / "work" / HOSTILE, 7 * GIB)
    asked = 0

    def wanted() -> bool:
        nonlocal asked
        asked += 1
        return asked < 3

    with pytest.raises(Conflict, match="nobody waits"):
        await files.digest(HOSTILE, "sparse0", wanted)
    assert asked == 3


async def test_list_hashes_a_bounded_number_of_bytes(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_service, "MAX_LISTED_HASHED_BYTES", 250)
    for name, size in (("a", 100), ("b", 200), ("c", 100), ("d", 100), ("e", 50)):
        (tmp_path / "work" / OTHER / name).write_bytes(b"x" * size)
    (tmp_path / "work" / OTHER / "small").unlink()

    class Sessions:
        async def get(self, *_: object) -> object:
            return None

        def files_of(self, _: object) -> LocalFiles:
            return files

    verbs = FileService(Sessions(), Sessions(), None)  # type: ignore[arg-type]  # all that listing needs
    found = await verbs.list(None, OTHER, sha256=True, is_wanted=lambda: True)  # type: ignore[arg-type]
    assert [(info.path, info.sha256 is not None) for info in found.files] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("d", False),
        ("e", True),
    ]
    found = await verbs.list(None, OTHER, sha256=True, is_wanted=lambda: False)  # type: ignore[arg-type]
    assert found.files == ()


async def test_descriptors_are_closed_however_hashing_ends(files: LocalFiles, tmp_path: Path) -> None:
    make_sparse(tmp_path / "work" / HOSTILE, 4 * GIB, module.MAX_HASHED_BYTES + 1)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        task = asyncio.ensure_future(files.digest(HOSTILE, "sparse0"))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, files.digest(HOSTILE, "sparse1"), return_exceptions=True)
    assert len(os.listdir("/proc/self/fd")) == before
