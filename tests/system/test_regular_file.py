from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_exec_ext.system.regular_file import open_regular_file


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR])
@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, listen, lambda path: path.symlink_to("elsewhere")])
def test_opening_something_else_than_a_regular_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None], flags: int
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is at most 107 bytes long
    Path("elsewhere").write_bytes(b"x")
    put(Path("name"))
    descriptors = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else None
    with pytest.raises(OSError, match="name"):
        open_regular_file(Path("name"), flags)
    assert descriptors is None or os.listdir("/proc/self/fd") == descriptors


def test_fifo_with_reader_is_not_opened_for_writing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "name")
    reader = os.open(tmp_path / "name", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="regular"):
        open_regular_file(tmp_path / "name", os.O_WRONLY)
    os.close(reader)


def test_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    descriptor = open_regular_file(tmp_path / "name", os.O_WRONLY | os.O_CREAT)
    assert os.fstat(descriptor).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
