"""Errors of local files: plain words for people, and the fields of Python's own errors for programs."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from jupyter_exec_ext.cli.messages import error_text
from jupyter_exec_ext.client.local_files import FileSource, FileTarget
from jupyter_exec_ext.client.server_profiles import _cause


def upload_of(path: Path) -> OSError:
    with pytest.raises(OSError, match="cannot be uploaded") as caught:
        FileSource(path).rewind()
    return caught.value


def download_to(path: Path) -> OSError:
    with pytest.raises(OSError, match="cannot be written") as caught:
        FileTarget(path).begin()
    return caught.value


def test_error_of_an_upload_has_kind_number_cause_and_path(tmp_path: Path) -> None:
    missing, directory = upload_of(tmp_path / "missing"), upload_of(tmp_path)
    assert isinstance(missing, FileNotFoundError) and isinstance(directory, IsADirectoryError)
    assert (missing.errno, missing.strerror) == (errno.ENOENT, "No such file or directory")
    assert (missing.filename, directory.filename) == (str(tmp_path / "missing"), str(tmp_path))


def test_error_of_a_download_names_the_path_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, kind in ((tmp_path / "none" / "out", FileNotFoundError), (tmp_path / "file" / "out", NotADirectoryError)):
        error = download_to(path)
        assert isinstance(error, kind) and type(error).__name__ == kind.__name__
        assert (error.filename, bool(error.errno), bool(error.strerror)) == (str(path), True, True)


def test_error_text_stays_plain(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out"
    for error in (download_to(path), pickle.loads(pickle.dumps(download_to(path)))):
        words = f"{path} cannot be written, since there is no directory {path.parent}; create it"
        assert str(error) == error_text(error) == words
        assert error.filename == str(path)


def test_cause_of_a_profile_that_cannot_be_used_is_no_class_name() -> None:
    assert _cause(PermissionError("it could have been written by others")) == "it could have been written by others"
    assert _cause(PermissionError(13, "Permission denied", "file")) == "Permission denied"
