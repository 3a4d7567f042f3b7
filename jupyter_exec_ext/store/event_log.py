"""Event log of one execution: written behind in batches, and read from memory while its lines are recent.

A reader sees an event once it is in the file, so an event that a reader has received survives a crash. Events are
written at once if a reader waits or many have come, otherwise within half a second. The log of an execution that ends
before that has no file: it becomes a part of the execution's row.

If the file cannot be written (a full disk), the events stay in memory, readers continue, and the next write tries
again from the file's end. `log_file` stores the lines.
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
from ..protocol.large_values import event_is_large
from ..protocol.records_json import utc_timestamp
from .eviction_schedule import GrowingFiles
from .log_file import LogFile, LogLines, is_long, line_of
from .stored_bytes import size_on_disk

# The most that a crash loses of what no reader has received. Until then the log may still become a part of the row.
_WRITE_BEHIND_SECONDS = 0.5
_MANY_EVENTS = 64
# A reader that is further behind reads the file, which is slower. The execution has its text in memory anyway.
_RECENT_BYTES = 8 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_BEGINNING_BYTES = 80

# Kinds of work, as `report` gets them.
_WRITE, _SYNC = "event log written", "event log synced"

_Numbered = tuple[int, float, OutputEvent]  # number, time, event


@dataclass(frozen=True, slots=True)
class LogLine:
    """One stored event."""

    seq: int
    line: bytes

    @property
    def type(self) -> str:
        """The event's type."""
        # `event_to_text` begins every line like this: {"seq":7,"type":"stream",
        return self.line[:_BEGINNING_BYTES].split(b'"', 6)[5].decode()


async def _read_lines(lines: LogLines, after: int, limit: int) -> Sequence[LogLine]:
    found = await asyncio.to_thread(lines.read, after, limit, _READ_BYTES)
    return [LogLine(after + number, line) for number, line in enumerate(found, 1)]


class StoredLog:
    """The log of a finished execution."""

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
        return await _read_lines(self._lines, after, limit)

    async def changed(self, after: int) -> None:
        """Return at once: a stored log does not change."""


