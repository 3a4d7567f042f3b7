"""Reader of files that name a server and its token: refuses one that another user could have written."""

from __future__ import annotations

import os
from pathlib import Path


class WritableByOthersError(PermissionError):
    """The file belongs to another user, or others can write it."""


def read_own_text(path: Path, *, allow_root: bool = False) -> str:
    """Return the text of a file that only this user can have written.

    Parameters
    ----------
    path : Path
        The file.
    allow_root : bool
        True to accept root's files, such as configuration that an administrator has written for everybody.

    Raises
    ------
    WritableByOthersError
        If somebody else could have written it.
    OSError, UnicodeDecodeError
        If it cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        # On Windows there are neither owners nor modes of this kind.
        if hasattr(os, "geteuid"):
            owners = {os.geteuid(), *([0] if allow_root else [])}
            if status.st_uid not in owners or status.st_mode & 0o022:
                raise WritableByOthersError(f"{path} could have been written by others")
        return file.read()
