"""Local files: the sessions' working directories on this machine's disk.

Each session has one, `<work_root>/<session id>`, in which its kernels start. Code there may replace paths at any time,
so everything below `work_root` is opened by descriptors; see `confinement`. Disk access happens in threads: a slow disk
delays only the requests that need it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from logging import Logger, LoggerAdapter
from pathlib import Path
from typing import Any, TypeVar

from ...errors import Conflict, FileNotFound, KernelStartFailed, NotAFile, QuotaExceeded
from ...models import FileChange, FilesEvent
from ...protocol.file_requests import path_parts
from ...system.removal import remove_tree, retry_leftovers
from ...system.resources import is_out_of_resources, make_resources_error
from ..concurrency import FairTurns, wait_shielded
from ..ports import NO_LIMITS, FileLimits, FileList
from .checkpoint_files import PLACE
from .confinement import DIRECTORY, api_errors, open_directory, open_file
from .directory_scan import PACKAGES_DIRECTORY, ChangeWatch, SlicedWalk, TooManyEntriesError, walk
from .file_transfer import LocalReader, LocalUpload, Usage, always, describe, files_event, hash_next
from .session_space import remove_unused

T = TypeVar("T")
_THREADS = 4
_HASH_THREADS = 2
# Fewer than the threads, so that reads and writes always find one.
_WALKS_AT_ONCE = 2
# Hashed in one turn, which takes some ten milliseconds; then other sessions have theirs.
_HASH_SLICE_BYTES = 16 * 1024 * 1024
#: Largest file that is hashed. Code can create a sparse file of any size in no time.
MAX_HASHED_BYTES = 8 * 1024**3
_MAX_LISTED = 10_000
_MAX_WALKED = 100_000


class LocalFiles:
    """Working directories below `work_root`.

    Parameters
    ----------
    work_root : Path
        Created when it is first needed, for this user alone.
    max_watched_entries : int
        A directory with more entries is not watched for changes; 0 to watch none.
    keep_free_bytes : int
        Space of the disk that is reserved for records.
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
        # Threads of their own, so that a slow disk does not delay other work in the default executor.
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="exec-files")
        self._hash_pool = ThreadPoolExecutor(_HASH_THREADS, thread_name_prefix="exec-hash")
        self._hash_turns = FairTurns(_HASH_THREADS)
        self._walk_turns = FairTurns(_WALKS_AT_ONCE)
        self._stopping = threading.Event()

    def close(self) -> None:
        """End the threads, after what they are doing."""
        self._stopping.set()
        self._pool.shutdown(wait=False)
        self._hash_pool.shutdown(wait=False)

    def _in_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def _open_root(self, session_id: str) -> int:
        """Open a session's directory, which must not be a link."""
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # an administrator may make it a link
        try:
            return os.open(session_id, DIRECTORY, dir_fd=root)
        finally:
            os.close(root)

    @contextmanager
    def _root_of(self, session_id: str) -> Iterator[int]:
        descriptor = self._open_root(session_id)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    # --- the directory's life ---

    async def prepare(self, session_id: str) -> str | None:
        """Create the session's directory if it is missing."""
        try:
            await self._in_thread(self._prepare, session_id)
        except OSError as error:
            if is_out_of_resources(error):
                raise make_resources_error(error) from error
            raise KernelStartFailed(f"the session's working directory cannot be made: {error}") from error
        if self._max_watched and session_id not in self._watches:
            self._watches[session_id] = ChangeWatch(lambda: self._open_root(session_id), self._max_watched)
        return str(self._root / session_id)

    def _prepare(self, session_id: str) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self._root / session_id, 0o700)
        os.close(self._open_root(session_id))  # raises if there is a link, or no directory

    async def session_ended(self, session_id: str) -> None:
        """Stop watching for changes, and remove the packages, and the directory if it is empty."""
        self._watches.pop(session_id, None)
        await self._in_thread(remove_unused, self._root / session_id)

    async def remove(self, session_id: str) -> None:
        """Remove the session's directory."""
        await self._in_thread(remove_tree, self._root / session_id)
        self._usage.pop(session_id, None)

    def start_removal(self, session_ids: Sequence[str]) -> None:
        """Remove sessions' directories in threads; may be called from any thread."""
        with suppress(RuntimeError):  # after `close`: the threads accept nothing any more
            for session_id in session_ids:
                self._usage.pop(session_id, None)  # atomic, so a thread of the store may do this
                self._pool.submit(remove_tree, self._root / session_id)

    def remove_unused(self, session_ids: Collection[str]) -> None:
        """Remove packages and checkpoints of sessions that have ended, and their directories if they are empty."""
        retry_leftovers(self._root)
        for session_id in session_ids:
            remove_tree(self._root / PLACE / session_id, move_aside=False)
            remove_unused(self._root / session_id)

    # --- reading ---

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Return the files below a directory, by path."""
        parts = path_parts(path) if path else ()
        with api_errors(path):
            try:
                directory = await self._in_thread(self._open_directory, session_id, parts)
            except FileNotFoundError:
                if path:
                    raise
                return FileList(())  # an ended session without files has no directory
            found = SlicedWalk(walk(directory, _MAX_WALKED, prefix="".join(f"{part}/" for part in parts)))
            try:
                while not found.has_ended:
                    async with self._walk_turns.turn(session_id):
                        await wait_shielded(self._in_thread(found.continue_walk))
                async with self._walk_turns.turn(session_id):
                    return await self._in_thread(_file_list, found)
            finally:
                found.entries.close()  # the generator holds descriptors of the directories that it is in
                os.close(directory)

    def _open_directory(self, session_id: str, parts: tuple[str, ...]) -> int:
        with self._root_of(session_id) as root:
            return open_directory(root, parts)

    async def open(self, session_id: str, path: str) -> LocalReader:
        """Open a file for reading."""
        parts = path_parts(path)
        with api_errors(path):
            descriptor, found = await self._in_thread(self._open, session_id, parts)
        return LocalReader(descriptor, describe(path, found), self._in_thread)

    def _open(self, session_id: str, parts: tuple[str, ...]) -> tuple[int, os.stat_result]:
        with self._root_of(session_id) as root:
            return open_file(root, parts)

    async def digest(self, session_id: str, path: str, is_wanted: Callable[[], bool] = always) -> str:
        """Return the SHA-256 of a file, hashed in fair turns with other sessions' files."""
        parts = path_parts(path)
        with api_errors(path):
            descriptor, found = await self._in_thread(self._open, session_id, parts)
            try:
                if found.st_size > MAX_HASHED_BYTES:
                    raise QuotaExceeded(
                        f"{path!r} has {found.st_size} bytes, and more than {MAX_HASHED_BYTES} are not hashed; "
                        "ask for it without its digest"
                    )
                return await self._digest(session_id, path, descriptor, found.st_size, is_wanted)
            finally:
                os.close(descriptor)

    async def _digest(
        self, session_id: str, path: str, descriptor: int, size_bytes: int, is_wanted: Callable[[], bool]
    ) -> str:
        hash_ = hashlib.sha256()
        loop = asyncio.get_running_loop()
        while size_bytes > 0:
            async with self._hash_turns.turn(session_id):
                if not is_wanted() or self._stopping.is_set():
                    raise Conflict(f"the hashing of {path!r} was given up, since nobody waits for it")
                slice_bytes = min(size_bytes, _HASH_SLICE_BYTES)
                job = loop.run_in_executor(
                    self._hash_pool, hash_next, hash_, descriptor, slice_bytes, self._stopping.is_set
                )
                hashed = await wait_shielded(job)
            size_bytes = size_bytes - hashed if hashed == slice_bytes else 0  # less is the end of the file
        return hash_.hexdigest()

    # --- writing ---

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> LocalUpload:
        """Start to write a file."""
        parts = path_parts(path)
        limits = self._limits.within(limits)
        if limits.max_file_bytes is not None and (size_bytes or 0) > limits.max_file_bytes:
            raise QuotaExceeded(
                f"a file may have at most {limits.max_file_bytes} bytes (max_file_bytes); upload a smaller one"
            )
        usage = self._usage.setdefault(session_id, Usage())
        counts = limits.max_session_bytes is not None or limits.max_session_files is not None

        async with usage.lock:
            with api_errors(path):
                async with self._walk_turns.turn(session_id):
                    directory, replaced, stored = await self._in_thread(
                        self._open_target, session_id, parts, usage if counts else None
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
                watch=self._watches.get(session_id),
                keep_free_bytes=self._keep_free_bytes,
            )
            await upload.begin()
        return upload

    def _open_target(
        self, session_id: str, parts: tuple[str, ...], usage: Usage | None
    ) -> tuple[int, os.stat_result | None, tuple[int, int] | None]:
        """Return a descriptor of the file's directory, the status of the file to replace, and the stored total.

        The total, in bytes and files, is measured only if there is a `usage`.
        """
        self._prepare(session_id)  # the code may have removed it
        with self._root_of(session_id) as root:
            stored = None if usage is None else self._measure(root, usage)
            directory = open_directory(root, parts[:-1], make=True)
        with ExitStack() as undo:
            undo.callback(os.close, directory)
            replaced = None
            with suppress(FileNotFoundError):
                replaced = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            if replaced is not None and stat.S_ISDIR(replaced.st_mode):
                raise NotAFile(f"{'/'.join(parts)!r} is a directory")
            undo.pop_all()
        return directory, replaced, stored

    def _measure(self, root: int, usage: Usage) -> tuple[int, int]:
        """Return how many bytes and files are stored, and remove incomplete uploads of a killed server."""

        def remove_abandoned(directory: int, name: str) -> None:
            if name not in usage.under_way:
                with suppress(OSError):
                    os.unlink(name, dir_fd=directory)

        try:
            found = list(walk(root, _MAX_WALKED, on_temporary=remove_abandoned, includes_packages=True))
        except TooManyEntriesError:
            raise QuotaExceeded(
                f"the session has more than {_MAX_WALKED} files and directories; delete some first"
            ) from None
        files = sum(not entry.path.startswith(f"{PACKAGES_DIRECTORY}/") for entry in found)
        return sum(entry.stat.st_size for entry in found), files

    async def delete(self, session_id: str, path: str) -> None:
        """Delete a regular file."""
        parts = path_parts(path)
        with api_errors(path):
            await self._in_thread(self._delete, session_id, parts)
        if session_id in self._watches:
            self._watches[session_id].note(path, None)  # not a change that the next run has made

    def _delete(self, session_id: str, parts: tuple[str, ...]) -> None:
        directory = self._open_directory(session_id, parts[:-1])
        try:
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False).st_mode):
                raise NotAFile(f"{'/'.join(parts)!r} is not a regular file")
            os.unlink(parts[-1], dir_fd=directory)
        finally:
            os.close(directory)

    # --- changes ---

    async def changes(self, session_id: str) -> FilesEvent | None:
        """Return the files that code has created or changed since the last call."""
        watch = self._watches.get(session_id)
        if watch is None:
            return None
        try:
            entries = await watch.changes()
        except OSError as error:
            self._log.debug("the directory of session %s cannot be read: %s", session_id, error)
            return None
        return files_event(entries) if entries else None

    async def change(self, session_id: str, path: str, mtime: str) -> FileChange:
        """Return the texts of a file before and after it was changed."""
        path = "/".join(path_parts(path))
        watch = self._watches.get(session_id)
        found = None if watch is None else watch.texts.change(path, mtime)
        if found is None:
            raise FileNotFound(f"no texts of that change of {path!r} are kept; download the file as it is now")
        return found


def _file_list(found: SlicedWalk) -> FileList:
    entries = sorted(found.entries_found, key=lambda entry: entry.path)
    listed = tuple(describe(entry.path, entry.stat) for entry in entries[:_MAX_LISTED])
    return FileList(listed, found.is_truncated or len(entries) > _MAX_LISTED)
