"""Faults with figures for files: races, full disks, sizes. See `test_faults` for the scale."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient, errors
from jupyter_exec_ext.engine.files.confinement import (
    DIRECTORY,
    open_file,
)
from tests.support.full import SCALE
from tests.support.hosts import Host, running_host
from tests.support.outside_parts import require_part

if TYPE_CHECKING:
    from typing_extensions import Self

FLIP = """
import os, sys
root, outside = sys.argv[1:]
os.chdir(root)
print("ready", flush=True)
while True:
    os.rename("dir", "kept")
    os.symlink(outside, "dir")
    os.unlink("dir")
    os.rename("kept", "dir")
"""


@contextmanager
def flipping(root: Path, outside: Path) -> Iterator[None]:
    """Let another process swap a directory with a link to one outside, as fast as it can."""
    process = subprocess.Popen([sys.executable, "-c", FLIP, str(root), str(outside)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(60 * SCALE)
def test_no_open_escapes_while_a_directory_is_swapped_with_a_link(tmp_path: Path) -> None:
    """10,000 opens: each reads the file inside, or is refused. The way that looks first does get outside."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory, content in ((root / "dir", b"inside"), (outside, b"outside")):
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(content)
    descriptor = os.open(root, DIRECTORY)
    opens = inside = refused = naive_escapes = 0
    with flipping(root, outside):
        # On, if need be, until the race was there to be won.
        while opens < 10_000 * SCALE or not (inside and refused and naive_escapes):
            opens += 1
            try:
                file, _ = open_file(descriptor, ("dir", "file"))
            except OSError:
                refused += 1
            else:
                assert os.read(file, 100) == b"inside"
                os.close(file)
                inside += 1
            if opens % 2:
                naive_escapes += _naively(root) == b"outside"
    os.close(descriptor)
    assert inside + refused == opens


def _naively(root: Path) -> bytes:
    """Check the path, then open it."""
    path = root / "dir" / "file"
    try:
        if os.path.realpath(path).startswith(str(root)):
            return path.read_bytes()
    except OSError:
        pass
    return b""


def private_mounts() -> list[str]:
    """Return the command that runs another one with mounts of its own."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        mount = ["sh", "-c", "mount -t tmpfs none /mnt"]
        if subprocess.run([*command, *mount], capture_output=True, check=False).returncode == 0:
            return command
    require_part("mounts")
    pytest.fail("a small disk can be mounted neither by root nor in a user namespace here")


def test_a_full_disk_refuses_uploads_keeps_no_half_files_and_recovers(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    small_disk = ["sh", "-c", f'mount -t tmpfs -o size=2m,mode=700 none {work} && exec "$@"', "sh"]
    option = f"--ExecEngine.work_root={work}"
    with (
        running_host("server", tmp_path / "home", option, prefix=[*private_mounts(), *small_disk]) as host,
        ExecClient(host.info) as client,
        client.session() as session,
    ):
        session.write_file("kept", b"x" * 2**20)
        for _ in range(5):
            with pytest.raises(errors.StorageFull):
                session.write_file("too big", b"y" * 4 * 2**20)
            with pytest.raises(errors.StorageFull):
                session.write_file("kept", b"z" * 3 * 2**19)
        assert session.run("import os; print(os.listdir())").stdout == "['kept']\n"
        assert session.read_file("kept") == b"x" * 2**20
        assert session.list_files(sha256=True)[0].size_bytes == 2**20
        full = session.run("open('fill', 'wb').write(b'f' * 4 * 2**20)")
        assert full.error is not None and full.error.name == "OSError"
        with pytest.raises(errors.StorageFull):
            session.write_file("more", b"1")
        session.delete_file("fill")
        session.write_file("kept", b"w" * 2**19)
        assert session.read_file("kept") == b"w" * 2**19


class Peak(threading.Thread):
    """Watches how much memory a process has, until told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._process = psutil.Process(pid)
        self._stop_it = threading.Event()
        self.before = self.peak = self._process.memory_info().rss

    def run(self) -> None:
        while not self._stop_it.wait(0.005):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop_it.set()
        self.join()

    @property
    def growth(self) -> int:
        return self.peak - self.before


@pytest.fixture
def roomy_host(tmp_path: Path) -> Iterator[Host]:
    limits = ["--ExecEngine.max_file_bytes=0", "--ExecEngine.max_session_bytes=0"]
    with running_host("server", tmp_path / "home", *limits) as host:
        yield host


@pytest.mark.timeout(60 * SCALE)
def test_a_gibibyte_goes_through_a_few_megabytes(roomy_host: Host, tmp_path: Path) -> None:
    """102 MiB up and down through both clients: the server and this process grow by 32 MiB at most."""
    size = 1024 * 2**20 * SCALE // 10
    block = os.urandom(2**20)
    with (tmp_path / "big").open("wb") as file:
        while file.tell() < size:
            file.write(block[: min(len(block), size - file.tell())])
    growths = []
    with ExecClient(roomy_host.info) as client, client.session() as session:
        session.write_file("warm", block)
        session.read_file("warm")

        async def through_aio() -> None:
            async with AsyncExecClient(roomy_host.info) as aio:
                there = await aio.get_session(session.id)
                await there.upload(tmp_path / "big")
                await there.download("big", tmp_path / "again")

        for step in (
            lambda: session.upload(tmp_path / "big"),
            lambda: session.download("big", tmp_path / "down"),
            lambda: asyncio.run(through_aio()),
        ):
            with Peak(roomy_host.process.pid) as server, Peak(os.getpid()) as ours:
                step()
            growths += [server.growth, ours.growth]
        assert session.list_files()[0].size_bytes == size
    for path in ("down", "again"):
        assert subprocess.run(["cmp", tmp_path / "big", tmp_path / path], check=False).returncode == 0
    assert max(growths) <= 32 * 2**20, [round(growth / 2**20, 1) for growth in growths]
