"""The files of a kernel's session, for the server that the kernel belongs to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import IO, Any, Protocol, TypeVar

from ...errors import FileNotFound, Unavailable
from ...models import FileInfo
from ...protocol.file_headers import mime_type
from ..protocol.file_format import ACAFile
from .aca_kernel import ACAKernel
from .kernel_loop import KernelLoop

T = TypeVar("T")
_ENDED = "the kernel that the files belong to has ended"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)?")


class FilesClient(Protocol):
    """The client of session pools, as far as files are concerned."""

    async def files(self, identifier: str, directory: str = "", *, recursive: bool = False) -> list[ACAFile]:
        """Return the files of a directory."""

    async def upload(self, identifier: str, path: str, source: IO[bytes]) -> ACAFile:
        """Upload a file."""

    async def download(self, identifier: str, path: str, target: IO[bytes]) -> bytes | None:
        """Download a file."""

    async def delete_file(self, identifier: str, path: str) -> None:
        """Delete a file."""


class KernelFiles:
    """What the engine finds as ``files`` of a provisioner; can be used on any event loop.

    The session is that of the kernel's present life, and its files are moved while its code runs. What is uploaded into
    one that has expired meanwhile is lost with it, which the next run says.

    Parameters
    ----------
    client : callable
        Returns the client, in the loop's thread.
    """

    def __init__(self, loop: KernelLoop, kernel: ACAKernel, client: Callable[[], FilesClient]) -> None:
        self._loop = loop
        self._kernel = kernel
        self._client = client

    async def list_files(self) -> list[FileInfo]:
        """Return the files below ``/mnt/data``; before api-version 2025-10-02 those of this directory alone."""
        return await self._run(self._list())

    async def download(self, path: str, target: IO[bytes]) -> None:
        """Write a file's content into another one; raises `NotFound`."""
        await self._run(self._download(path, target))

    async def upload(self, path: str, source: IO[bytes]) -> None:
        """Put a file into the session, which begins if there is none yet."""
        await self._run(self._upload(path, source))

    async def delete(self, path: str) -> None:
        """Delete a file; raises `NotFound`."""
        await self._run(self._delete(path))

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.wrap_future(self._loop.run(coroutine))
        except RuntimeError:
            raise Unavailable(_ENDED) from None
        try:
            await asyncio.wait([running])  # which tells a loop that ends from a caller that gives up
        finally:
            running.cancel()
        if running.cancelled():
            raise Unavailable(_ENDED)
        return running.result()

    # --- in the loop's thread ---

    async def _list(self) -> list[FileInfo]:
        if not self._kernel.session.begun:
            return []
        files = await self._client().files(self._kernel.session.identifier, recursive=True)
        return [described(file) for file in files if not file.is_directory]

    async def _download(self, path: str, target: IO[bytes]) -> None:
        await self._client().download(self._identifier(path), path, target)

    async def _upload(self, path: str, source: IO[bytes]) -> None:
        await self._kernel.session.begin()
        await self._client().upload(self._kernel.session.identifier, path, source)

    async def _delete(self, path: str) -> None:
        await self._client().delete_file(self._identifier(path), path)

    def _identifier(self, path: str) -> str:
        if not self._kernel.session.begun:
            raise FileNotFound(f"the session has no file {path!r}")
        return self._kernel.session.identifier


def described(file: ACAFile) -> FileInfo:
    """Return what a file is in our terms; the service tells times with seven digits of the second."""
    time = _TIME.fullmatch(file.last_modified)
    mtime = f"{time[1]}.{(time[2] or '')[:3].ljust(3, '0')}Z" if time is not None else file.last_modified
    return FileInfo(file.path, file.size_bytes, mtime, mime_type(file.path))
