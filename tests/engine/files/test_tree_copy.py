"""Copies of directory trees for checkpoints: what is copied, what is shared, and what hostile trees cannot do."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.engine.files import tree_copy
from jupyter_exec_ext.engine.files.checkpoint_files import CheckpointFiles
from jupyter_exec_ext.engine.files.confinement import DIRECTORY
from jupyter_exec_ext.engine.files.tree_copy import TreeCopy
from jupyter_exec_ext.errors import CheckpointFailed

MEGABYTE = 1024**2


def copy(source: Path, target: Path, max_bytes: int = MEGABYTE) -> None:
    target.mkdir()
    descriptors = [os.open(path, DIRECTORY) for path in (source, target)]
    try:
        TreeCopy(max_bytes).copy(*descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    return path


def test_files_directories_modes_and_times_are_copied(source: Path, tmp_path: Path) -> None:
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "file").write_bytes(b"content")
    os.chmod(source / "deep" / "er" / "file", 0o640)
    os.utime(source / "deep", ns=(1_000, 2_000))
    copy(source, tmp_path / "copy")
    copied = tmp_path / "copy" / "deep" / "er" / "file"
    assert copied.read_bytes() == b"content"
    assert stat.S_IMODE(copied.stat().st_mode) == 0o640
    assert (tmp_path / "copy" / "deep").stat().st_mtime_ns == 2_000


def test_links_are_copied_and_not_followed(source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (source / "link").symlink_to(tmp_path / "outside")
    (source / "dangling").symlink_to("nowhere")
    copy(source, tmp_path / "copy")
    assert os.readlink(tmp_path / "copy" / "link") == str(tmp_path / "outside")
    assert os.readlink(tmp_path / "copy" / "dangling") == "nowhere"


def test_second_names_stay_second_names_and_no_copy_shares_a_file_with_its_source(source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("outside")
    os.link(tmp_path / "outside", source / "of-outside")
    (source / "a").mkdir()
    (source / "a" / "one").write_text("one")
    os.link(source / "a" / "one", source / "two")
    copy(source, tmp_path / "copy")
    (tmp_path / "copy" / "two").write_text("changed")
    assert (tmp_path / "copy" / "a" / "one").read_text() == "changed"
    (tmp_path / "copy" / "of-outside").write_text("changed")
    assert ((tmp_path / "outside").read_text(), (source / "two").read_text()) == ("outside", "one")


def test_what_is_neither_file_directory_nor_link_is_left_out(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "fifo")
    (source / "file").write_text("")
    copy(source, tmp_path / "copy")
    assert os.listdir(tmp_path / "copy") == ["file"]


def test_more_bytes_than_may_be_copied_are_refused(source: Path, tmp_path: Path) -> None:
    (source / "sparse").touch()
    os.truncate(source / "sparse", 1024**4)
    with pytest.raises(CheckpointFailed, match="max_checkpoint_file_bytes"):
        copy(source, tmp_path / "copy")


@pytest.mark.parametrize("limit", ["_MAX_ENTRIES", "_MAX_DEPTH"])
def test_more_entries_or_levels_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    (source / "a" / "b" / "c" / "d").mkdir(parents=True)
    monkeypatch.setattr(tree_copy, limit, 3)
    with pytest.raises(CheckpointFailed, match="more than 3"):
        copy(source, tmp_path / "copy")


async def test_files_come_back_into_the_same_directory(tmp_path: Path) -> None:
    files, directory = CheckpointFiles(tmp_path, MEGABYTE), tmp_path / "ses_1"
    (directory / "d").mkdir(parents=True)
    (directory / "d" / "kept").write_text("before")
    await files.keep("ses_1", "chk_1")
    (directory / "d" / "kept").write_text("after")
    (directory / "new").write_text("new")
    inode = directory.stat().st_ino
    for _ in range(2):
        staged = await files.stage("ses_1", "chk_1")
        assert staged is not None
        await staged.swap()
        await staged.discard()
        assert (directory / "d" / "kept").read_text() == "before"
        assert os.listdir(directory) == ["d"]
    assert directory.stat().st_ino == inode
    await files.remove("ses_1", "chk_1")
    assert os.listdir(tmp_path / ".checkpoints" / "ses_1") == []
    await files.remove_all("ses_1")
    assert os.listdir(tmp_path / ".checkpoints") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may rename every directory")
async def test_directories_that_may_not_be_written_come_back(tmp_path: Path) -> None:
    await _return_with_read_only_directory(tmp_path)


async def test_a_return_that_fails_half_way_leaves_the_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, directory = CheckpointFiles(tmp_path, MEGABYTE), tmp_path / "ses_1"
    directory.mkdir()
    (directory / "a").write_text("before")
    await files.keep("ses_1", "chk_1")
    (directory / "a").write_text("after")
    (directory / "b").write_text("new")
    staged = await files.stage("ses_1", "chk_1")
    assert staged is not None
    rename, calls = os.rename, 0

    def fail_once(*args: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:  # both files are aside, and the first of the checkpoint's is on its way
            raise OSError(errno.EIO, "broken")
        rename(*args, **options)

    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(CheckpointFailed, match="broken"):
        await staged.swap()
    assert {path.name: path.read_text() for path in directory.iterdir()} == {"a": "after", "b": "new"}


async def _return_with_read_only_directory(tmp_path: Path) -> None:
    files, directory = CheckpointFiles(tmp_path, MEGABYTE), tmp_path / "ses_1"
    (directory / "d").mkdir(parents=True)
    (directory / "d" / "f").write_text("kept")
    (directory / "d").chmod(0o555)
    await files.keep("ses_1", "chk_1")
    staged = await files.stage("ses_1", "chk_1")
    assert staged is not None
    await staged.swap()
    assert (directory / "d" / "f").read_text() == "kept"
    assert stat.S_IMODE((directory / "d").stat().st_mode) == 0o555


async def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, 3)
    (tmp_path / "ses_1").mkdir()
    (tmp_path / "ses_1" / "large").write_text("four")
    with pytest.raises(CheckpointFailed, match="more than 3 bytes"):
        await files.keep("ses_1", "chk_1")
    assert os.listdir(tmp_path / ".checkpoints" / "ses_1") == []


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Path]:
    """A file system whose files can share their blocks."""
    image, place = tmp_path / "image", tmp_path / "mounted"
    image.touch()
    os.truncate(image, 320 * MEGABYTE)
    place.mkdir()
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.needs("file system that shares blocks")
def test_where_files_can_share_their_blocks_nothing_is_copied(sharing: Path) -> None:
    (sharing / "source").mkdir()
    (sharing / "source" / "large").write_bytes(os.urandom(32 * MEGABYTE))
    os.sync()
    before = os.statvfs(sharing).f_bavail
    copy(sharing / "source", sharing / "copy", max_bytes=0)
    os.sync()
    assert (before - os.statvfs(sharing).f_bavail) * os.statvfs(sharing).f_frsize < MEGABYTE
    with (sharing / "copy" / "large").open("r+b") as copied:
        copied.write(b"changed")
    assert (sharing / "source" / "large").read_bytes()[:7] != b"changed"
