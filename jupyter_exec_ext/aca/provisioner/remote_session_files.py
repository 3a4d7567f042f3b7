"""Files of a kernel's session on Azure, for the server that the kernel belongs to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ...errors import FileNotFound, Unavailable
from ...models import FileInfo
from ...protocol.file_requests import mime_type
from ..protocol.file_format import ACAFile
from .aca_kernel import ACAKernel
from .kernel_loop import KernelLoop

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient

T = TypeVar("T")
_ENDED = "the kernel that the files belong to has ended"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)?")


class KernelFiles:
    """The `files` of a provisioner, which the engine uses on any event loop.

    The session is that of the kernel's present life. Files can be moved while code runs. If the session has expired
    meanwhile, an upload is lost with it, which the next run reports.

    Parameters
    ----------
    loop : KernelLoop
        The loop of the kernel.
    kernel : ACAKernel
        The kernel whose session has the files.
    client : callable
        Returns the client, in the loop's thread.
    """

    def __init__(self, loop: KernelLoop, kernel: ACAKernel, client: Callable[[], AsyncACAClient]) -> None:
        self._loop = loop
        self._kernel = kernel
        self._client = client

    async def list_files(self) -> list[FileInfo]:
        """Return the files below ``/mnt/data``; before api-version 2025-10-02 those of this directory only."""
        return await self._run(self._list())

    async def download(self, path: str, target: IO[bytes]) -> None:
        """Write the content of a session's file into `target`; raises `NotFound`."""
        await self._run(self._download(path, target))

    async def upload(self, path: str, source: IO[bytes]) -> None:
        """Upload a file into the session, which is started if needed."""
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
            await asyncio.wait([running])  # unlike await, this tells a loop that ends from a caller that is cancelled
        finally:
            running.cancel()
        if running.cancelled():
            raise Unavailable(_ENDED)
        return running.result()

    # --- in the loop's thread ---

    async def _list(self) -> list[FileInfo]:
        if not self._kernel.session.is_started:
            return []
        files = await self._client().files(self._kernel.session.identifier, recursive=True)
        return [file_info_of(file) for file in files if not file.is_directory]

    async def _download(self, path: str, target: IO[bytes]) -> None:
        await self._client().download(self._identifier(path), path, target)

    async def _upload(self, path: str, source: IO[bytes]) -> None:
        await self._kernel.session.start()
        await self._client().upload(self._kernel.session.identifier, path, source)

    async def _delete(self, path: str) -> None:
        await self._client().delete_file(self._identifier(path), path)

    def _identifier(self, path: str) -> str:
        if not self._kernel.session.is_started:
            raise FileNotFound(f"the session has no file {path!r}")
        return self._kernel.session.identifier


def file_info_of(file: ACAFile) -> FileInfo:
    """Return a file of the service as our record; its times have seven digits of the second, ours three."""
    time = _TIME.fullmatch(file.last_modified)
    mtime = f"{time[1]}.{(time[2] or '')[:3].ljust(3, '0')}Z" if time is not None else file.last_modified
    return FileInfo(file.path, file.size_bytes, mtime, mime_type(file.path))
