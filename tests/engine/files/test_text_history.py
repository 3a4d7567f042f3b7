"""Texts of changed files: a change is shown with the texts that it had in truth, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.files.directory_scan import ChangeWatch, mtime_of
from jupyter_exec_ext.engine.files.text_history import MAX_TEXT_BYTES, TextHistory, Version
from jupyter_exec_ext.models import FileChange


@pytest.fixture
def watch(tmp_path: Path) -> ChangeWatch:
    return ChangeWatch(lambda: os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY), 1000)


def write(path: Path, text: str, at: int) -> str:
    """Write a file with a time of its own, and return that time as records have it."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    os.utime(path, (at, at))
    return mtime_of(path.stat())


async def test_a_change_has_the_text_before_and_after(watch: ChangeWatch, tmp_path: Path) -> None:
    first = write(tmp_path / "sub" / "a.txt", "one\n", 1)
    await watch.changes()
    second = write(tmp_path / "sub" / "a.txt", "two\n", 2)
    await watch.changes()
    await watch.changes()
    assert watch.texts.change("sub/a.txt", first) == FileChange("sub/a.txt", None, "one\n")
    assert watch.texts.change("sub/a.txt", second) == FileChange("sub/a.txt", "one\n", "two\n")
    assert watch.texts.change("sub/a.txt", "") == FileChange("sub/a.txt", "one\n", "two\n")
    assert watch.texts.change("sub/a.txt", "2000-01-01T00:00:00.000Z") is None


async def test_an_uploaded_file_is_the_text_before_the_first_run(watch: ChangeWatch, tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "uploaded", 1)
    watch.note("a.txt", (tmp_path / "a.txt").stat())
    await watch.keep_text("a.txt", (tmp_path / "a.txt").stat())
    write(tmp_path / "a.txt", "changed", 2)
    await watch.changes()
    assert watch.texts.change("a.txt", "") == FileChange("a.txt", "uploaded", "changed")
    watch.note("a.txt", None)
    assert watch.texts.change("a.txt", "") is None


async def test_a_file_that_was_removed_and_made_again_is_new(watch: ChangeWatch, tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one", 1)
    await watch.changes()
    (tmp_path / "a.txt").unlink()
    await watch.changes()
    write(tmp_path / "a.txt", "two", 2)
    await watch.changes()
    assert watch.texts.change("a.txt", "") == FileChange("a.txt", None, "two")


@pytest.mark.parametrize("other", ["x" * (MAX_TEXT_BYTES + 1), "a\0b", "\udcff"], ids=["large", "NUL", "not UTF-8"])
async def test_over_a_version_without_a_text_no_change_is_shown(watch: ChangeWatch, tmp_path: Path, other: str) -> None:
    write(tmp_path / "a.txt", "one", 1)
    await watch.changes()
    write(tmp_path / "a.txt", other, 2)
    await watch.changes()
    assert watch.texts.change("a.txt", "") is None
    write(tmp_path / "a.txt", "three", 3)
    await watch.changes()
    assert watch.texts.change("a.txt", "") is None  # what was there before it is not known
    write(tmp_path / "a.txt", "four", 4)
    await watch.changes()
    assert watch.texts.change("a.txt", "") == FileChange("a.txt", "three", "four")


async def test_of_many_changed_files_the_first_have_texts_and_the_others_no_wrong_ones(
    watch: ChangeWatch, tmp_path: Path
) -> None:
    names = [f"{number:02}.txt" for number in range(25)]
    for at in (1, 2):
        for name in names:
            write(tmp_path / name, f"{at}", at)
        await watch.changes()
    found = [watch.texts.change(name, "") for name in names]
    assert found == [*(FileChange(name, "1", "2") for name in names[:20]), *[None] * 5]


async def test_a_link_that_takes_the_place_of_a_file_is_not_read(watch: ChangeWatch, tmp_path: Path) -> None:
    write(tmp_path / "secret", "secret", 1)
    found = (tmp_path / "secret").stat()
    (tmp_path / "a.txt").symlink_to(tmp_path / "secret")
    await watch.keep_text("a.txt", found)
    assert watch.texts.change("a.txt", "") is None


def test_what_is_kept_has_a_bound_and_the_oldest_goes_first() -> None:
    history = TextHistory()
    for number in range(30):
        history.add(f"{number}", Version("", "x" * MAX_TEXT_BYTES, True))
    kept = [number for number in range(30) if history.change(f"{number}", "")]
    assert kept == list(range(15, 30))
    for number in range(50):
        history.add("29", Version(f"{number}", "y", False))
    assert history.change("29", "39") is None
    assert history.change("29", "41") == FileChange("29", "y", "y")
    history.clear()
    assert history.change("29", "") is None


def test_many_empty_files_have_a_bound_as_well() -> None:
    history = TextHistory()
    for number in range(10_000):
        history.add(f"{number}", Version("", "", True))
    assert sum(history.change(f"{number}", "") is not None for number in range(10_000)) < 6000
