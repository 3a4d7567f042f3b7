"""File locator: the place of a session's files, which are on this machine, with a remote kernel, or not available."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...errors import FilesNotAvailable
from ...models import Session
from ...protocol.file_paths import path_parts
from ..ports import NO_LIMITS, FileLimits, FileList, FileReader, FileWriter, KernelHost, SessionFiles
from .file_transfer import always


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


class FileLocator:
    """Chooses the implementation of `SessionFiles` by the place of a session's kernel.

    Parameters
    ----------
    local : SessionFiles
        For kernels on this machine.
    remote : SessionFiles
        For kernels on other machines.
    host : KernelHost
        Knows which kernelspecs run on other machines.
    """

    def __init__(self, local: SessionFiles, remote: SessionFiles, host: KernelHost) -> None:
        self.local = local
        self._remote = remote
        self._host = host

    def files_of(self, session: Session) -> SessionFiles:
        """Return the files of a session."""
        if session.attached:
            return ATTACHED
        is_remote = session.isolation == "remote" or self._host.runs_elsewhere(session.kernel_name)
        return self._remote if is_remote else self.local
