"""Writing a file so that it is there as a whole or not at all, within the session's quota."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import QuotaExceeded
from ...models import FileInfo
from ...protocol.file_paths import TEMPORARY_PREFIX
from .file_errors import in_our_terms
from .quotas import FileLimits

_BLOCK_BYTES = 1024 * 1024

# Carries out a blocking function in a thread.
InThread = Callable[..., "asyncio.Future[Any]"]


class UnderWay(Protocol):
    """A file that is being written."""

    size_bytes: int | None
    received_bytes: int
    replaces: bool
    replaced_bytes: int


@dataclass(slots=True)
class Usage:
    """What a session's directory holds, and what is about to be added to it by uploads under way."""

    stored_bytes: int = 0
    stored_files: int = 0
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    # Held while the directory is measured and while a file is put into it, so that none counts twice or not at all.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check(self, upload: UnderWay, limits: FileLimits) -> None:
        """Refuse a file under way that would exceed what a file may have, or the session's quota.

        Raises
        ------
        QuotaExceeded
        """
        most = limits.max_file_bytes
        if most is not None and max(upload.received_bytes, upload.size_bytes or 0) > most:
            raise QuotaExceeded(f"a file may have at most {most} bytes (max_file_bytes)")
        coming = sum(max(u.received_bytes, u.size_bytes or 0) - u.replaced_bytes for u in self.under_way.values())
        if limits.max_session_bytes is not None and self.stored_bytes + coming > limits.max_session_bytes:
            raise QuotaExceeded(
                f"the session's files may have at most {limits.max_session_bytes} bytes together (max_session_bytes)"
            )
        new = sum(not upload.replaces for upload in self.under_way.values())
        if limits.max_session_files is not None and self.stored_files + new > limits.max_session_files:
            raise QuotaExceeded(f"a session may have at most {limits.max_session_files} files (max_session_files)")


class LocalUpload:
    """A file on its way to its place in a directory.

    What came is written and hashed in a thread while the next bytes come in, so that memory holds two blocks at most.

    Parameters
    ----------
    directory : int
        Descriptor of the directory; taken over.
    path : str
        Where the file goes; its last part is its name in the directory.
    replaced : os.stat_result or None
        What is in its place now.
    limits : FileLimits
        What whoever uploads it must keep to.
    keep_free_bytes : int
        Space of the disk that no upload takes, since records need it.
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
        describe: Callable[[os.stat_result, str], FileInfo],
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
        self._describe = describe
        self._hash = hashlib.sha256()
        self._temporary = TEMPORARY_PREFIX + secrets.token_hex(8)
        self._file = -1
        self._chunks: list[bytes] = []
        self._waiting_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Make sure that there is room, as far as that is known, and open a temporary file in the same directory."""
        usage = self._usage
        usage.under_way[self._temporary] = self
        try:
            self._check()
            with in_our_terms(self._path):
                self._file = await self._in_thread(self._open)
        except BaseException:
            await self.discard()
            raise

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._require_free(self._directory, self.size_bytes or 0)
        return os.open(self._temporary, flags, 0o644, dir_fd=self._directory)

    def _check(self) -> None:
        self._usage.check(self, self._limits)

    async def write(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.received_bytes += len(data)
        self._check()
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BLOCK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        await self._settle()
        chunks, self._chunks, self._waiting_bytes = self._chunks, [], 0
        self._writing = self._in_thread(self._write, chunks)

    async def _settle(self) -> None:
        if self._writing is not None:
            with in_our_terms(self._path):
                # Shielded, or whoever gives up would leave a thread with a descriptor that is no longer its own.
                await asyncio.shield(self._writing)
            self._writing = None

    def _require_free(self, descriptor: int, size_bytes: int) -> None:
        """Leave the disk's last space to the records of what runs."""
        if self._keep_free_bytes:
            found = os.fstatvfs(descriptor)
            if found.f_bavail * found.f_frsize < size_bytes + self._keep_free_bytes:
                raise OSError(errno.ENOSPC, "the rest of the disk is reserved")

    def _write(self, chunks: list[bytes]) -> None:
        self._require_free(self._file, sum(map(len, chunks)))
        for chunk in chunks:
            self._hash.update(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._file, rest) :]

    async def commit(self) -> tuple[FileInfo, bool]:
        """Put the file in its place, on disk and under its name; return what it is, and whether there was none."""
        try:
            await self._flush()
            await self._settle()
            with in_our_terms(self._path):
                await self._in_thread(os.fsync, self._file)
                async with self._usage.lock:
                    found, replaced = await self._in_thread(self._put_in_place)
                    self._usage.stored_bytes += self.received_bytes - self.replaced_bytes
                    self._usage.stored_files += replaced is None
                    self._usage.under_way.pop(self._temporary, None)
        except BaseException:
            await self.discard()
            raise
        info = self._describe(found, self._hash.hexdigest())
        await self.discard()
        return info, replaced is None

    def _put_in_place(self) -> tuple[os.stat_result, os.stat_result | None]:
        replaced = None
        with suppress(FileNotFoundError):
            replaced = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)
        return os.fstat(self._file), replaced

    async def discard(self) -> None:
        """Close what is open and remove what is not in its place."""
        if self._closed:
            return
        self._closed = True
        self._chunks.clear()
        if self._writing is not None:
            await asyncio.wait([self._writing])  # its descriptor must not be closed under it
            self._writing.exception()
        self._usage.under_way.pop(self._temporary, None)
        await self._in_thread(self._clean_up)

    def _clean_up(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)
