"""The spool of one execution on disk: files beside its log with what its output cap leaves out of it.

They are written behind, in batches, by a thread of their own, so that a flood delays nobody's record. What waits to be
written is bounded for the server as a whole, and the disk is never filled to the last: a file that cannot go on is cut
there and said to be. Nothing here ever fails an execution.
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
from ..system.removal import remove_tree
from .log_file import blocks
from .storage_account import GrowingFiles

_WRITE_BEHIND_SECONDS = 0.02
_WRITE_NOW_BYTES = 1024 * 1024
MAX_WAITING_BYTES = 128 * 1024 * 1024
FEW_BYTES = 16 * 1024 * 1024
# For the records of what runs, which matter more.
LEAVE_FREE_BYTES = 64 * 1024 * 1024


def spool_path(logs: Path, session_id: str, execution_id: str) -> Path:
    """Return the directory of an execution's spool."""
    return logs / session_id / f"{execution_id}.outputs"


def remove_spool(logs: Path, session_id: str, execution_id: str) -> None:
    """Remove an execution's spool, if it has one."""
    remove_tree(spool_path(logs, session_id, execution_id))


def open_spooled(path: Path, size_bytes: int) -> int | None:
    """Return a descriptor of a file that has this size; None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    if os.fstat(fd).st_size != size_bytes:
        os.close(fd)
        return None
    return fd


class SpoolThread:
    """The one thread that writes all spools, started when first needed; and how much waits for it."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, "exec-store-spool")
        self.waiting_bytes = 0
        self._paused: list[Callable[[], None]] = []

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether this may wait, too; one piece of any size may, since it is in memory already."""
        return self.waiting_bytes < FEW_BYTES or self.waiting_bytes + size_bytes <= MAX_WAITING_BYTES

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if much waits, when there is less."""
        if self.waiting_bytes < FEW_BYTES:
            callback()
        else:
            self._paused.append(callback)

    def written(self, size_bytes: int) -> None:
        """Note that so much waits no longer."""
        self.waiting_bytes -= size_bytes
        if self.waiting_bytes < FEW_BYTES:
            paused, self._paused = self._paused, []
            for callback in paused:
                callback()

    def close(self) -> None:
        """Write what waits."""
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
        How much the files may have together.
    files : GrowingFiles
        Account of what is written, which says whether the store has room for more.
    """

    def __init__(self, directory: Path, max_bytes: int, thread: SpoolThread, files: GrowingFiles) -> None:
        self.max_bytes = max_bytes
        self.problem: str | None = None
        self._directory = directory
        self._thread = thread
        self._account = files
        self._loop = asyncio.get_running_loop()
        self._pending: list[Callable[[], None]] = []
        self._growing: dict[str, list[Iterable[bytes]]] = {}  # what is pending for each file, to be written at once
        self._pending_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._skipped: set[str] = set()
        self._files: dict[str, _File] = {}  # the thread's

    # --- on the loop ---

    def append(self, name: str, content: Iterable[bytes], size_bytes: int) -> None:
        """Write more to a file, soon."""
        if name in self._skipped:
            return
        if not self._thread.has_room_for(size_bytes):
            self._skipped.add(name)  # what follows would leave a gap
            self.problem = "the disk was too slow for all of it"
            self._do(partial(self._cut, name))
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
        self._do(partial(self._remove, name))

    def _do(self, work: Callable[[], None]) -> None:
        self._pending.append(work)
        self._growing.clear()  # what comes now is written after this
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
        job.add_done_callback(lambda _: self._written(size_bytes))
        return job

    def _written(self, size_bytes: int) -> None:
        self._writing = False
        if self._pending:
            self._start()
        self._thread.written(size_bytes)

    async def close(self) -> dict[str, SpooledFile]:
        """Write what is left, make it survive a power failure and return what there is."""
        self._do(self._sync)
        await self._start()  # one thread: what is under way is done before
        if not self._skipped and all(file.complete for file in self._files.values()):
            self.problem = None  # it had to do with what was removed since
        return {name: SpooledFile(f.size_bytes, f.hash.hexdigest(), f.complete) for name, f in self._files.items()}

    # --- in the thread ---

    def _append(self, name: str, contents: list[Iterable[bytes]]) -> None:
        file = self._files.setdefault(name, _File())
        if not file.complete:
            return
        try:
            fd = self._open(name)
            try:
                for data in blocks(chain.from_iterable(contents)):
                    self._write(fd, file, data)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            self.problem = f"it could not be written: {getattr(error, 'strerror', error)}"
            file.complete = False

    def _open(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            return os.open(self._directory / name, flags, 0o600)
        except FileNotFoundError:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._directory / name, flags, 0o600)

    def _write(self, fd: int, file: _File, data: bytes) -> None:
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
                self._account.shrink(len(rest))

    def _cut(self, name: str) -> None:
        if name in self._files:
            self._files[name].complete = False

    def _remove(self, name: str) -> None:
        file = self._files.pop(name, None)
        with contextlib.suppress(OSError):
            (self._directory / name).unlink()
            if file is not None:
                self._account.shrink(file.size_bytes)

    def _sync(self) -> None:
        for name, file in self._files.items():
            try:
                fd = os.open(self._directory / name, os.O_RDWR | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                self.problem = f"it could not be written: {error.strerror}"
                file.complete = False


def _run_all(batch: list[Callable[[], None]]) -> None:
    for work in batch:
        work()
