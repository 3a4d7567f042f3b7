"""Opening of files that hostile code may have replaced: never blocks, follows no link, accepts regular files only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# A FIFO would block `open` until its other end is opened. A terminal could become the server's controlling one.
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular_file(path: Path, flags: int) -> int:
    """Return a descriptor of a regular file; a new file gets the mode 0600.

    Parameters
    ----------
    path : Path
        The file. Its directory is trusted; what is at its name is not.
    flags : int
        The access mode, as for `os.open`, with ``os.O_CREAT`` to make a file that is not there.

    Raises
    ------
    OSError
        If the file cannot be opened, or something else is at its name.
    """
    try:
        descriptor = os.open(path, flags | _FLAGS, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO that no program reads, or a socket
            raise _not_regular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "something else is in the place of a regular file", str(path))
