"""Interfaces of files: working directories of sessions, and the files of kernels on other machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from ...auth.policy import least
from ...models import FileChange, FileInfo, FilesEvent


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits on uploads; None for no limit. See the traits, and the fields of a policy, of the same names."""

    max_file_bytes: int | None = None
    max_session_bytes: int | None = None
    max_session_files: int | None = None

    def within(self, other: FileLimits) -> FileLimits:
        """Return the stricter of both limits."""
        return FileLimits(
            least((self.max_file_bytes, other.max_file_bytes)),
            least((self.max_session_bytes, other.max_session_bytes)),
            least((self.max_session_files, other.max_session_files)),
        )


NO_LIMITS = FileLimits()


class FileReader(Protocol):
    """Open file for reading; its owner closes it."""

    @property
    def info(self) -> FileInfo:
        """Name, size and digest, as of its opening."""

    def blocks(self) -> AsyncIterator[bytes]:
        """Yield as many bytes as `info` has; the client was told that number before the first one.

        Raises
        ------
        Conflict
            If the file became shorter meanwhile.
        """

    async def close(self) -> None:
        """Close the file."""


class FileWriter(Protocol):
    """A file that is being written: it is there as a whole, or not at all."""

    async def write(self, data: bytes) -> None:
        """Accept the next bytes.

        Raises
        ------
        QuotaExceeded, StorageFull
        """

    async def commit(self) -> tuple[FileInfo, bool]:
        """Put the file in its place; return what it is now, and whether there was none before.

        Raises
        ------
        NotAFile, StorageFull
        """

    async def discard(self) -> None:
        """Remove the incomplete file; after `commit` this does nothing."""


class KernelFiles(Protocol):
    """The files of one kernel that does not run on this machine: what its provisioner offers as ``files``.

    Every method may raise `NotFound`, and `InvalidRequest` for a path that is not possible there. If the place
    cannot be reached, it raises `ClientError`, `Unauthenticated` or `Forbidden`.
    """

    async def list_files(self) -> Sequence[FileInfo]:
        """Return the files below the kernel's working directory."""

    async def download(self, path: str, target: IO[bytes]) -> None:
        """Write a file's content into a local one."""

    async def upload(self, path: str, source: IO[bytes]) -> None:
        """Put a local file's content there, as a whole or not at all."""

    async def delete(self, path: str) -> None:
        """Delete a file."""


@dataclass(frozen=True, slots=True)
class FileList:
    """Files, by path; `truncated` if there are more than are listed."""

    files: Sequence[FileInfo]
    truncated: bool = False


class SessionFiles(Protocol):
    """The sessions' working directories, wherever the kernels are.

    Every method may raise `FilesNotAvailable`, `InvalidRequest` for a path that is none, and `NotAFile` or
    `FileNotFound` for what is not there.
    """

    async def prepare(self, session_id: str) -> str | None:
        """Create the session's working directory, if it is missing, before a kernel starts.

        Returns the directory the kernel starts in; None for the host's own. Called again before each restart, since
        the code may have removed it.
        """

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Return the files below a directory."""

    async def open(self, session_id: str, path: str) -> FileReader:
        """Open a file for reading."""

    async def digest(self, session_id: str, path: str, is_wanted: Callable[[], bool] = ...) -> str:
        """Return the SHA-256 of a file, in hexadecimal.

        Parameters
        ----------
        is_wanted : callable
            Returns whether the client still waits; called now and then.

        Raises
        ------
        Conflict
            If no client waits any more.
        QuotaExceeded
            If the file is too large to be hashed.
        """

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> FileWriter:
        """Begin to write a file, of which the size may be known, within `limits` and the server's own.

        Raises
        ------
        QuotaExceeded, StorageFull
        """

    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""

    async def changes(self, session_id: str) -> FilesEvent | None:
        """Return what code has created or changed since the last call; never raises."""

    async def change(self, session_id: str, path: str, mtime: str) -> FileChange:
        """Return the texts of a small file before and after it was changed.

        Parameters
        ----------
        mtime : str
            The file's time after the change, as the record of the execution has it; empty for the last change.

        Raises
        ------
        FileNotFound
            If they are not kept.
        """

    async def session_ended(self, session_id: str) -> None:
        """Note that no code runs in the session any more; its files stay."""

    async def remove(self, session_id: str) -> None:
        """Remove all of a session's files."""

    def start_removal(self, session_ids: Sequence[str]) -> None:
        """Remove all files of these sessions in the background; may be called from any thread."""

    def remove_unused(self, session_ids: Collection[str]) -> None:
        """Remove the directories of sessions that were prepared but never created; those with files stay."""

    def close(self) -> None:
        """End the threads."""