class DurableLog:
    """The log of an execution that has not ended, in `file` unless it ends before anything is written.

    Parameters
    ----------
    file : LogFile
        The file, which need not exist.
    writer : Executor
        Has one thread, so that writes keep their order.
    report : callable
        Gets the error of a write or sync that failed, None after one that succeeded, and the kind of work.
    files : GrowingFiles
        Account of what is written.
    """

    def __init__(
        self, file: LogFile, writer: Executor, report: Callable[[OSError | None, str], None], files: GrowingFiles
    ) -> None:
        self._files = files
        self._file = file
        self._writer = writer
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Numbered] = []
        self._unsaved: list[LogLine] = []  # readers have received them, but no file has them yet
        self._recent: deque[LogLine] = deque()
        self._recent_bytes = 0
        self.appended_seq = 0
        self._readers: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_writing = False
        self._is_ending = False
        self._end_is_whole = False
        self.last_seq = 0
        self.closed = False

    # --- writing ---

    @property
    def full(self) -> bool:
        """True if the store has no room for more output; further events are written nevertheless."""
        return self._files.is_full

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it soon."""
        if self.closed:
            raise ValueError("the log is closed")
        self._add(event)
        self._write_soon()

    def _add(self, event: OutputEvent) -> None:
        self.appended_seq += 1
        self._pending.append((self.appended_seq, time.time(), event))

    def _write_soon(self) -> None:
        if self._is_writing or self._is_ending or not self._pending:
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
        self._is_writing = True
        batch, self._pending = self._pending, []
        job = self._loop.run_in_executor(self._writer, self._save, batch)
        job.add_done_callback(self._finish_write)

    def _finish_write(self, job: asyncio.Future[list[LogLine]]) -> None:
        self._is_writing = False
        self._publish(job.result())
        self._write_soon()

    def _save(self, batch: Sequence[_Numbered]) -> list[LogLine]:
        """Write a batch, after the lines that could not be written before; in the writer's thread."""
        lines = _lines_of(batch)
        unsaved = [*self._unsaved, *lines]
        size_before = self._file.size_bytes
        try:
            self._file.append([line.line for line in unsaved])
        except OSError as error:
            self._unsaved = unsaved
            self._loop.call_soon_threadsafe(self._report, error, _WRITE)
        else:
            self._files.grow(size_on_disk(self._file.size_bytes) - size_on_disk(size_before))
            if self._unsaved:
                self._unsaved = []
                self._loop.call_soon_threadsafe(self._report, None, _WRITE)
        return lines

    # --- the end ---

    def add_end(self, execution_end: EndEvent) -> None:
        """Add the last event. `save_rest` writes it, and `publish_end` shows it to readers."""
        self._cancel_timer()
        self._end_is_whole = not is_long(execution_end.execution)
        self._add(execution_end)
        # A write that goes on now starts no further one. `save_rest` comes after it in the same thread.
        self._is_ending = True

    def whole_log(self) -> list[LogLine] | None:
        """Return the whole log, if nothing of it is in a file, after `add_end`; in the writer's thread."""
        return None if self._file.size_bytes or self._unsaved else _lines_of(self._pending)

    def save_rest(self) -> list[LogLine]:
        """Write what is left, after `add_end`; in the writer's thread."""
        return self._save(self._pending)

    def sync(self) -> None:
        """Make what is in the file survive a power failure; in any thread."""
        if self._unsaved:
            return  # it stays in memory, and is retried
        failed = None
        try:
            self._file.sync()
        except OSError as error:
            failed = error
        self._loop.call_soon_threadsafe(self._report, failed, _SYNC)

    def require_saved(self) -> LogFile:
        """Return the file with every line in it; in the writer's thread.

        Raises
        ------
        StorageFull
            If lines could not be written, for any reason.
        """
        if self._unsaved:
            self._save([])
        if self._unsaved:
            raise StorageFull("the event log of an execution could not be written")
        return self._file

    @property
    def end(self) -> bytes | None:
        """The last event, once it has been published; None if it is without the outputs."""
        return self._recent[-1].line if self.closed and self._end_is_whole else None

    def publish_end(self, lines: list[LogLine]) -> None:
        """Show the last events to readers, and that there are no more."""
        # Earlier lines are published by now: one thread wrote them, and callbacks keep the order of its jobs.
        self.closed = True
        self._publish(lines)

    def give_up(self) -> None:
        """End all readers: the last events could not be written, and are missing."""
        self._end_is_whole = False
        self.publish_end([])

    def _publish(self, lines: list[LogLine]) -> None:
        if lines:
            self.last_seq = lines[-1].seq
        self._recent.extend(lines)
        self._recent_bytes += sum(len(line.line) for line in lines)
        # Lines that no file has are kept whatever their size; the cap on output bounds it.
        # One line stays in any case, because `read` and `end` look at the ends.
        while self._recent_bytes > _RECENT_BYTES and len(self._recent) > 1 and not self._unsaved:
            self._recent_bytes -= len(self._recent.popleft().line)
        if self._readers is not None:
            self._readers.set_result(None)
            self._readers = None

    # --- reading ---

    async def read(self, after: int, limit: int) -> Sequence[LogLine]:
        """Return up to `limit` entries that follow number `after`."""
        if after >= self.last_seq:
            return ()
        first_recent = self._recent[0].seq
        if after + 1 >= first_recent:
            start = after + 1 - first_recent
            return [self._recent[position] for position in range(start, min(start + limit, len(self._recent)))]
        # No further than the lines in memory: the file may have later ones that are not published yet.
        return await _read_lines(self._file, after, min(limit, first_recent - after - 1))

    async def changed(self, after: int) -> None:
        """Return once there is an entry after number `after`, or the log is closed."""
        while self.last_seq <= after and not self.closed:
            if self._readers is None:
                self._readers = self._loop.create_future()
                self._write_soon()
            # All readers share it, so one reader's cancellation must not cancel it.
            await asyncio.shield(self._readers)


def _lines_of(batch: Sequence[_Numbered]) -> list[LogLine]:
    return [LogLine(seq, line_of(event, seq, utc_timestamp(at))) for seq, at, event in batch]
