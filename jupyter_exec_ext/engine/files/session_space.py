"""Space of a session's directory: what its files and packages take, and what goes at the session's end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...errors import Conflict, QuotaExceeded
from ...system.removal import remove_tree
from .confinement import DIRECTORY
from .directory_scan import PACKAGES_DIRECTORY, TooManyEntriesError, walk

_MAX_WALKED = 100_000


def require_space(directory: Path, more_bytes: int, most_bytes: int) -> None:
    """Check that a session has room for packages; blocks.

    Raises
    ------
    QuotaExceeded
        If it has not.
    Conflict
        If code has removed the session's directory.
    """
    try:
        root = os.open(directory, DIRECTORY)
    except OSError:
        raise Conflict("the session's directory is not there any more; make a new session") from None
    try:
        stored_bytes = sum(entry.stat.st_size for entry in walk(root, _MAX_WALKED, includes_packages=True))
    except TooManyEntriesError:
        raise QuotaExceeded(
            f"the session has more than {_MAX_WALKED} files and directories; delete some first"
        ) from None
    finally:
        os.close(root)
    if stored_bytes + more_bytes > most_bytes:
        raise QuotaExceeded(
            f"the packages have {more_bytes} bytes, and the session has {stored_bytes} of at most {most_bytes} "
            "(max_session_bytes)"
        )


def remove_unused(directory: Path) -> None:
    """Remove the packages of a session that has ended, and its directory if there are no files; blocks."""
    remove_tree(directory / PACKAGES_DIRECTORY, move_aside=False)
    with suppress(OSError):
        os.rmdir(directory)  # fails if there are files, which stay, or no directory
