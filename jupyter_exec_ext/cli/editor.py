"""Letting a person edit code, in the editor that VISUAL or EDITOR names."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from .server_choice import UsageError


def edited(code: str) -> str:
    """Return code as a person has left it.

    Raises
    ------
    UsageError
        If the editor cannot be started, fails or leaves something that is not text; nothing is to be done then.
    """
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as directory:  # for its owner alone
        file = Path(directory) / "code.txt"
        file.write_bytes(code.encode())
        try:
            done = subprocess.run([*editor, str(file)], check=False)
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the code cannot be edited: {error}; EDITOR names the editor") from error
    if done.returncode != 0:
        raise UsageError(f"the editor ended with {done.returncode}, so nothing was done")
    return code if text == f"{code}\n" else text  # editors end the last line
