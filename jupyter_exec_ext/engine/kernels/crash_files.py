"""Crash reports: where a Python kernel writes its stack when it crashes, and how that is read.

``faulthandler`` tells where Python was at a segmentation fault or an abort; the kernel's own standard error cannot,
since ipykernel replaces it. The file is the kernel's to write, so its content may be anything that the code it runs
wants it to be: it is read as text, up to a bound and without control characters.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

_MAX_BYTES = 16 * 1024
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]|[\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# One statement without a name of its own, so that nothing appears in the user's namespace.
_SETUP = """\
try:
    __import__("faulthandler").enable(file=__import__("io").open({path!r}, "ab", 0))
except Exception:
    pass
"""


def plain_text(raw: bytes) -> str:
    """Return `raw` as text that a terminal or a page can show: without control and bidirectional characters."""
    return _CONTROL.sub("", raw.decode("utf-8", "replace")).strip()


class CrashFile:
    """The crash report of one kernel process: empty until there is something to report.

    It is read by the descriptor that it was created with, whatever the kernel does to its name.

    Parameters
    ----------
    directory : Path
        A directory that only our user can enter.
    name_inside : str, optional
        How the kernel calls the directory, if not so.
    """

    def __init__(self, directory: Path, name_inside: str | None = None) -> None:
        name = secrets.token_hex(16)
        self.path = directory / name
        self._path_inside = os.path.join(name_inside or str(directory), name)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)

    @property
    def setup_code(self) -> str:
        """The Python code that makes a kernel write there."""
        return _SETUP.format(path=self._path_inside)

    def read(self) -> str:
        """Return the beginning of what was written."""
        try:
            return plain_text(os.pread(self._descriptor, _MAX_BYTES, 0))
        except OSError:
            return ""

    def remove(self) -> None:
        """Close and delete the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):  # the code may have made a directory of it, which goes with the directory around it
            self.path.unlink(missing_ok=True)
