"""File transfer: quotas, and readers, atomic uploads and hashing on this machine."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from ...auth.policy import Policy
from ...errors import Conflict, QuotaExceeded
from ...models import FileInfo, FilesEvent
from ...protocol.file_requests import TEMPORARY_PREFIX, mime_type
from ..ports import NO_LIMITS, FileLimits
from .confinement import api_errors
from .directory_scan import ChangeWatch, Entry, mtime_of

_BLOCK_BYTES = 1024 * 1024

# Runs a blocking function in a thread.
InThread = Callable[..., "asyncio.Future[Any]"]


def limits_of(policies: Iterable[Policy]) -> FileLimits:
    """Return the strictest limits of these policies."""
    limits = NO_LIMITS
    for policy in policies:
        limits = limits.within(FileLimits(policy.max_file_bytes, policy.max_session_bytes, policy.max_session_files))
    return limits


class UnderWay(Protocol):
    """A file that is being written."""

    size_bytes: int | None
    received_bytes: int
    replaces: bool
    replaced_bytes: int


@dataclass(slots=True)
class Usage:
    """Contents of a session's directory, and the uploads that are about to be added."""

    stored_bytes: int = 0
    stored_files: int = 0
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    # Held while the directory is measured and while a file is put into it, or one could count twice.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check(self, upload: UnderWay, limits: FileLimits) -> None:
        """Check an upload under way against the limits.

        Raises
        ------
        QuotaExceeded
            If the file is too large, or the session's files would be too large or too many.
        """
        most = limits.max_file_bytes
        if most is not None and max(upload.received_bytes, upload.size_bytes or 0) > most:
            raise QuotaExceeded(f"a file may have at most {most} bytes (max_file_bytes); upload a smaller one")
        # A client may announce no size, or send more than it has announced.
        coming = sum(max(u.received_bytes, u.size_bytes or 0) - u.replaced_bytes for u in self.under_way.values())
        if limits.max_session_bytes is not None and self.stored_bytes + coming > limits.max_session_bytes:
            raise QuotaExceeded(
                f"the session's files may have at most {limits.max_session_bytes} bytes together (max_session_bytes); "
                "delete some first"
            )
        new = sum(not upload.replaces for upload in self.under_way.values())
        if limits.max_session_files is not None and self.stored_files + new > limits.max_session_files:
            raise QuotaExceeded(f"a session may have at most {limits.max_session_files} files (max_session_files)")


def describe(path: str, found: os.stat_result, sha256: str | None = None) -> FileInfo:
    """Return the record of a file."""
    return FileInfo(path, found.st_size, mtime_of(found), mime_type(path), sha256)


# Bounds of the list of changed files in an execution's record.
_MAX_REPORTED = 1_000
_MAX_REPORTED_PATH_BYTES = 128 * 1024


def files_event(entries: list[Entry]) -> FilesEvent:
    """Return the event for changed files: the first by path, as many as a record may have."""
    entries.sort(key=lambda entry: entry.path)
    path_bytes = accumulate(len(entry.path.encode()) for entry in entries[:_MAX_REPORTED])
    fitting = sum(total <= _MAX_REPORTED_PATH_BYTES for total in path_bytes)
    named = tuple(describe(entry.path, entry.stat) for entry in entries[:fitting])
    return FilesEvent(named, len(entries) - fitting)


class LocalReader:
    """An open file on disk; one block is read ahead."""

    def __init__(self, descriptor: int, info: FileInfo, in_thread: Callable[..., asyncio.Future[Any]]) -> None:
        self.info = info
        self._descriptor = descriptor
        self._in_thread = in_thread
        self._ahead: asyncio.Future[bytes] | None = None

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield exactly the bytes that the file had when it was opened."""
        # This length is announced to the client before the first block, so a file that grows is cut there.
        left = self.info.size_bytes
        while left:
            # Shielded: a cancelled reader must not leave the thread a descriptor that was closed and reused.
            block = await asyncio.shield(self._ahead or self._read(left))
            left -= len(block)
            if not block:
                raise Conflict(f"{self.info.path!r} became shorter while it was being read")
            self._ahead = self._read(left) if left else None
            yield block

    def _read(self, left: int) -> asyncio.Future[bytes]:
        self._ahead = self._in_thread(os.read, self._descriptor, min(_BLOCK_BYTES, left))
        return self._ahead

    async def close(self) -> None:
        """Close the file, once nothing reads it any more."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def hash_next(hash_: Any, descriptor: int, size_bytes: int, stopping: Callable[[], bool]) -> int:
    """Hash the next bytes of a file; return how many, fewer than `size_bytes` only at its end or when stopping."""
    left = size_bytes
    while left > 0 and not stopping():
        block = os.read(descriptor, min(_BLOCK_BYTES, left))
        if not block:
            break
        hash_.update(block)
        left -= len(block)
    return size_bytes - left


def sha256_of(descriptor: int, size: int) -> str:
    """Return the SHA-256 of the next `size` bytes, in hexadecimal; of fewer if the file ends."""
    hash_ = hashlib.sha256()
    hash_next(hash_, descriptor, size, lambda: False)
    return hash_.hexdigest()


