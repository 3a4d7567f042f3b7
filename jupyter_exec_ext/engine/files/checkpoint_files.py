"""Files of checkpoints: copies of sessions' working directories, and their way back.

They lie beside the working directories, on the same file system: ``<work_root>/.checkpoints/<session>/<checkpoint>``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from ...errors import CheckpointFailed, StorageFull
from ...system.removal import remove_tree
from .confinement import DIRECTORY
from .tree_copy import TreeCopy

PLACE = ".checkpoints"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class CheckpointFiles:
    """Copies of the working directories of one server's sessions.

    Parameters
    ----------
    work_root : Path or None
        The directory that holds the sessions' directories; None on a server whose sessions have none.
    max_bytes : int
        Bytes of a copy, where the file system cannot share them.
    """

    def __init__(self, work_root: Path | None, max_bytes: int) -> None:
        self._root = work_root
        self._max_bytes = max_bytes

    @property
    def are_kept(self) -> bool:
        """True if checkpoints have files."""
        return self._root is not None

    def _of_session(self, session_id: str) -> Path:
        assert self._root is not None
        return self._root / PLACE / session_id

    async def keep(self, session_id: str, checkpoint_id: str) -> None:
        """Copy a session's working directory for a checkpoint.

        Raises
        ------
        CheckpointFailed
            If there is too much, or a part cannot be read.
        StorageFull
            If the disk is full.
        """
        if self._root is not None:
            source = self._root / session_id
            await asyncio.to_thread(self._copy, source, self._of_session(session_id) / checkpoint_id)

    def _copy(self, source: Path, target: Path) -> None:
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.mkdir(mode=0o700)
            with ExitStack() as undo:
                undo.callback(remove_tree, target)
                with _opened(source) as from_, _opened(target) as to:
                    TreeCopy(self._max_bytes).copy(from_.number, to.number)
                undo.pop_all()
        except OSError as error:
            kind = StorageFull if error.errno in _NO_ROOM else CheckpointFailed
            raise kind(f"the session's files cannot be copied for a checkpoint: {error}") from error

    async def stage(self, session_id: str, checkpoint_id: str, to: str = "") -> StagedFiles | None:
        """Make a copy of a checkpoint's files, to become those of a session; None where there are none.

        Parameters
        ----------
        to : str
            Id of the session that is to have them; by default the checkpoint's own.

        Raises
        ------
        CheckpointFailed, StorageFull
            As `keep`.
        """
        if self._root is None:
            return None
        staged = self._of_session(session_id) / f"staged-{secrets.token_hex(8)}"
        await asyncio.to_thread(self._copy, self._of_session(session_id) / checkpoint_id, staged)
        return StagedFiles(staged, self._root / (to or session_id))

    async def remove(self, session_id: str, checkpoint_id: str) -> None:
        """Remove the files of a checkpoint."""
        if self._root is not None:
            await asyncio.to_thread(remove_tree, self._of_session(session_id) / checkpoint_id)

    async def remove_all(self, session_id: str) -> None:
        """Remove the files of all checkpoints of a session."""
        if self._root is not None:
            await asyncio.to_thread(remove_tree, self._of_session(session_id))


class StagedFiles:
    """Files that are ready to become those of a session.

    Parameters
    ----------
    staged : Path
        Directory with them.
    directory : Path
        Working directory of the session.
    """

    def __init__(self, staged: Path, directory: Path) -> None:
        self._staged = staged
        self._directory = directory

    async def swap(self) -> None:
        """Make them the session's, in the place of those that it has; the directory itself stays the same one.

        Raises
        ------
        CheckpointFailed
            If a process of the session stands against it.
        """
        await asyncio.to_thread(self._swap)

    def _swap(self) -> None:
        aside = self._staged.with_name(f"{self._staged.name}-before")
        try:
            aside.mkdir(mode=0o700)
            with _opened(self._directory) as session, _opened(self._staged) as new, _opened(aside) as old:
                try:
                    _move_all(session.number, old.number)
                    _move_all(new.number, session.number)
                except OSError:
                    _move_all(session.number, new.number)
                    _move_all(old.number, session.number)
                    raise
        except OSError as error:
            raise CheckpointFailed(f"the session's files could not be replaced by the checkpoint's: {error}") from error
        remove_tree(aside)

    async def discard(self) -> None:
        """Remove what is left of them."""
        await asyncio.to_thread(remove_tree, self._staged)


class _opened:  # noqa: N801  # reads as a function
    """Descriptor of a directory, which must not be a link."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, DIRECTORY)

    def __enter__(self) -> _opened:  # noqa: PYI034  # it has no subclasses
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)


def _move_all(source: int, target: int) -> None:
    for name in os.listdir(source):
        with suppress(FileNotFoundError):  # removed meanwhile
            try:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            except PermissionError:
                _move_directory(name, source, target)


def _move_directory(name: str, source: int, target: int) -> None:
    """Move a directory that its owner may not write, which the system demands of one that gets another parent."""
    directory = os.open(name, DIRECTORY, dir_fd=source)
    try:
        mode = stat.S_IMODE(os.fstat(directory).st_mode)
        os.fchmod(directory, mode | stat.S_IRWXU)
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        os.fchmod(directory, mode)
    finally:
        os.close(directory)
