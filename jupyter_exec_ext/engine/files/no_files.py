"""For sessions whose files are nobody's business here: the implementation of the port that has none."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...errors import FilesNotAvailable
from ...models import Session
from ...protocol.file_paths import path_parts
from ..ports import FileList, FileReader, FileWriter, SessionFiles
from .file_reader import always
from .quotas import NO_LIMITS, FileLimits


class NoFiles:
    """Sessions without a working directory of their own: their kernels work where somebody else has started them.

    Parameters
    ----------
    reason : str
        What a caller is told who asks for files.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def prepare(self, session_id: str) -> None:
        """Leave the kernel's directory to the host."""

    async def list_files(self, session_id: str, path: str = "") -> FileList:
        """Refuse."""
        raise self._not_available(path)

    async def open(self, session_id: str, path: str) -> FileReader:
        """Refuse."""
        raise self._not_available(path)

    async def digest(self, session_id: str, path: str, wanted: Callable[[], bool] = always) -> str:
        """Refuse."""
        raise self._not_available(path)

    async def create(
        self, session_id: str, path: str, size_bytes: int | None, limits: FileLimits = NO_LIMITS
    ) -> FileWriter:
        """Refuse."""
        raise self._not_available(path)

    async def delete(self, session_id: str, path: str) -> None:
        """Refuse."""
        raise self._not_available(path)

    async def changes(self, session_id: str) -> None:
        """See none."""

    async def session_ended(self, session_id: str) -> None:
        """Have nothing to do."""

    async def remove(self, session_id: str) -> None:
        """Have nothing to remove."""

    def remove_unused(self, session_ids: Collection[str]) -> None:
        """Have nothing to remove."""

    def close(self) -> None:
        """Have nothing to let go of."""

    def _not_available(self, path: str) -> FilesNotAvailable:
        if path:
            path_parts(path)  # one that is none is that wherever the files are
        return FilesNotAvailable(self._reason)


#: Where no session has files.
NOWHERE = NoFiles(
    "sessions of this server work in the server's own directory, so there are no files of a session; see "
    "ExecEngine.session_directories"
)
#: Where a kernel is shared with its user.
ATTACHED = NoFiles("the session is attached to a kernel that works where its user started it, so it has no files")


def files_of(
    session: Session, here: SessionFiles, elsewhere: SessionFiles, runs_elsewhere: Callable[[str], bool]
) -> SessionFiles:
    """Return what has a session's files: it depends on where its kernel works.

    Parameters
    ----------
    runs_elsewhere : callable
        Returns whether the kernels of a kernelspec, by its name, run on other machines.
    """
    if session.attached:
        return ATTACHED
    return elsewhere if session.isolation == "remote" or runs_elsewhere(session.kernel_name) else here
