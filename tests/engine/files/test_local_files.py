"""Files on disk, where the contract suite cannot see: what may be opened, quotas, what is left behind, changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import resource
import socket
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.files.confinement import (
    DIRECTORY,
    open_directory,
    open_file,
)
from jupyter_exec_ext.engine.files.local_files import LocalFiles
from jupyter_exec_ext.engine.files.remote_files import NOWHERE
from jupyter_exec_ext.engine.ports import FileLimits
from jupyter_exec_ext.errors import (
    Conflict,
    ExecError,
    FileNotFound,
    FilesNotAvailable,
    KernelStartFailed,
    NotAFile,
    OutOfResources,
    QuotaExceeded,
    StorageFull,
)
from jupyter_exec_ext.models import FileInfo
from jupyter_exec_ext.protocol.file_requests import TEMPORARY_PREFIX, path_parts
from jupyter_exec_ext.store.store import ExecStore

SID = "ses_1"
LIMITS = FileLimits(max_file_bytes=1000, max_session_bytes=1500, max_session_files=3)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "work2"  # a name that begins like the root's
    directory.mkdir()
    (directory / "secret").write_bytes(b"outside")
    return directory


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[LocalFiles]:
    made = LocalFiles(tmp_path / "work", LIMITS, max_watched_entries=200, log=logging.getLogger())
    await made.prepare(SID)
    yield made
    made.close()


@pytest.fixture
def root(files: LocalFiles, tmp_path: Path) -> Path:
    del files
    return tmp_path / "work" / SID


async def put(files: LocalFiles, path: str, data: bytes, size: int | None = None) -> FileInfo:
    upload = await files.create(SID, path, size)
    try:
        await upload.write(data)
        return (await upload.commit())[0]
    finally:
        await upload.discard()


async def read(files: LocalFiles, path: str) -> bytes:
    reader = await files.open(SID, path)
    try:
        return b"".join([block async for block in reader.blocks()])
    finally:
        await reader.close()


def plant(root: Path, outside: Path) -> None:
    """Put everything into the session's directory that leads out of it or stops whoever opens it."""
    (root / "sub").mkdir()
    (root / "file").write_bytes(b"inside")
    (root / "sub" / "file").write_bytes(b"inside")
    links: dict[str, str | Path] = {
        "abs": outside / "secret",
        "up": "../../work2/secret",
        "dir": outside,
        "sub/dir": "../../../work2",
        "loop": "loop",
        "proc": "/proc/self/root",
        "self": ".",
        "ok": "file",
        "dangling": "../nothing",
        "dev": "/dev/zero",
        "fd": "/proc/self/fd",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.link(outside / "secret", root / "hard")
    os.mkfifo(root / "fifo")
    os.mkfifo(root / "sub" / "fifo")
    if os.geteuid() == 0:
        os.mknod(root / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
    os.mkdir(os.fsencode(root) + b"/\xff\xfe")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe/file")).write_bytes(b"inside")


def corpus(outside: Path) -> list[str]:
    """Return more than 500 names, most of which must lead nowhere."""
    ends = ["file", "secret", "passwd", "fifo", ""]
    starts = ["abs", "up", "dir", "sub/dir", "loop", "proc", "self", "ok", "dangling", "dev", "fd", "hard", "fifo"]
    starts += ["sub/fifo", "device", "sock", "\udcff\udcfe", "file", "sub", "nothing"]
    names = [*starts, *(f"{start}/{end}" for start in starts for end in ends)]
    dots = ["..", "../..", "../../..", "sub/..", "sub/../..", ".", "./..", "...", "....//", "..\\..", "%2e%2e", "..%2f"]
    names += [f"{dot}/{end}" for dot in dots for end in ["file", "work2/secret", "etc/passwd", "", "."]]
    names += [f"{'../' * n}{end}" for n in range(1, 40) for end in ("etc/passwd", "work2/secret", "ses_1/file")]
    names += [f"{outside}/secret", f"/{outside}/secret", f"//{outside}/secret", "/etc/passwd", "/", "//", "///x", "~/x"]
    names += [f"file{c}" for c in map(chr, range(32))] + [f"{c}/file" for c in map(chr, range(32))]
    names += [f"file\0{end}" for end in ends] + [f"\0{start}" for start in starts]
    names += ["x" * n for n in (255, 256, 1000, 4000, 5000, 100_000)] + ["ü" * n for n in (127, 128, 2000)]
    names += ["/".join(["a"] * n) for n in (63, 64, 65, 1000)] + ["/".join(["x" * 255] * n) for n in (15, 16, 17)]
    names += [
        f"{a}{b}{c}" for a in ("", "/", "./") for b in ("self", "dir", "sub") for c in ("/../file", "//file", "/.")
    ]
    names += [f"proc/{end}" for end in ("etc/passwd", "root/x", "proc/1/environ")] + ["fd/0", "fd/1", "dev/null"]
    names += [
        "C:\\x",
        "\\\\host\\share",
        "file:secret",
        "CON",
        "a:b",
        "file ",
        " file",
        "file.",
        "\u202efile",
        "\ufeff",
    ]
    names += [f"{c * 3}/file" for c in "äß日🙂\u0301\u200b"] + [f"{TEMPORARY_PREFIX}x", f"sub/{TEMPORARY_PREFIX}x"]
    names += [f"{start}/{'../' * n}work2/secret" for start in ("sub", "dir", "self", "proc") for n in range(1, 12)]
    names += [f"sub/{start}" for start in starts] + [f"self/{start}" for start in starts]
    return names


def test_open_file_with_any_parts_never_leaves_the_directory(tmp_path: Path, outside: Path) -> None:
    """The parts include those that no path of ours has."""
    root = tmp_path / "work"
    root.mkdir()
    plant(root, outside)
    descriptor = os.open(root, DIRECTORY)
    opened = 0
    for name in corpus(outside):
        try:
            file, _ = open_file(descriptor, name.split("/"))
        except OSError:
            continue
        assert os.read(file, 100) == b"inside", name
        os.close(file)
        opened += 1
    os.close(descriptor)
    assert opened >= 2


def test_open_file_names_a_link_on_the_way(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "link").symlink_to(outside)
    descriptor = os.open(root, DIRECTORY)
    with pytest.raises(OSError, match="symbolic links"):
        open_file(descriptor, ["link", "secret"])
    os.close(descriptor)


async def test_no_name_reads_writes_or_deletes_anything_outside_nor_hangs(
    files: LocalFiles, root: Path, outside: Path
) -> None:
    plant(root, outside)
    names = corpus(outside)
    assert len(set(names)) >= 500
    statuses = set()
    parent = {path.name for path in root.parent.parent.iterdir()}
    for name in names:
        began = time.monotonic()
        try:
            assert await read(files, name) == b"inside", name
        except ExecError as error:
            statuses.add(error.status)
        for act in (files.digest(SID, name), files.list_files(SID, name), put(files, name, b"inside")):
            try:
                await act
            except ExecError as error:
                statuses.add(error.status)
        try:
            if name not in ("file", "sub/file"):
                await files.delete(SID, name)
        except ExecError as error:
            statuses.add(error.status)
        assert time.monotonic() - began < 5, name
    assert statuses == {400, 404, 409}
    assert (outside / "secret").read_bytes() == b"outside"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert {path.name for path in root.parent.parent.iterdir()} == parent
    assert [path.name for path in root.parent.iterdir()] == [SID]
    assert not [path for path in root.rglob("*") if path.name.startswith(TEMPORARY_PREFIX)]


async def test_only_what_can_be_opened_is_listed(files: LocalFiles, root: Path, outside: Path) -> None:
    plant(root, outside)
    os.utime(root / "file", (10**12, 10**12))
    found = await files.list_files(SID)
    assert [info.path for info in found.files] == ["file", "sub/file"]
    assert found.files[0].mtime.endswith("Z")
    with pytest.raises(NotAFile):
        await files.list_files(SID, "dir")
    with pytest.raises(FileNotFound):
        await files.list_files(SID, "nothing")


async def test_a_directory_for_which_there_is_no_descriptor_is_refused_as_such(files: LocalFiles) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)  # the lowest that there is
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limit[1]))
    try:
        with pytest.raises(OutOfResources, match="too many open files"):
            await files.prepare("ses_another")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


