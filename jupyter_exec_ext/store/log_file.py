"""Storage of an execution's event log as numbered lines: a file or, if it is short, a text in the execution's row.

A line is an output event as the API sends it. The last line has the finished record. If the record has much output, its
line omits the outputs, because they are the fold of the lines before. A file has one writer and any number of readers,
and grows by whole lines; a line torn by a full disk or a crash is cut off. A sparse index finds a line by its number.
`event_log` decides when lines are written.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..models import EndEvent, Execution, OutputEvent
from ..protocol.large_values import encode_in_pieces, event_is_large, is_large
from ..protocol.output_joining import OutputFold, with_outputs
from ..protocol.records_json import (
    bare_to_json,
    event_from_json,
    event_to_json,
    event_to_text,
    execution_from_json,
    is_bare,
)
from ..protocol.strict_json import dump_bytes, loads_strict, to_bytes
from ..system.regular_file import open_regular_file
from ..system.removal import remove_tree

INDEX_STEP_BYTES = 64 * 1024  # what a look-up may have to skip, beside one line
_BLOCK_BYTES = 256 * 1024
# In JSON a character may take six bytes, and the log has all outputs a second time.
_SHORT_CHARACTERS = 2 * 1024


@dataclass(slots=True)
class LogIndex:
    """Sparse index of lines: ``(number, offset)`` for about every 64 KiB, ascending."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    def note(self, seq: int, offset: int) -> None:
        """Add that line `seq` begins at `offset`, if the last entry is 64 KiB before it."""
        if not self.entries or offset - self.entries[-1][1] >= INDEX_STEP_BYTES:
            self.entries.append((seq, offset))

    def at_or_before(self, seq: int) -> tuple[int, int]:
        """Return the last entry at or before line `seq`."""
        # The second number is larger than any offset, so that an entry of `seq` itself is found.
        position = bisect_right(self.entries, (seq, 1 << 62)) - 1
        return self.entries[position] if position >= 0 else (1, 0)


class LogLines(ABC):
    """The lines of one log: base of `LogFile` and `LogText`."""

    def __init__(self, size_bytes: int, last_seq: int, index: LogIndex | None) -> None:
        self.size_bytes = size_bytes
        self.last_seq = last_seq
        self.last_offset = 0  # of the last line; known to its writer only
        self.index = index or LogIndex()

    @property
    @abstractmethod
    def exists(self) -> bool:
        """True if the log can be opened."""

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the log for reading."""

    def read(self, after: int, max_lines: int, max_bytes: int) -> list[bytes]:
        """Return the lines after number `after`, up to `max_lines`; stop once they have `max_bytes`."""
        seq, offset = self.index.at_or_before(after + 1)
        lines: list[bytes] = []
        taken = 0
        with self.open() as file:
            file.seek(offset)
            # `size_bytes` counts whole lines. The file may have a part of one that is being written.
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
        """Count lines that were written, each without its line break."""
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
        """Open the log for reading."""
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
        """True if the file is there, and no link or FIFO in its place."""
        return self.path.is_file() and not self.path.is_symlink()

    def open(self) -> BinaryIO:
        """Open the log for reading."""
        return os.fdopen(open_regular_file(self.path, os.O_RDONLY), "rb")

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, each without its line break: all or none.

        Raises
        ------
        OSError
            If they cannot be written; the file is then as it was before.
        """
        fd = open_to_write(self.path)
        try:
            try:
                # Not O_APPEND: if cutting off a torn line fails, too, the next write goes over it.
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
        sync_file(self.path)


def open_to_write(path: Path) -> int:
    """Return a descriptor of a file that is made if necessary, with mode 0600, in a directory with mode 0700."""
    # Code without isolation can put a link or a FIFO at this name.
    flags = os.O_WRONLY | os.O_CREAT
    try:
        return open_regular_file(path, flags)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open_regular_file(path, flags)


def sync_file(path: Path) -> None:
    """Make what was written to a file survive a power failure."""
    fd = open_to_write(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes, offset: int) -> int:
    """Write data at an offset; return the offset after it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
    return offset


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces to blocks of about 256 KiB, one system call each; a longer piece is a block by itself."""
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
    """Return the log that a crash left, truncated before its first incomplete line."""
    log = LogFile(path)
    try:
        with os.fdopen(open_regular_file(path, os.O_RDWR), "rb+") as file:
            for line in file:
                if not line.endswith(b"\n") or not is_whole(line):
                    break
                log.note([line[:-1]])
            # Lines that are written next must not follow a torn one.
            file.truncate(log.size_bytes)
    except FileNotFoundError:
        pass
    return log


def log_path(logs: Path, session_id: str, execution_id: str) -> Path:
    """Return the path of an execution's log."""
    return logs / session_id / f"{execution_id}.ndjson"


def spool_path(logs: Path, session_id: str, execution_id: str) -> Path:
    """Return the directory of an execution's spool."""
    return logs / session_id / f"{execution_id}.outputs"


def remove_spool(logs: Path, session_id: str, execution_id: str) -> None:
    """Remove an execution's spool, if it has one."""
    remove_tree(spool_path(logs, session_id, execution_id))


def is_long(execution: Execution) -> bool:
    """Return whether the log has the finished record without its outputs."""
    return is_large(execution, _SHORT_CHARACTERS)


def line_of(event: OutputEvent, seq: int, at: str) -> bytes:
    """Return the line of an event."""
    if isinstance(event, EndEvent) and is_long(event.execution):
        return dump_bytes({"seq": seq, "type": event.type, "at": at, "execution": bare_to_json(event.execution)})
    if event_is_large(event):
        return b"".join(encode_in_pieces(event_to_json(event, seq, at)))
    return to_bytes(event_to_text(event, seq, at))


def record_in(log: LogLines, end_offset: int) -> Execution:
    """Return the finished record in a log whose last line begins at `end_offset`.

    Raises
    ------
    OSError, ValueError, UnexpectedAnswer
        If its file is gone or damaged.
    """
    line = loads_strict(log.read_at(end_offset))
    end = line.get("execution") if isinstance(line, dict) else None
    execution = execution_from_json(end)  # of anything but a record it raises `UnexpectedAnswer`
    try:
        return with_outputs(execution, _fold_outputs(log)) if is_bare(end) else execution
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a log has an event with values of wrong types: {error}") from None


def _fold_outputs(log: LogLines) -> OutputFold:
    """Return the fold of all lines but the last."""
    fold = OutputFold()
    for number, line in enumerate(log.read(0, log.last_seq - 1, log.size_bytes), 1):
        event = event_from_json(loads_strict(line))
        if event is None or event.seq != number:
            raise ValueError("a log has a line that is not its next event")
        fold.add(event)
    return fold
