"""Files of sessions whose kernels run on other machines, as their provisioners offer them, or that have none.

Contents pass through an unnamed temporary file, so memory holds a block at a time, and only whole files arrive. Changed
files are not reported: that would take one more request after each run.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, Any, Protocol

from ...errors import (
    ClientError,
    Conflict,
    ExecError,
    FileNotFound,
    FilesNotAvailable,
    Forbidden,
    NotAFile,
    NotFound,
    PayloadTooLarge,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from ...models import FileChange, FileInfo
from ...protocol.file_requests import path_parts
from ...protocol.records_json import utc_timestamp
from ..ports import NO_LIMITS, FileLimits, FileList, FileReader, FileWriter, KernelFiles
from .confinement import api_errors
from .file_transfer import LocalReader, Usage, always, sha256_of


class NoFiles:
    """Null object for sessions without files; every request raises `FilesNotAvailable`.

    Parameters
    ----------
    reason : str
        Message of the error.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def prepare(self, session_id: str) -> None:
        """Return None: the kernel's directory is the host's choice."""

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Raise `FilesNotAvailable`."""
        raise self._not_available(path)

    async def open(self, session_id: str, path: str) -> FileReader:
        """Raise `FilesNotAvailable`."""
        raise self._not_available(path)

    async def digest(self, session_id: str, path: str, is_wanted: Callable[[], bool] = always) -> str:
        """Raise `FilesNotAvailable`."""
        raise self._not_available(path)

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> FileWriter:
        """Raise `FilesNotAvailable`."""
        raise self._not_available(path)

    async def delete(self, session_id: str, path: str) -> None:
        """Raise `FilesNotAvailable`."""
        raise self._not_available(path)

    async def changes(self, session_id: str) -> None:
        """Return None: no changes are known."""

    async def change(self, session_id: str, path: str, mtime: str) -> FileChange:
        """Raise `FilesNotAvailable`: no texts are kept."""
        raise self._not_available(path)

    async def session_ended(self, session_id: str) -> None:
        """Do nothing."""

    async def remove(self, session_id: str) -> None:
        """Do nothing."""

    def start_removal(self, session_ids: Sequence[str]) -> None:
        """Do nothing."""

    def remove_unused(self, session_ids: Collection[str]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def _not_available(self, path: str) -> FilesNotAvailable:
        if path:
            path_parts(path)  # an invalid path is reported as such everywhere
        return FilesNotAvailable(self._reason)


#: For servers without session directories.
NOWHERE = NoFiles(
    "sessions of this server work in the server's own directory, so there are no files of a session; see "
    "ExecEngine.session_directories"
)
#: For sessions that share a kernel with its user.
ATTACHED = NoFiles("the session is attached to a kernel that works where its user started it, so it has no files")


_MAX_LISTED = 10_000
_NOT_THERE = (
    "the session's kernel runs elsewhere; its files are there, and can be reached from here only while it lives, and if"
    " its provisioner offers it"
)


class KernelFilesSource(Protocol):
    """Source of the files of sessions' present kernels."""

    def kernel_files(self, session_id: str) -> KernelFiles | None:
        """Return the files of a session's kernel; None if it has none that can be reached."""


@contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    """Raise errors of the remote service as those of the API.

    The service's refusal of our credentials is not the caller's: a 401 from there becomes `Unavailable`.
    """
    try:
        yield
    except (FilesNotAvailable, NotAFile):  # ours, and kinds of `Conflict`, which is the service's here
        raise
    except Conflict as error:
        raise NotAFile(f"{path!r} is no file: {error.message}") from error
    except PayloadTooLarge as error:
        raise QuotaExceeded(error.message) from error
    except NotFound as error:
        raise FileNotFound(f"the session has no file {path!r}; list its files to find the name") from error
    except (Unauthenticated, Forbidden, ClientError) as error:
        raise Unavailable(f"the place of the session's files cannot be reached: {error.message}") from error