async def test_a_link_in_place_of_the_sessions_directory_leads_nowhere(
    files: LocalFiles, root: Path, outside: Path
) -> None:
    root.rmdir()
    root.symlink_to(outside)
    for act in (files.open(SID, "secret"), files.list_files(SID), put(files, "x", b""), files.delete(SID, "secret")):
        with pytest.raises((NotAFile, KernelStartFailed)):
            await act
    with pytest.raises(KernelStartFailed):
        await files.prepare(SID)
    assert await files.changes(SID) is None
    await files.remove(SID)
    assert not root.is_symlink()
    assert (outside / "secret").exists()


def test_a_directory_is_made_relative_to_the_one_before(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(outside)
    descriptor = os.open(tmp_path, DIRECTORY)
    os.close(open_directory(descriptor, ("a", "b", "c"), make=True))
    assert (tmp_path / "a" / "b" / "c").is_dir()
    with pytest.raises(OSError, match="link"):
        open_directory(descriptor, ("a", "link", "c"), make=True)
    os.close(descriptor)
    assert not (outside / "c").exists()


# --- uploads ---


async def test_an_upload_is_there_as_a_whole_or_not_at_all(files: LocalFiles, root: Path) -> None:
    await put(files, "a", b"old")
    upload = await files.create(SID, "a", None)
    await upload.write(b"new")
    assert await read(files, "a") == b"old"
    assert [info.path for info in (await files.list_files(SID)).files] == ["a"]
    info, created = await upload.commit()
    assert (info.sha256, created) == (hashlib.sha256(b"new").hexdigest(), False)
    assert await read(files, "a") == b"new"
    upload = await files.create(SID, "a", None)
    await upload.write(b"newer")
    await upload.discard()
    assert await read(files, "a") == b"new"
    assert os.listdir(root) == ["a"]


async def test_quotas_name_their_limit_and_value(files: LocalFiles) -> None:
    with pytest.raises(QuotaExceeded, match=r"1000 bytes \(max_file_bytes\)"):
        await files.create(SID, "a", 1001)
    with pytest.raises(QuotaExceeded, match="max_file_bytes"):
        await put(files, "a", b"x" * 1001)
    await put(files, "a", b"x" * 1000)
    with pytest.raises(QuotaExceeded, match=r"1500 bytes together \(max_session_bytes\)"):
        await put(files, "b", b"x" * 501)
    await put(files, "a", b"y" * 900)  # in place of the old one
    await put(files, "b", b"x" * 600)
    await put(files, "c", b"")
    with pytest.raises(QuotaExceeded, match=r"at most 3 files \(max_session_files\)"):
        await put(files, "d", b"")
    await files.delete(SID, "c")
    await put(files, "d", b"")


async def test_uploads_under_way_count(files: LocalFiles) -> None:
    first = await files.create(SID, "a", None)
    await first.write(b"x" * 800)
    second = await files.create(SID, "b", None)
    with pytest.raises(QuotaExceeded, match="max_session_bytes"):
        await second.write(b"x" * 800)
    await second.discard()
    with pytest.raises(QuotaExceeded, match="max_session_bytes"):
        await files.create(SID, "c", 800)
    await first.commit()
    await put(files, "c", b"x" * 700)


async def test_what_a_killed_server_left_behind_goes(files: LocalFiles, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / f"{TEMPORARY_PREFIX}old").write_bytes(b"x" * 5000)
    await put(files, "a", b"1")
    assert sorted(path.name for path in root.rglob("*")) == ["a", "sub"]


async def test_what_is_in_the_way_is_said(files: LocalFiles, root: Path) -> None:
    (root / "dir").mkdir()
    await put(files, "a", b"")
    for path in ("dir", "a/b"):
        with pytest.raises(NotAFile):
            await put(files, path, b"")
    with pytest.raises(NotAFile):
        await files.delete(SID, "dir")


async def test_a_file_that_shrinks_is_not_served_as_if_it_had_not(files: LocalFiles, root: Path) -> None:
    (root / "big").write_bytes(b"x" * 3 * 2**20)
    reader = await files.open(SID, "big")
    os.truncate(root / "big", 2**20)
    with pytest.raises(Conflict, match="shorter"):
        _ = [block async for block in reader.blocks()]
    await reader.close()


# --- changes ---


async def changed(files: LocalFiles) -> list[str]:
    event = await files.changes(SID)
    return [] if event is None else [info.path for info in event.files]


async def test_changes_are_what_code_did_since_the_last_look(files: LocalFiles, root: Path) -> None:
    assert await changed(files) == []
    (root / "a").write_text("1")
    (root / "sub").mkdir()
    (root / "sub" / "b").write_text("1")
    assert await changed(files) == ["a", "sub/b"]
    assert await changed(files) == []
    (root / "a").write_text("22")
    (root / "sub" / "b").unlink()
    assert await changed(files) == ["a"]
    (root / "c").write_text("1")
    os.replace(root / "c", root / "a")
    assert await changed(files) == ["a"]


async def test_what_the_api_wrote_is_no_change_of_code(files: LocalFiles, root: Path) -> None:
    await put(files, "a", b"1")
    assert await changed(files) == []
    await put(files, "a", b"22")
    (root / "b").write_text("1")
    assert await changed(files) == ["b"]
    await files.delete(SID, "a")
    assert await changed(files) == []
    (root / "a").write_text("1")
    assert await changed(files) == ["a"]


async def test_many_files_are_named_up_to_a_bound_and_a_huge_tree_is_not_watched(files: LocalFiles, root: Path) -> None:
    for number in range(150):
        (root / f"{number:03}").touch()
    assert await changed(files) == [f"{number:03}" for number in range(150)]
    (root / "077").write_text("x")
    assert await changed(files) == ["077"]
    for number in range(150, 300):
        (root / f"{number:03}").touch()
    assert await changed(files) == []
    for number in range(250):
        (root / f"{number:03}").unlink()
    assert await changed(files) == []
    (root / "new").touch()
    assert await changed(files) == ["new"]


async def test_what_a_record_cannot_name_is_counted(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "w", LIMITS, max_watched_entries=5000, log=logging.getLogger())
    await files.prepare(SID)
    for number in range(1200):
        (tmp_path / "w" / SID / f"{number:04}").touch()
    event = await files.changes(SID)
    files.close()
    assert event is not None
    assert (len(event.files), event.omitted) == (1000, 200)


# --- the directory's life ---


async def test_an_ended_session_keeps_its_files_and_no_empty_directory(files: LocalFiles, root: Path) -> None:
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(root.parent.stat().st_mode) == 0o700
    (root / "a").write_text("1")
    await files.session_ended(SID)
    assert await read(files, "a") == b"1"
    await files.remove(SID)
    await files.remove(SID)
    assert not root.exists()
    assert (await files.list_files(SID)).files == ()
    await files.prepare("ses_2")
    await files.session_ended("ses_2")
    assert list(root.parent.iterdir()) == []


async def test_sessions_without_a_directory_say_so() -> None:
    none = NOWHERE
    assert await none.prepare(SID) is None  # type: ignore[func-returns-value]
    assert await none.changes(SID) is None  # type: ignore[func-returns-value]
    for act in (none.list_files(SID), none.open(SID, "a"), none.create(SID, "a", 1), none.delete(SID, "a")):
        with pytest.raises(FilesNotAvailable, match="session_directories"):
            await act


async def test_reading_holds_nobody_up(files: LocalFiles, root: Path) -> None:
    """Something that never comes does not keep the event loop, nor the other files, waiting."""
    os.mkfifo(root / "fifo")
    (root / "a").write_text("1")
    acts = [files.open(SID, "fifo") for _ in range(50)]
    outcomes = await asyncio.wait_for(asyncio.gather(*acts, return_exceptions=True), 5)
    assert all(isinstance(outcome, NotAFile) for outcome in outcomes)
    assert await asyncio.wait_for(read(files, "a"), 5) == b"1"
    assert path_parts("a") == ("a",)


# --- a disk that is almost full ---


@pytest.mark.parametrize(
    ("free", "announced", "sent", "is_stored"),
    [
        (10_000_000, 1000, 1000, True),
        (5_001_000, 1000, 1000, True),  # to the last byte
        (5_000_999, 1000, 1000, False),
        (5_000_999, None, 1000, False),  # its size is known only when it has come
        (5_500_000, None, 2_000_000, False),  # the second block is too much
        (0, 0, 0, False),
        (0, None, 1, False),
    ],
)
async def test_upload_leaves_the_reserved_space_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, announced: int | None, sent: int, is_stored: bool
) -> None:
    limits = FileLimits()
    files = LocalFiles(
        tmp_path / "w", limits, max_watched_entries=0, log=logging.getLogger(), keep_free_bytes=5_000_000
    )
    await files.prepare(SID)
    true = os.fstatvfs

    def almost_full(descriptor: int) -> os.statvfs_result:
        """Return what a disk says on which so much is free, and less with each byte that is written."""
        written = sum(path.stat().st_size for path in (tmp_path / "w" / SID).iterdir())
        values = list(true(descriptor))
        values[1], values[4] = 1, free - written
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "fstatvfs", almost_full)
    try:
        writer = await files.create(SID, "a", announced)
        for start in range(0, sent, 500_000):
            await writer.write(b"x" * min(500_000, sent - start))
        await writer.commit()
    except StorageFull:
        assert not is_stored
        if "writer" in locals():
            await writer.discard()
    else:
        assert is_stored
    found = [(path.name, path.stat().st_size) for path in (tmp_path / "w" / SID).iterdir()]
    assert found == ([("a", sent)] if is_stored else [])
    files.close()


def test_store_on_the_same_disk_has_its_space_kept_free(tmp_path: Path) -> None:
    store = ExecStore(path=str(tmp_path / "store"), reserve_bytes=8192)
    assert store.kept_free_at(tmp_path / "not" / "there" / "yet") == 64 * 1024**2 + 8192
    assert store.kept_free_at(Path("/proc")) == 0
    store.close()


async def test_upload_whose_place_cannot_be_read_leaves_no_descriptor_open(files: LocalFiles) -> None:
    await put(files, "sub/a", b"1")
    before = os.listdir("/dev/fd")
    for _ in range(3):
        # The name is too long for the file system, which no permission of this user changes.
        with pytest.raises(OSError, match="too long"):
            files._open_target(SID, ("sub", "x" * 300), None)
        with pytest.raises(NotAFile):
            files._open_target(SID, ("sub",), None)
    assert len(os.listdir("/dev/fd")) == len(before)
