"""Spool of one execution: files beside its log for the output beyond its output cap.

A thread of its own writes them behind, in batches, so that a flood of output delays no record. The waiting bytes of the
whole server are bounded, and some of the disk is left free. A file that cannot be continued is marked as incomplete. No
fault of a spool fails an execution. `protocol.output_overflow` decides what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..protocol.output_overflow import SpooledFile
from ..system.regular_file import open_regular_file
from .eviction_schedule import GrowingFiles
from .log_file import blocks, open_to_write, sync_file

_WRITE_BEHIND_SECONDS = 0.02
_WRITE_NOW_BYTES = 1024 * 1024
MAX_WAITING_BYTES = 128 * 1024 * 1024
FEW_BYTES = 16 * 1024 * 1024
# Left free on the disk for the records of running executions, which matter more.
LEAVE_FREE_BYTES = 64 * 1024 * 1024


def open_spooled(path: Path, size_bytes: int) -> int | None:
    """Return a descriptor of a spooled file for reading; None if it is not there with this size."""
    try:
        fd = open_regular_file(path, os.O_RDONLY)
    except OSError:
        return None
    if os.fstat(fd).st_size != size_bytes:
        os.close(fd)
        return None
    return fd


class SpoolThread:
    """The thread that writes all spools, and the bytes that wait for it."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, "exec-store-spool")
        self.waiting_bytes = 0
        self._paused: list[Callable[[], None]] = []

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether more bytes may wait; one piece of any size may, since it is in memory already."""
        return self.waiting_bytes < FEW_BYTES or self.waiting_bytes + size_bytes <= MAX_WAITING_BYTES

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if many bytes wait, once there are fewer."""
        if self.waiting_bytes < FEW_BYTES:
            callback()
        else:
            self._paused.append(callback)

    def subtract_written(self, size_bytes: int) -> None:
        """Subtract bytes that are written."""
        self.waiting_bytes -= size_bytes
        if self.waiting_bytes < FEW_BYTES:
            paused, self._paused = self._paused, []
            for callback in paused:
                callback()

    def close(self) -> None:
        """Write the waiting bytes, and end the thread."""
        self.executor.shutdown(wait=True)


@dataclass(slots=True)
class _File:
    size_bytes: int = 0
    hash: Any = field(default_factory=hashlib.sha256)
    complete: bool = True


class FileSpool:
    """Writes the files of one spool.

    Parameters
    ----------
    directory : Path
        Made at the first write, with mode 0700.
    max_bytes : int
        Bound on all files together.
    thread : SpoolThread
        Writes them.
    files : GrowingFiles
        Account of what is written; refuses what the store has no room for.
    """

    def __init__(self, directory: Path, max_bytes: int, thread: SpoolThread, files: GrowingFiles) -> None:
        self.max_bytes = max_bytes
        self.problem: str | None = None
        self._directory = directory
        self._thread = thread
        self._account = files
        self._loop = asyncio.get_running_loop()
        self._pending: list[Callable[[], None]] = []
        self._growing: dict[str, list[Iterable[bytes]]] = {}  # pending appends of each file, written together
        self._pending_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._skipped: set[str] = set()
        self._files: dict[str, _File] = {}  # used in the thread only

    # --- on the loop ---

    def append(self, name: str, content: Iterable[bytes], size_bytes: int) -> None:
        """Append to a file soon."""
        if name in self._skipped:
            return
        if not self._thread.has_room_for(size_bytes):
            self._skipped.add(name)  # later bytes would leave a gap
            self.problem = "the disk was too slow for all of it"
            self._queue(partial(self._cut, name))
            return
        contents = self._growing.get(name)
        if contents is None:
            contents = self._growing[name] = []
            self._pending.append(partial(self._append, name, contents))
        contents.append(content)
        self._write_soon(size_bytes)

    def remove(self, name: str) -> None:
        """Remove a file, soon."""
        self._skipped.discard(name)
        self._queue(partial(self._remove, name))

    def _queue(self, work: Callable[[], None]) -> None:
        self._pending.append(work)
        self._growing.clear()  # later appends are written after this
        self._write_soon(0)

    def _write_soon(self, size_bytes: int) -> None:
        self._pending_bytes += size_bytes
        self._thread.waiting_bytes += size_bytes
        if self._writing:
            return
        if self._pending_bytes >= _WRITE_NOW_BYTES:
            self._start()
        elif self._timer is None:
            self._timer = self._loop.call_later(_WRITE_BEHIND_SECONDS, self._start)

    def _start(self) -> asyncio.Future[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writing = True
        batch, self._pending, self._growing = self._pending, [], {}
        size_bytes, self._pending_bytes = self._pending_bytes, 0
        job = self._loop.run_in_executor(self._thread.executor, _run_all, batch)
        job.add_done_callback(lambda _: self._finish_write(size_bytes))
        return job

    def _finish_write(self, size_bytes: int) -> None:
        self._writing = False
        if self._pending:
            self._start()
        self._thread.subtract_written(size_bytes)

    async def close(self) -> dict[str, SpooledFile]:
        """Write what is left, sync the files, and return their sizes and digests."""
        self._queue(self._sync)
        await self._start()  # the one thread finishes earlier batches first
        if not self._skipped and all(file.complete for file in self._files.values()):
            self.problem = None  # the files with problems have been removed
        return {name: SpooledFile(f.size_bytes, f.hash.hexdigest(), f.complete) for name, f in self._files.items()}

    # --- in the thread ---

    def _append(self, name: str, contents: list[Iterable[bytes]]) -> None:
        file = self._files.setdefault(name, _File())
        if not file.complete:
            return
        try:
            fd = open_to_write(self._directory / name)
            try:
                for data in blocks(chain.from_iterable(contents)):
                    self._write(fd, file, data)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:  # ValueError: what a kernel sent is decoded only here
            self.problem = f"it could not be written: {getattr(error, 'strerror', error)}"
            file.complete = False

    def _write(self, fd: int, file: _File, data: bytes) -> None:
        # For each block, because other programs write to this disk, too.
        if shutil.disk_usage(self._directory).free < LEAVE_FREE_BYTES + len(data):
            raise OSError(errno.ENOSPC, "the disk is almost full")
        if not self._account.try_grow(len(data)):
            raise OSError(errno.EDQUOT, "the store has no room for more (ExecStore.max_bytes, max_stored_bytes)")
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(fd, rest, file.size_bytes)
                file.hash.update(rest[:written])
                file.size_bytes += written
                rest = rest[written:]
        finally:
            if rest:
                self._account.grow(-len(rest))  # added by `try_grow`, and not written

    def _cut(self, name: str) -> None:
        if name in self._files:
            self._files[name].complete = False

    def _remove(self, name: str) -> None:
        file = self._files.pop(name, None)
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
            if file is not None:
                self._account.grow(-file.size_bytes)

    def _sync(self) -> None:
        for name, file in self._files.items():
            try:
                sync_file(self._directory / name)
            except OSError as error:
                self.problem = f"it could not be written: {error.strerror}"
                file.complete = False


def _run_all(batch: list[Callable[[], None]]) -> None:
    for work in batch:
        work()