class RemoteFiles(NoFiles):
    """Files below the working directories of remote kernels."""

    def __init__(self, source: KernelFilesSource, limits: FileLimits) -> None:
        super().__init__(_NOT_THERE)
        self._source = source
        self._limits = limits
        self._usage: dict[str, Usage] = {}

    def _files(self, session_id: str) -> KernelFiles:
        files = self._source.kernel_files(session_id)
        if files is None:
            raise self._not_available("")
        return files

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Return the files below a directory, by path."""
        inside = f"{'/'.join(path_parts(path))}/" if path else ""
        found = [file for file in await self._all(session_id) if file.path.startswith(inside)]
        if path and not found:
            raise FileNotFound(f"the session has no directory {path!r}, or nothing is in it")
        return FileList(found[:_MAX_LISTED], len(found) > _MAX_LISTED)

    async def _all(self, session_id: str) -> list[FileInfo]:
        with _remote_errors(""):
            return sorted(await self._files(session_id).list_files(), key=lambda file: file.path)

    async def open(self, session_id: str, path: str) -> LocalReader:
        """Fetch a file, and open the copy."""
        copy = await self._fetch(session_id, path)
        try:
            info = next((file for file in await self._all(session_id) if file.path == path), None)
            if info is None:
                raise FileNotFound(f"the session has no file {path!r}; list its files to find the name")
            # The file may have changed between the two requests, so the size is that of the copy.
            size = os.fstat(copy.fileno()).st_size
            return LocalReader(os.dup(copy.fileno()), replace(info, size_bytes=size), _in_thread)
        finally:
            copy.close()

    async def digest(self, session_id: str, path: str, is_wanted: Callable[[], bool] = always) -> str:
        """Return the SHA-256 of a file."""
        copy = await self._fetch(session_id, path)
        try:
            return await asyncio.to_thread(sha256_of, copy.fileno(), os.fstat(copy.fileno()).st_size)
        finally:
            copy.close()

    async def _fetch(self, session_id: str, path: str) -> IO[bytes]:
        path_parts(path)
        copy = _LimitedFile(self._limits.max_file_bytes)
        with ExitStack() as undo:
            undo.callback(copy.close)
            with _remote_errors(path), api_errors(path):
                await self._files(session_id).download(path, copy)
            copy.seek(0)
            undo.pop_all()
        return copy

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> RemoteUpload:
        """Start to write a file."""
        path_parts(path)
        usage = self._usage.setdefault(session_id, Usage())
        async with usage.lock:
            stored = await self._all(session_id)
            usage.stored_bytes, usage.stored_files = sum(file.size_bytes for file in stored), len(stored)
            return RemoteUpload(
                self._files(session_id), path, size_bytes, stored, limits=self._limits.within(limits), usage=usage
            )

    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""
        path_parts(path)
        with _remote_errors(path):
            await self._files(session_id).delete(path)

    async def session_ended(self, session_id: str) -> None:
        """Forget the session's usage: its files have ended with its kernel."""
        self._usage.pop(session_id, None)


class _LimitedFile(io.FileIO):
    """Unnamed temporary file with a size limit: the remote file may have any size, and grow."""

    def __init__(self, max_bytes: int | None) -> None:
        # `TemporaryFile` is a function that returns a built-in file object, so it cannot be derived from.
        with tempfile.TemporaryFile() as file:
            super().__init__(os.dup(file.fileno()), "r+b")
        self._max_bytes = max_bytes

    def write(self, data: Any) -> int:
        """Write the bytes, or raise `QuotaExceeded` if they exceed the limit."""
        if self._max_bytes is not None and self.tell() + len(data) > self._max_bytes:
            raise QuotaExceeded(
                f"a file may have at most {self._max_bytes} bytes (max_file_bytes); upload a smaller one"
            )
        return super().write(data)


class RemoteUpload:
    """Upload to a remote kernel: the file is sent when all of it has arrived.

    Parameters
    ----------
    stored : sequence of FileInfo
        Files that are there already.
    """

    def __init__(
        self,
        files: KernelFiles,
        path: str,
        size_bytes: int | None,
        stored: Sequence[FileInfo],
        *,
        limits: FileLimits,
        usage: Usage,
    ) -> None:
        self.size_bytes = size_bytes
        self.received_bytes = 0
        replaced = next((file for file in stored if file.path == path), None)
        self.replaces = replaced is not None
        self.replaced_bytes = 0 if replaced is None else replaced.size_bytes
        self._files = files
        self._path = path
        self._limits = limits
        self._usage = usage
        self._hash = hashlib.sha256()
        self._copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `discard`
        self._key = str(id(self))
        # Counted before the check, so that of two uploads only one gets the last bytes.
        usage.under_way[self._key] = self
        try:
            usage.check(self, limits)
        except ExecError:
            self._forget()
            raise

    def _forget(self) -> None:
        self._usage.under_way.pop(self._key, None)
        self._copy.close()

    async def write(self, data: bytes) -> None:
        """Accept the next bytes."""
        self.received_bytes += len(data)
        self._usage.check(self, self._limits)
        with api_errors(self._path):
            await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._copy.write(data)

    async def commit(self) -> tuple[FileInfo, bool]:
        """Send the file; return its record there, and whether it is new."""
        try:
            with _remote_errors(self._path), api_errors(self._path):
                self._copy.seek(0)
                async with self._usage.lock:
                    await self._files.upload(self._path, self._copy)
                    self._usage.stored_bytes += self.received_bytes - self.replaced_bytes
                    self._usage.stored_files += not self.replaces
                    stored = await self._files.list_files()
        finally:
            self._forget()
        here = FileInfo(self._path, self.received_bytes, utc_timestamp(0), "")
        info = next((file for file in stored if file.path == self._path), here)
        return replace(info, sha256=self._hash.hexdigest()), not self.replaces

    async def discard(self) -> None:
        """Remove the temporary file."""
        self._forget()


def _in_thread(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(None, function, *args)
