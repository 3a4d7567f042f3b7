"""The event log of one execution on disk: written behind, read from memory while it is fresh.

Readers see an event once it is in the file, so nothing that anybody saw is gone after this process was killed. Events
are written in batches by the store's thread: at once where a reader waits or much has come, otherwise after a moment.
The log of an execution that is over before that has no file: it goes into the execution's row.

When the file cannot be written (a full disk), the events stay in memory, readers go on, and the next write tries
again from where the file ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from ..errors import StorageFull
from ..models import EndEvent, OutputEvent
from ..protocol.large_json import event_is_large
from ..protocol.records_json import utc_timestamp
from .log_file import LogFile, LogLines
from .log_lines import is_long, line_of
from .storage_account import GrowingFiles, size_on_disk

# What nobody has read when the server is killed is lost; so long, an execution's log may still become a row's.
_WRITE_BEHIND_SECONDS = 0.5
_MANY_EVENTS = 64
# So far a reader may be behind without having to read the file, which takes longer than to send what is there. The
# execution has its text in memory anyway.
_FRESH_BYTES = 8 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_BEGINNING_BYTES = 80


@dataclass(frozen=True, slots=True)
class LogLine:
    """One stored event."""

    seq: int
    line: bytes

    @property
    def type(self) -> str:
        """The event's type."""
        # As `event_to_text` begins every line: {"seq":7,"type":"stream",
        return self.line[:_BEGINNING_BYTES].split(b'"', 6)[5].decode()


class StoredLog:
    """The log of a finished execution, read from its file."""

    closed = True
    end = None

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return self._lines.last_seq

    async def read(self, after: int, limit: int) -> Sequence[LogLine]:
        """Return up to `limit` entries that follow number `after`."""
        lines = await asyncio.to_thread(self._lines.read, after, limit, _READ_BYTES)
        return [LogLine(after + number, line) for number, line in enumerate(lines, 1)]

    async def changed(self, after: int) -> None:
        """Return at once: nothing changes any more."""


