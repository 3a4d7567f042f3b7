"""Reading a file: what it is, its bytes as they are asked for, and its digest."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from ...errors import Conflict
from ...models import FileInfo
from ...protocol.file_headers import mime_type
from ...protocol.records_json import utc_timestamp

_BLOCK_BYTES = 1024 * 1024
_LATEST_SECONDS = 253_402_300_799  # the end of the year 9999


def describe(path: str, found: os.stat_result, sha256: str | None = None) -> FileInfo:
    """Return what there is to say about a file; code can give it any time at all."""
    mtime = utc_timestamp(min(max(found.st_mtime, 0), _LATEST_SECONDS))
    return FileInfo(path, found.st_size, mtime, mime_type(path), sha256)


class LocalReader:
    """An open file on disk; one block is read ahead."""

    def __init__(self, descriptor: int, info: FileInfo, in_thread: Callable[..., asyncio.Future[Any]]) -> None:
        self.info = info
        self._descriptor = descriptor
        self._in_thread = in_thread
        self._ahead: asyncio.Future[bytes] | None = None

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield exactly the bytes that the file had when it was opened."""
        left = self.info.size_bytes
        while left:
            # Shielded, or a reader that gives up would leave a thread with a descriptor that is no longer its own.
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
    """Hash the next bytes of a file; return how many, which is less only if the file ends or time is up."""
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
    """Return True: the answer of somebody who waits until the end."""
    return True
