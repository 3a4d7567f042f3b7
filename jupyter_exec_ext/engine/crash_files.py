"""Where a Python kernel writes its stack when it crashes, and how that is read.

``faulthandler`` tells where Python was at a segmentation fault or an abort; the kernel's own standard error cannot,
since ipykernel replaces it. The file is the kernel's to write, so its content may be anything that the code it runs
wants it to be: it is read as text, up to a bound, without control characters, and only if it is still the very file
that was created.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
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

    Parameters
    ----------
    directory : Path
        A directory that only our user can enter.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / secrets.token_hex(16)
        descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            self._identity = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    @property
    def setup_code(self) -> str:
        """The Python code that makes a kernel write there."""
        return _SETUP.format(path=str(self.path))

    def read(self) -> str:
        """Return what was written, or nothing if the file is not the one that was created."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return ""
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or _identity(found) != self._identity:
                return ""
            return plain_text(os.read(descriptor, _MAX_BYTES))
        except OSError:
            return ""
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Delete the file, whatever has become of it."""
        with suppress(OSError):  # the code may have made a directory of it: that goes with the engine's
            self.path.unlink(missing_ok=True)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
