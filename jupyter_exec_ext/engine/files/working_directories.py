"""The sessions' working directories on this machine's disk.

Each session has one, `<work_root>/<session id>`, in which its kernels start. The code that runs there is not to be
trusted with where our own reading and writing goes, so everything below `work_root` is reached by descriptors; see
`confinement`. Nothing here blocks the event loop: a slow disk holds up only the requests that need it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from logging import Logger, LoggerAdapter
from pathlib import Path
from typing import Any, TypeVar

from ...errors import Conflict, KernelStartFailed, NotAFile, QuotaExceeded
from ...models import FileInfo, FilesEvent
from ...protocol.file_paths import path_parts
from ...system.exhaustion import exhausted, out_of_resources
from ...system.removal import remove_tree, retry_leftovers
from ..access.fair_turns import FairTurns
from ..ports import FileList
from .changed_files import ChangeWatch
from .confinement import DIRECTORY, open_directory, open_file
from .directory_walk import Entry, TooManyEntriesError, walk
from .file_errors import in_our_terms
from .file_reader import LocalReader, always, describe, hash_next
from .quotas import NO_LIMITS, FileLimits
from .upload import LocalUpload, Usage

T = TypeVar("T")
_THREADS = 4
_HASH_THREADS = 2
# Of the threads; the others are for those who read and write.
_WALKS_AT_ONCE = 2
_WALK_SECONDS = 0.02
# Hashed in one turn, some ten milliseconds; then others have theirs.
_HASH_SLICE_BYTES = 16 * 1024 * 1024
#: The largest file that is hashed. Code can make a file of any size in no time, without writing it.
MAX_HASHED_BYTES = 8 * 1024**3
_MAX_LISTED = 10_000
_MAX_LOOKED_AT = 100_000
# What a record can name without becoming a burden itself.
_MAX_REPORTED = 1_000
_MAX_REPORTED_PATH_BYTES = 128 * 1024


class LocalFiles:
    """Working directories below `work_root`.

    Parameters
    ----------
    work_root : Path
        Made, for this user alone, when it is first needed.
    max_watched_entries : int
        A directory with more entries is not watched for changes; 0 to watch none.
    keep_free_bytes : int
        Space of the disk that no upload takes.
    """

    def __init__(
        self,
        work_root: Path,
        limits: FileLimits,
        *,
        max_watched_entries: int,
        log: Logger | LoggerAdapter[Any],
        keep_free_bytes: int = 0,
    ) -> None:
        self._keep_free_bytes = keep_free_bytes
        self._root = work_root.absolute()
        self._limits = limits
        self._max_watched = max_watched_entries
        self._log = log
        self._watches: dict[str, ChangeWatch] = {}
        self._usage: dict[str, Usage] = {}
        # Threads of their own: what waits for a disk must not keep others from theirs.
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="exec-files")
        self._hash_pool = ThreadPoolExecutor(_HASH_THREADS, thread_name_prefix="exec-hash")
        self._hash_turns = FairTurns(_HASH_THREADS)
        self._walk_turns = FairTurns(_WALKS_AT_ONCE)
        self._stopping = threading.Event()

    def close(self) -> None:
        """Let the threads end."""
        self._stopping.set()
        self._pool.shutdown(wait=False)
        self._hash_pool.shutdown(wait=False)

    def _in_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def _open_root(self, session_id: str) -> int:
        """Open a session's directory; the code in it may have put a link in its place."""
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return os.open(session_id, DIRECTORY, dir_fd=root)
        finally:
            os.close(root)

    # --- the directory's life ---

    async def prepare(self, session_id: str) -> str | None:
        """Make the session's directory, if it is not there."""
        try:
            await self._in_thread(self._prepare, session_id)
        except OSError as error:
            if out_of_resources(error):
                raise exhausted(error) from error
            raise KernelStartFailed(f"the session's working directory cannot be made: {error}") from error
        if self._max_watched and session_id not in self._watches:
            self._watches[session_id] = ChangeWatch(lambda: self._open_root(session_id), self._max_watched)
        return str(self._root / session_id)

    def _prepare(self, session_id: str) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self._root / session_id, 0o700)
        os.close(self._open_root(session_id))

    async def session_ended(self, session_id: str) -> None:
        """Stop watching; a directory without files need not stay."""
        self._watches.pop(session_id, None)
        with suppress(OSError):
            await self._in_thread(os.rmdir, self._root / session_id)

    async def remove(self, session_id: str) -> None:
        """Remove the session's directory."""
        await self._in_thread(remove_tree, self._root / session_id)
        self._usage.pop(session_id, None)

    def remove_unused(self, session_ids: Collection[str]) -> None:
        """Remove what was prepared for sessions that never came; what has files in it stays."""
        retry_leftovers(self._root)
        for session_id in session_ids:
            with suppress(OSError):
                os.rmdir(self._root / session_id)

    # --- reading ---

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Return the files below a directory, by path."""
        parts = path_parts(path) if path else ()
        with in_our_terms(path):
            try:
                directory = await self._in_thread(self._open_directory, session_id, parts)
            except FileNotFoundError:
                if path:
                    raise
                return FileList(())
            found = _Walk(walk(directory, _MAX_LOOKED_AT, prefix="".join(f"{part}/" for part in parts)))
            try:
                while not found.ended:
                    async with self._walk_turns.turn(session_id):
                        await _undisturbed(self._in_thread(found.go_on))
                async with self._walk_turns.turn(session_id):
                    return await self._in_thread(found.described)
            finally:
                found.entries.close()
                os.close(directory)

    def _open_directory(self, session_id: str, parts: tuple[str, ...]) -> int:
        root = self._open_root(session_id)
        try:
            return open_directory(root, parts)
        finally:
            os.close(root)

    async def open(self, session_id: str, path: str) -> LocalReader:
        """Open a file for reading."""
        parts = path_parts(path)
        with in_our_terms(path):
            descriptor, found = await self._in_thread(self._open, session_id, parts)
        return LocalReader(descriptor, describe(path, found), self._in_thread)

    def _open(self, session_id: str, parts: tuple[str, ...]) -> tuple[int, os.stat_result]:
        root = self._open_root(session_id)
        try:
            return open_file(root, parts)
        finally:
            os.close(root)

    async def digest(self, session_id: str, path: str, wanted: Callable[[], bool] = always) -> str:
        """Return the SHA-256 of a file, which is read in turns with what else is hashed."""
        parts = path_parts(path)
        with in_our_terms(path):
            descriptor, found = await self._in_thread(self._open, session_id, parts)
            try:
                if found.st_size > MAX_HASHED_BYTES:
                    raise QuotaExceeded(
                        f"{path!r} has {found.st_size} bytes, and more than {MAX_HASHED_BYTES} are not hashed; "
                        "ask for it without its digest"
                    )
                return await self._digest(session_id, path, descriptor, found.st_size, wanted)
            finally:
                os.close(descriptor)

    async def _digest(
        self, session_id: str, path: str, descriptor: int, size_bytes: int, wanted: Callable[[], bool]
    ) -> str:
        hash_ = hashlib.sha256()
        loop = asyncio.get_running_loop()
        while size_bytes > 0:
            async with self._hash_turns.turn(session_id):
                if not wanted() or self._stopping.is_set():
                    raise Conflict(f"the hashing of {path!r} was given up, since nobody waits for it")
                slice_bytes = min(size_bytes, _HASH_SLICE_BYTES)
                job = loop.run_in_executor(
                    self._hash_pool, hash_next, hash_, descriptor, slice_bytes, self._stopping.is_set
                )
                hashed = await _undisturbed(job)
            size_bytes = size_bytes - hashed if hashed == slice_bytes else 0  # less is the end of the file
        return hash_.hexdigest()

    # --- writing ---

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> LocalUpload:
        """Begin to write a file."""
        parts = path_parts(path)
        limits = self._limits.within(limits)
        if limits.max_file_bytes is not None and (size_bytes or 0) > limits.max_file_bytes:
            raise QuotaExceeded(f"a file may have at most {limits.max_file_bytes} bytes (max_file_bytes)")
        usage = self._usage.setdefault(session_id, Usage())
        counts = limits.max_session_bytes is not None or limits.max_session_files is not None

        def committed(found: os.stat_result, sha256: str) -> FileInfo:
            self._note(session_id, path, found)
            return describe(path, found, sha256)

        async with usage.lock:
            with in_our_terms(path):
                async with self._walk_turns.turn(session_id):
                    directory, replaced, stored = await self._in_thread(
                        self._make_way, session_id, parts, usage if counts else None
                    )
            if stored is not None:
                usage.stored_bytes, usage.stored_files = stored
            upload = LocalUpload(
                directory,
                path,
                size_bytes,
                replaced,
                limits=limits,
                usage=usage,
                in_thread=self._in_thread,
                describe=committed,
                keep_free_bytes=self._keep_free_bytes,
            )
            await upload.begin()
        return upload

    def _make_way(
        self, session_id: str, parts: tuple[str, ...], usage: Usage | None
    ) -> tuple[int, os.stat_result | None, tuple[int, int] | None]:
        """Open the directory that the file goes to; say what is in the file's place.

        With `usage`, say also what is stored already.
        """
        self._prepare(session_id)  # the code may have removed it
        root = self._open_root(session_id)
        try:
            stored = None if usage is None else self._measure(root, usage)
            directory = open_directory(root, parts[:-1], make=True)
        finally:
            os.close(root)
        try:
            replaced = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(replaced.st_mode):
                os.close(directory)
                raise NotAFile(f"{'/'.join(parts)!r} is a directory")
        except FileNotFoundError:
            return directory, None, stored
        return directory, replaced, stored

    def _measure(self, root: int, usage: Usage) -> tuple[int, int]:
        """Return how many bytes and files are stored, and remove what a killed server left behind."""

        def left_over(directory: int, name: str) -> None:
            if name not in usage.under_way:
                with suppress(OSError):
                    os.unlink(name, dir_fd=directory)

        try:
            sizes = [entry.stat.st_size for entry in walk(root, _MAX_LOOKED_AT, on_temporary=left_over)]
        except TooManyEntriesError:
            raise QuotaExceeded(
                f"the session has more than {_MAX_LOOKED_AT} files and directories; delete some first"
            ) from None
        return sum(sizes), len(sizes)

    async def delete(self, session_id: str, path: str) -> None:
        """Delete a regular file."""
        parts = path_parts(path)
        with in_our_terms(path):
            await self._in_thread(self._delete, session_id, parts)
        self._note(session_id, path, None)

    def _delete(self, session_id: str, parts: tuple[str, ...]) -> None:
        root = self._open_root(session_id)
        try:
            directory = open_directory(root, parts[:-1])
        finally:
            os.close(root)
        try:
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False).st_mode):
                raise NotAFile(f"{'/'.join(parts)!r} is not a regular file")
            os.unlink(parts[-1], dir_fd=directory)
        finally:
            os.close(directory)

    # --- what runs leave behind ---

    def _note(self, session_id: str, path: str, found: os.stat_result | None) -> None:
        watch = self._watches.get(session_id)
        if watch is not None:
            watch.note(path, found)

    async def changes(self, session_id: str) -> FilesEvent | None:
        """Return what code has created or changed since the last call."""
        watch = self._watches.get(session_id)
        if watch is None:
            return None
        try:
            entries = await watch.changes()
        except OSError as error:
            self._log.debug("the directory of session %s cannot be looked at: %s", session_id, error)
            return None
        if not entries:
            return None
        entries.sort(key=lambda entry: entry.path)
        named, room = [], _MAX_REPORTED_PATH_BYTES
        for entry in entries[:_MAX_REPORTED]:
            room -= len(entry.path.encode())
            if room < 0:
                break
            named.append(describe(entry.path, entry.stat))
        return FilesEvent(tuple(named), len(entries) - len(named))


async def _undisturbed(job: asyncio.Future[T]) -> T:
    """Wait for a job that uses a descriptor until it has ended, also when nobody waits for its result any more."""
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise


class _Walk:
    """The files below a directory, found in turns.

    Attributes
    ----------
    ended : bool
        Whether all were found, or as many as are looked at.
    """

    def __init__(self, entries: Generator[Entry, None, None]) -> None:
        self.entries = entries
        self.ended = False
        self._found: list[Entry] = []
        self._truncated = False

    def go_on(self) -> None:
        """Find more, for one turn; in a thread."""
        turn_ends_at = time.monotonic() + _WALK_SECONDS
        try:
            for entry in self.entries:
                self._found.append(entry)
                if time.monotonic() >= turn_ends_at:
                    return
        except TooManyEntriesError:
            self._truncated = True  # what was found before there was too much is kept
        self.ended = True

    def described(self) -> FileList:
        """Return what was found, by path; in a thread."""
        self._found.sort(key=lambda entry: entry.path)
        listed = tuple(describe(entry.path, entry.stat) for entry in self._found[:_MAX_LISTED])
        return FileList(listed, self._truncated or len(self._found) > _MAX_LISTED)