class DurableLog:
    """The log of an execution that lives, in `file` unless it ends before anything of it is written.

    Parameters
    ----------
    writer : Executor
        Has one thread, so that writes keep their order.
    on_trouble : callable
        Told of a write that failed, and with None of one that worked.
    files : GrowingFiles
        Account of what is written.
    """

    def __init__(
        self, file: LogFile, writer: Executor, on_trouble: Callable[[OSError | None], None], files: GrowingFiles
    ) -> None:
        self._files = files
        self._file = file
        self._writer = writer
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[int, float, OutputEvent]] = []
        self._unsaved: list[LogLine] = []  # read by anybody, in no file yet
        self._fresh: deque[LogLine] = deque()
        self._fresh_bytes = 0
        self._seq = 0
        self._readers: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self.last_seq = 0
        self.closed = False
        self._ending = False
        self._end_is_whole = False
        self.accepted_commit = 0  # which of the database's commits has the execution's first row

    # --- writing ---

    @property
    def full(self) -> bool:
        """Whether the store has no room for more output; what is appended nevertheless is written."""
        return self._files.is_full

    @property
    def writing(self) -> bool:
        """Whether a batch is just being written, in the writer's thread."""
        return self._writing

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it soon."""
        if self.closed:
            raise ValueError("the log is closed")
        self._seq += 1
        self._pending.append((self._seq, time.time(), event))
        self._write_soon()

    def _write_soon(self) -> None:
        if self._writing or self._ending or not self._pending:
            return
        if self._readers is not None or len(self._pending) >= _MANY_EVENTS or event_is_large(self._pending[-1][2]):
            self._cancel_timer()
            self._write()
        elif self._timer is None:
            self._timer = self._loop.call_later(_WRITE_BEHIND_SECONDS, self._write)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> None:
        self._timer = None
        self._writing = True
        batch, self._pending = self._pending, []
        job = self._loop.run_in_executor(self._writer, self._save, batch)
        job.add_done_callback(self._written)

    def _written(self, job: asyncio.Future[list[LogLine]]) -> None:
        self._writing = False
        self._publish(job.result())
        self._write_soon()

    def _save(self, batch: list[tuple[int, float, OutputEvent]]) -> list[LogLine]:
        """Write a batch, and what could not be written before it. Called in the writer's thread."""
        lines = _lines_of(batch)
        unsaved = [*self._unsaved, *lines]
        size_before = self._file.size_bytes
        try:
            self._file.append([line.line for line in unsaved])
        except OSError as error:
            self._unsaved = unsaved
            self._loop.call_soon_threadsafe(self._on_trouble, error)
        else:
            self._files.grow(size_on_disk(self._file.size_bytes) - size_on_disk(size_before))
            if self._unsaved:
                self._unsaved = []
                self._loop.call_soon_threadsafe(self._on_trouble, None)
        return lines

    @property
    def unwritten(self) -> bool:
        """Whether all of it is still in memory."""
        return not (self._writing or self._file.size_bytes or self._unsaved)

    def take_end(self, end: EndEvent) -> None:
        """Take in the last event; nothing is written but by `save_rest`, and `publish_end` shows it to readers."""
        self._cancel_timer()
        self._seq += 1
        self._end_is_whole = not is_long(end.execution)
        self._pending.append((self._seq, time.time(), end))
        self._ending = True

    def rest(self) -> list[LogLine]:
        """Return what is not written yet, once the end is in: the whole log, if it is `unwritten`."""
        return _lines_of(self._pending)

    def save_rest(self) -> list[LogLine]:
        """Write what is left, once the end is in; in the writer's thread."""
        return self._save(self._pending)

    def sync(self) -> bool:
        """Make what is in the file survive a power failure, in any thread; return whether it would."""
        if self._unsaved:
            return False  # it goes on in memory, and is tried again
        try:
            self._file.sync()
        except OSError as error:
            self._loop.call_soon_threadsafe(self._on_trouble, error)
            return False
        return True

    def require_saved(self) -> LogFile:
        """Return the file with everything in it; where `close_with` says.

        Raises
        ------
        StorageFull
            Whatever the reason was; `on_trouble` was told.
        """
        if self._unsaved:
            self._save([])
        if self._unsaved:
            raise StorageFull("the event log of an execution could not be written")
        return self._file

    @property
    def end(self) -> bytes | None:
        """The last event, once it has been published; None if it is without the outputs."""
        return self._fresh[-1].line if self.closed and self._end_is_whole else None

    def publish_end(self, lines: list[LogLine]) -> None:
        """Let readers see the last events, and that there are no more."""
        self.closed = True
        self._publish(lines)

    def _publish(self, lines: list[LogLine]) -> None:
        if lines:
            self.last_seq = lines[-1].seq
        self._fresh.extend(lines)
        self._fresh_bytes += sum(len(line.line) for line in lines)
        # What is in no file is kept whatever its size; the cap on output bounds it.
        while self._fresh_bytes > _FRESH_BYTES and len(self._fresh) > 1 and not self._unsaved:
            self._fresh_bytes -= len(self._fresh.popleft().line)
        if self._readers is not None:
            self._readers.set_result(None)
            self._readers = None

    # --- reading ---

    async def read(self, after: int, limit: int) -> Sequence[LogLine]:
        """Return up to `limit` entries that follow number `after`."""
        if after >= self.last_seq:
            return ()
        first_fresh = self._fresh[0].seq
        if after + 1 >= first_fresh:
            start = after + 1 - first_fresh
            return [self._fresh[position] for position in range(start, min(start + limit, len(self._fresh)))]
        lines = await asyncio.to_thread(self._file.read, after, min(limit, first_fresh - after - 1), _READ_BYTES)
        return [LogLine(after + number, line) for number, line in enumerate(lines, 1)]

    async def changed(self, after: int) -> None:
        """Return once there is something after number `after`, or the log is closed."""
        while self.last_seq <= after and not self.closed:
            if self._readers is None:
                self._readers = self._loop.create_future()
                self._write_soon()
            # Shared by all readers, so one reader's cancellation must not cancel it.
            await asyncio.shield(self._readers)


def _lines_of(batch: Sequence[tuple[int, float, OutputEvent]]) -> list[LogLine]:
    return [LogLine(seq, line_of(event, seq, utc_timestamp(at))) for seq, at, event in batch]
