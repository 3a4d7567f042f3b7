"""What the system says about a file, in our terms."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import ExecError, FileNotFound, InvalidRequest, NotAFile, StorageFull
from .confinement import NotARegularFileError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_A_LINK = frozenset({errno.ELOOP, errno.EXDEV})
_NOT_A_FILE = {
    errno.ENOTDIR: "has a part on the way that is not a directory",
    errno.EISDIR: "is a directory",
    errno.EEXIST: "has something else in its place",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.EACCES: "cannot be reached: permission denied",
    errno.EPERM: "cannot be reached: permission denied",
}


@contextmanager
def in_our_terms(path: str, owner: str = "session") -> Iterator[None]:
    """Turn the system's errors about `path`, a file of `owner`, into those of the API; what is left is a defect."""
    try:
        yield
    except OSError as error:
        known = _translate(error, path, owner)
        if known is None:
            raise
        raise known from None


def _translate(error: OSError, path: str, owner: str) -> ExecError | None:
    number = error.errno
    if isinstance(error, NotARegularFileError):
        return NotAFile(f"{path!r} {error.strerror}")
    if number == errno.ENOENT:
        return FileNotFound(f"the {owner} has no file {path!r}")
    if number in _A_LINK:
        return NotAFile(f"{path!r} is or leads over a symbolic link; links are not followed")
    if number in _NOT_A_FILE:
        return NotAFile(f"{path!r} {_NOT_A_FILE[number]}")
    if number in _NO_ROOM:
        return StorageFull("the server's disk has no room for this file (or is read-only); nothing of it was kept")
    if number == errno.ENAMETOOLONG:
        return InvalidRequest("the path is too long for the server's file system")
    return None
