"""A log of numbered lines: in a file, with one writer and any number of readers, or, if it is short, in one text.

A line is an output event as the API sends it. A file only grows by whole lines; what a full disk or a killed
process leaves of a torn one is cut off. An index in memory, an entry for every 64 KiB, finds a line by its number.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

INDEX_STEP_BYTES = 64 * 1024
_BLOCK_BYTES = 256 * 1024
_WRITE_BYTES = 1024 * 1024


@dataclass(slots=True)
class LogIndex:
    """Where lines begin: ``(number, offset)``, sparse and ascending."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    def note(self, seq: int, offset: int) -> None:
        """Take in that line `seq` begins at `offset`, if the last entry is far enough behind."""
        if not self.entries or offset - self.entries[-1][1] >= INDEX_STEP_BYTES:
            self.entries.append((seq, offset))

    def at_or_before(self, seq: int) -> tuple[int, int]:
        """Return the last entry that is not behind line `seq`."""
        position = bisect_right(self.entries, (seq, 1 << 62)) - 1
        return self.entries[position] if position >= 0 else (1, 0)


class LogLines(ABC):
    """The lines of one log, wherever they are."""

    def __init__(self, size_bytes: int, last_seq: int, index: LogIndex | None) -> None:
        self.size_bytes = size_bytes
        self.last_seq = last_seq
        self.last_offset = 0  # of the last line; known to whoever wrote it
        self.index = index or LogIndex()

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether there is something to open."""

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open it for reading."""

    def read(self, after: int, max_lines: int, max_bytes: int) -> list[bytes]:
        """Return up to `max_lines` lines that follow number `after`; after `max_bytes` no more."""
        seq, offset = self.index.at_or_before(after + 1)
        lines: list[bytes] = []
        taken = 0
        with self.open() as file:
            file.seek(offset)
            while offset < self.size_bytes and len(lines) < max_lines and taken < max_bytes:
                line = file.readline()
                offset += len(line)
                if seq > after:
                    lines.append(line.rstrip(b"\n"))
                    taken += len(line)
                seq += 1
        return lines

    def read_at(self, offset: int) -> bytes:
        """Return the line that begins at `offset`."""
        with self.open() as file:
            file.seek(offset)
            return file.readline().rstrip(b"\n")

    def note(self, lines: Iterable[bytes]) -> None:
        """Take in that these lines, each without its line break, are there now."""
        for line in lines:
            self.last_seq += 1
            self.last_offset = self.size_bytes
            self.index.note(self.last_seq, self.size_bytes)
            self.size_bytes += len(line) + 1


class LogText(LogLines):
    """A whole log as one text."""

    exists = True

    def __init__(self, text: bytes, last_seq: int) -> None:
        super().__init__(len(text), last_seq, None)
        self.text = text

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> LogText:
        """Return the log that has these lines, each without its line break."""
        log = cls(b"", 0)
        log.text = b"\n".join([*lines, b""])
        log.note(lines)
        return log

    def open(self) -> BinaryIO:
        """Open it for reading."""
        return io.BytesIO(self.text)


class LogFile(LogLines):
    """The file of one log.

    Parameters
    ----------
    path : Path
        Made with mode 0600 at the first write; its directory too, with 0700.
    """

    def __init__(self, path: Path, size_bytes: int = 0, last_seq: int = 0, index: LogIndex | None = None) -> None:
        super().__init__(size_bytes, last_seq, index)
        self.path = path

    @property
    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.exists()

    def open(self) -> BinaryIO:
        """Open it for reading."""
        return self.path.open("rb")

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, each without its line break; all or none.

        Raises
        ------
        OSError
            With the file as it was before.
        """
        fd = self._open()
        try:
            try:
                offset = self.size_bytes
                for block in blocks(part for line in lines for part in (line, b"\n")):
                    offset = _write_all(fd, block, offset)
            except OSError:
                os.ftruncate(fd, self.size_bytes)
                raise
        finally:
            os.close(fd)
        self.note(lines)

    def sync(self) -> None:
        """Make what was written survive a power failure."""
        fd = self._open()
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path, flags, 0o600)


def _write_all(fd: int, data: bytes, offset: int) -> int:
    """Write data at an offset; return the one behind it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view[:_WRITE_BYTES], offset)
        if len(data) > _WRITE_BYTES:  # a picture, which somebody waits for; in a flood it would only be in the way
            _begin_writeback(fd, offset, written)
        view, offset = view[written:], offset + written
    return offset


def _begin_writeback(fd: int, offset: int, size: int) -> None:
    """Let the disk begin with what was just written, so that who syncs has less to wait for.

    What Linux does when it is told that data is not needed: it drops only what is on the disk already, and begins to
    write the rest (mm/fadvise.c).
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # it was advice
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces to blocks of a size that is worth a system call; what has that size by itself is not copied."""
    block: list[bytes] = []
    size = 0
    for piece in pieces:
        if block and size + len(piece) > _BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
        block.append(piece)
        size += len(piece)
    if block:
        yield b"".join(block)


def recovered(path: Path, is_whole: Callable[[bytes], bool]) -> LogFile:
    """Return the log that a killed writer left, cut back to the last line before the first that is not whole."""
    log = LogFile(path)
    try:
        with path.open("rb+") as file:
            for line in file:
                if not line.endswith(b"\n") or not is_whole(line):
                    break
                log.last_seq += 1
                log.last_offset = log.size_bytes
                log.index.note(log.last_seq, log.size_bytes)
                log.size_bytes += len(line)
            file.truncate(log.size_bytes)
    except FileNotFoundError:
        pass
    return log


def log_path(logs: Path, session_id: str, execution_id: str) -> Path:
    """Return where an execution's log is."""
    return logs / session_id / f"{execution_id}.ndjson"
