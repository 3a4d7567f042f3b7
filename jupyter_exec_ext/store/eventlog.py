"""The event log of one execution on disk: written behind, read from memory while it is fresh.

Readers see an event once it is in the file, so nothing that anybody saw is gone after this process was killed. Events
are written in batches by the store's thread: at once where a reader waits, otherwise after a moment, so that an
execution that is over in milliseconds costs one write.

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
from ..wire.jsontext import to_bytes
from ..wire.large_json import dump_in_pieces, event_is_large
from ..wire.native import event_to_json, event_to_text, utc_timestamp
from .logfile import LogFile

_WRITE_BEHIND_SECONDS = 0.02
_FRESH_BYTES = 1024 * 1024
_READ_BYTES = 1024 * 1024
_LARGE_BYTES = 256 * 1024


def _line_of(event: OutputEvent, seq: int, at: str) -> bytes:
    if event_is_large(event):
        return b"".join(map(to_bytes, dump_in_pieces(event_to_json(event, seq, at))))
    return to_bytes(event_to_text(event, seq, at))


@dataclass(frozen=True, slots=True)
class LogLine:
    """One stored event."""

    seq: int
    line: bytes

    @property
    def type(self) -> str:
        """The event's type."""
        # As `event_to_text` begins every line: {"seq":7,"type":"stream",
        return self.line.split(b'"', 6)[5].decode()

    @property
    def large(self) -> bool:
        """Whether `text` takes so long that it is to be called in a worker thread."""
        return len(self.line) > _LARGE_BYTES

    def text(self) -> str:
        """Return the event as one line of JSON."""
        return self.line.decode()


class StoredLog:
    """The log of a finished execution, read from its file."""

    closed = True
    end = None

    def __init__(self, file: LogFile) -> None:
        self._file = file

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return self._file.last_seq

    async def read(self, after: int, limit: int) -> Sequence[LogLine]:
        """Return up to `limit` entries that follow number `after`."""
        lines = await asyncio.to_thread(self._file.read, after, limit, _READ_BYTES)
        return [LogLine(after + number, line) for number, line in enumerate(lines, 1)]

    async def changed(self, after: int) -> None:
        """Return at once: nothing changes any more."""


class DurableLog:
    """The log of an execution that lives.

    Parameters
    ----------
    writer : Executor
        Has one thread, so that writes keep their order.
    on_trouble : callable
        Told of a write that failed, and with None of one that worked.
    """

    def __init__(self, file: LogFile, writer: Executor, on_trouble: Callable[[OSError | None], None]) -> None:
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
        self.accepted_commit = 0  # which of the database's commits has the execution's first row

    # --- writing ---

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
        if self._writing or not self._pending:
            return
        if self._readers is not None:
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
        lines = [LogLine(seq, _line_of(event, seq, utc_timestamp(at))) for seq, at, event in batch]
        unsaved = [*self._unsaved, *lines]
        try:
            self._file.append([line.line for line in unsaved])
        except OSError as error:
            self._unsaved = unsaved
            self._loop.call_soon_threadsafe(self._on_trouble, error)
        else:
            if self._unsaved:
                self._unsaved = []
                self._loop.call_soon_threadsafe(self._on_trouble, None)
        return lines

    def close_with(self, end: EndEvent) -> Callable[[], list[LogLine]]:
        """Take in the last event; return the function that writes all that is left.

        It is for the writer's thread; for any other only while that is not writing. `publish_end` then shows it to
        readers.
        """
        self._cancel_timer()
        self._seq += 1
        batch = [*self._pending, (self._seq, time.time(), end)]
        self._pending = []
        return lambda: self._save(batch)

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
        """The last event as it is in the file, once it has been published."""
        return self._fresh[-1].line if self.closed else None

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
