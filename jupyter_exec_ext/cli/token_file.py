"""Token files that the commands read, with a note on one that other users can read."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from .messages import UsageError, print_message, unreadable_text


def read_token_file(path: str) -> str:
    """Return the token in the file of ``--token-file``.

    Raises
    ------
    UsageError
        If the file cannot be read.
    """
    try:
        token = Path(path).read_text().strip()
        note_if_others_can_read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {unreadable_text(path, error)}") from error
    return token


def note_if_others_can_read(path: str) -> None:
    """Print a note if other users can read the user's own token file, as they can by default."""
    status = os.stat(path)
    # On Windows there are no modes of this kind. An administrator's file may be for a group.
    is_own_file = hasattr(os, "geteuid") and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    if is_own_file and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        print_message(f"other users can read the token file {path}; close it to them: chmod 600 {shlex.quote(path)}")
