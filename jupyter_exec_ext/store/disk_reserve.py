"""A file that holds space, to be given up when the disk is full: the last records of what runs then still fit."""

from __future__ import annotations

import os
from pathlib import Path


class Reserve:
    """The reserve file.

    Parameters
    ----------
    size_bytes : int
        0 for no reserve.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self.held = self.restore()

    def restore(self) -> bool:
        """Take the space, if there is enough again; return whether it is held."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _fill(fd, self._size_bytes)
            finally:
                os.close(fd)
        except OSError:
            self.release()
            return False
        self.held = True
        return True

    def release(self) -> None:
        """Give the space up."""
        self.held = False
        self._path.unlink(missing_ok=True)


def _fill(fd: int, size_bytes: int) -> None:
    """Give a file real blocks; zeros that were only promised would be no reserve."""
    if size_bytes == 0:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size_bytes)
    elif os.fstat(fd).st_size < size_bytes:
        os.write(fd, bytes(size_bytes))
