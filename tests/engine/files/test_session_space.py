"""Space of a session: packages count in bytes and are in no list, and they go when the session ends."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from jupyter_exec_ext.engine.files.directory_scan import PACKAGES_DIRECTORY
from jupyter_exec_ext.engine.files.local_files import LocalFiles
from jupyter_exec_ext.engine.files.session_space import remove_unused, require_space
from jupyter_exec_ext.engine.ports import NO_LIMITS, FileLimits
from jupyter_exec_ext.errors import QuotaExceeded


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session with 100 bytes of packages in two files, and 10 bytes of its own."""
    directory = tmp_path / "ses_a"
    (directory / PACKAGES_DIRECTORY / "lib").mkdir(parents=True)
    for name in ("one", "two"):
        (directory / PACKAGES_DIRECTORY / "lib" / name).write_bytes(bytes(50))
    (directory / "own").write_bytes(bytes(10))
    return directory


def test_packages_count_against_the_limit(session: Path) -> None:
    require_space(session, 90, 200)
    with pytest.raises(QuotaExceeded, match="91 bytes, and the session has 110 of at most 200"):
        require_space(session, 91, 200)


async def test_packages_are_in_no_list_and_count_in_bytes_but_not_as_files(session: Path) -> None:
    log = logging.getLogger("test")
    files = LocalFiles(session.parent, NO_LIMITS, max_watched_entries=10, log=log)
    try:
        assert [each.path for each in (await files.list_files("ses_a")).files] == ["own"]
        upload = await files.create("ses_a", "more", 5, FileLimits(max_session_files=2))
        await upload.discard()
        with pytest.raises(QuotaExceeded, match="max_session_bytes"):
            await files.create("ses_a", "more", 5, FileLimits(max_session_bytes=112))
    finally:
        files.close()


@pytest.mark.parametrize("has_files", [True, False])
def test_packages_go_at_the_end_and_files_stay(session: Path, has_files: bool) -> None:
    if not has_files:
        (session / "own").unlink()
    remove_unused(session)
    assert session.exists() == has_files
    assert not (session / PACKAGES_DIRECTORY).exists()


def test_link_in_the_place_of_packages_is_removed_and_not_followed(session: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    other = tmp_path / "ses_b"
    other.mkdir()
    (other / PACKAGES_DIRECTORY).symlink_to(target)
    remove_unused(other)
    assert (target / "kept").exists()
    assert not other.exists()