def always() -> bool:
    """Return True, for a caller that waits until the end."""
    return True


class LocalUpload:
    """Upload into a directory: the file appears as a whole or not at all.

    Received bytes are written and hashed in a thread while the next ones come in, so memory holds two blocks at most.

    Parameters
    ----------
    directory : int
        Descriptor of the directory; taken over.
    path : str
        Path of the file; its last part is its name in the directory.
    replaced : os.stat_result or None
        Status of the file that it replaces.
    limits : FileLimits
        Limits of the server and of the caller.
    watch : ChangeWatch or None
        Change detection that must not report the upload.
    keep_free_bytes : int
        Space of the disk that is reserved for records.
    """

    def __init__(
        self,
        directory: int,
        path: str,
        size_bytes: int | None,
        replaced: os.stat_result | None,
        *,
        limits: FileLimits,
        usage: Usage,
        in_thread: InThread,
        watch: ChangeWatch | None,
        keep_free_bytes: int = 0,
    ) -> None:
        self._keep_free_bytes = keep_free_bytes
        self.size_bytes = size_bytes
        self.received_bytes = 0
        self.replaces = replaced is not None
        self.replaced_bytes = replaced.st_size if replaced is not None and stat.S_ISREG(replaced.st_mode) else 0
        self._directory = directory
        self._path = path
        self._name = path.rpartition("/")[2]
        self._limits = limits
        self._usage = usage
        self._in_thread = in_thread
        self._watch = watch
        self._hash = hashlib.sha256()
        self._temporary = TEMPORARY_PREFIX + secrets.token_hex(8)
        self._file = -1
        self._chunks: list[bytes] = []
        self._waiting_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Check the quota, and open a temporary file in the same directory."""
        usage = self._usage
        # Counted before the check, so that of two uploads only one gets the last bytes.
        usage.under_way[self._temporary] = self
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.discard)
            self._check()
            with api_errors(self._path):
                self._file = await self._in_thread(self._open)
            undo.pop_all()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._require_free(self._directory, self.size_bytes or 0)
        return os.open(self._temporary, flags, 0o644, dir_fd=self._directory)

    def _check(self) -> None:
        self._usage.check(self, self._limits)

    async def write(self, data: bytes) -> None:
        """Accept the next bytes."""
        self.received_bytes += len(data)
        self._check()
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BLOCK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        # One write at a time: the hash needs their order, and memory holds no third block.
        await self._settle()
        chunks, self._chunks, self._waiting_bytes = self._chunks, [], 0
        self._writing = self._in_thread(self._write, chunks)

    async def _settle(self) -> None:
        if self._writing is not None:
            with api_errors(self._path):
                # Shielded: a cancelled request must not leave the thread a descriptor that was closed and reused.
                await asyncio.shield(self._writing)
            self._writing = None

    def _require_free(self, descriptor: int, size_bytes: int) -> None:
        """Raise an `OSError` if less than the reserve would be left: records of executions need it."""
        if self._keep_free_bytes:
            found = os.fstatvfs(descriptor)
            if found.f_bavail * found.f_frsize < size_bytes + self._keep_free_bytes:
                raise OSError(errno.ENOSPC, "the rest of the disk is reserved")

    def _write(self, chunks: list[bytes]) -> None:
        # At each block, since code fills the same disk meanwhile.
        self._require_free(self._file, sum(map(len, chunks)))
        for chunk in chunks:
            self._hash.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._file, rest) :]

    async def commit(self) -> tuple[FileInfo, bool]:
        """Sync the file and rename it into its place; return its record, and whether it is new."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.discard)
            await self._flush()
            await self._settle()
            with api_errors(self._path):
                # Before the rename: a power failure must not leave the name without its content.
                await self._in_thread(os.fsync, self._file)
                async with self._usage.lock:
                    found, replaced = await self._in_thread(self._put_in_place)
                    self._usage.stored_bytes += self.received_bytes - self.replaced_bytes
                    self._usage.stored_files += replaced is None
                    self._usage.under_way.pop(self._temporary, None)
            undo.pop_all()
        if self._watch is not None:
            self._watch.note(self._path, found)
            await self._watch.keep_text(self._path, found)
        info = describe(self._path, found, self._hash.hexdigest())
        await self.discard()
        return info, replaced is None

    def _put_in_place(self) -> tuple[os.stat_result, os.stat_result | None]:
        replaced = None
        with suppress(FileNotFoundError):
            # Code may have made or removed the file since the upload began.
            replaced = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
        # A link that code has put there is replaced, and not followed.
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)  # a rename survives a power failure only with its directory
        return os.fstat(self._file), replaced

    async def discard(self) -> None:
        """Close all descriptors and remove an incomplete file."""
        if self._closed:
            return
        self._closed = True
        self._chunks.clear()
        if self._writing is not None:
            await asyncio.wait([self._writing])  # its descriptor must not be closed under it
            self._writing.exception()  # retrieved, or asyncio would log it as never retrieved
        self._usage.under_way.pop(self._temporary, None)
        await self._in_thread(self._clean_up)

    def _clean_up(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)  # after a commit there is no such name
        os.close(self._directory)
