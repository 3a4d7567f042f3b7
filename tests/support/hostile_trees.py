"""Directory trees as hostile code makes them, for tests of what removes them. Standard library only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DEPTH = 5_000
ENTRIES = 100_000


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """Change to a directory that is made, for trees whose paths are longer than the system takes."""
    directory.mkdir(parents=True, exist_ok=True)
    before = os.open(".", os.O_RDONLY)
    os.chdir(directory)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def deep(directory: Path, depth: int = DEPTH) -> None:
    """Nest directories, with a file in the innermost one."""
    with inside(directory):
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
        Path("file").write_text("x")


def closed(directory: Path) -> None:
    """Deny all access to directories with something in them, on three levels."""
    for path in (directory / "a", directory / "b" / "c", directory / "b" / "c" / "d"):
        path.mkdir(parents=True)
        (path / "file").write_text("x")
    for path in (directory / "b" / "c" / "d", directory / "b" / "c", directory / "b", directory / "a", directory):
        path.chmod(0)


def wide(directory: Path, entries: int = ENTRIES) -> None:
    """Fill one directory with files."""
    with inside(directory):
        for number in range(entries):
            os.close(os.open(str(number), os.O_WRONLY | os.O_CREAT))


def many_directories(directory: Path, entries: int = 3_000) -> None:
    """Fill one directory with directories that hold a file each."""
    with inside(directory):
        for number in range(entries):
            os.mkdir(str(number))
            os.close(os.open(f"{number}/file", os.O_WRONLY | os.O_CREAT))


def badly_named(directory: Path) -> None:
    """Use names that are no text, end lines, look like options, or are as long as they can be."""
    names = [b"\xff\xfe", b"a\nb", b"-rf", b"\x1b[2J", b" ", b"...", "\u202e".encode(), b"x" * 255, b"%s", b"'\""]
    with inside(directory):
        for name in names:
            os.mkdir(name)
            os.close(os.open(name + b"/\xff\n", os.O_WRONLY | os.O_CREAT))
            with suppress(OSError):  # where the name is too long with this
                os.close(os.open(name + b"-file", os.O_WRONLY | os.O_CREAT))


def special_files(directory: Path) -> None:
    """Put in what is neither a file nor a directory, and links that lead out."""
    outside = directory.parent / "outside"
    outside.mkdir(parents=True, exist_ok=True)
    (outside / "kept").write_text("kept")
    with inside(directory):
        os.mkfifo("fifo")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
        os.symlink(outside, "link")
        os.symlink("/", "root")
        os.symlink("nowhere", "dangling")
        os.link(outside / "kept", "hard")
        os.mkdir("directory")
        os.symlink("..", "directory/up")


def sparse(directory: Path) -> None:
    """Make files that claim to be large."""
    with inside(directory):
        for number in range(10):
            with open(f"sparse{number}", "wb") as file:
                file.truncate(1 << 40)


def read_only(directory: Path) -> None:
    """Take away the right to write, as copies of installations have it."""
    (directory / "a" / "b").mkdir(parents=True)
    (directory / "a" / "b" / "file").write_text("x")
    for path in (directory / "a" / "b" / "file", directory / "a" / "b", directory / "a", directory):
        path.chmod(0o500)


#: Every kind, by its name.
TREES: dict[str, Callable[[Path], None]] = {
    function.__name__: function
    for function in (deep, closed, wide, many_directories, badly_named, special_files, sparse, read_only)
}
