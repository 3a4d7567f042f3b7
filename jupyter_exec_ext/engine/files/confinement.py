"""Confined opening of files below a directory, while hostile code in that directory swaps paths for links.

Checking a path before opening it is no protection: code in the session can replace a directory by a symbolic link
between the two. So each part of a path is opened relative to the descriptor of the one before, with ``O_NOFOLLOW``:
the operating system itself refuses to leave the directory. Every symbolic link is refused, also one that stays inside,
so that a path means the same everywhere. The open descriptor must then be a regular file with one name: a file with a
second name (a hard link) may be one from outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ...errors import ExecError, FileNotFound, InvalidRequest, NotAFile, StorageFull

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would block `open`, and a terminal could become the server's controlling one.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_A_LINK = frozenset({errno.ELOOP, errno.EXDEV})
# Opening a Unix socket raises ENXIO; Linux raises ENODEV for a device without a driver. Code can also deny the
# server access to a file: that is no failure of the server.
_NOT_A_FILE = {
    errno.ENOTDIR: "has a part on the way that is not a directory",
    errno.EISDIR: "is a directory",
    errno.EEXIST: "has something else in its place",
    errno.ENXIO: "is not a regular file",
    errno.ENODEV: "is not a regular file",
    errno.EACCES: "cannot be reached: permission denied",
    errno.EPERM: "cannot be reached: permission denied",
}


class NotARegularFileError(OSError):
    """The path leads to a directory, a FIFO, a device, a socket, or a file with several names."""


def open_beneath(root: int, parts: Sequence[str], flags: int) -> int:
    """Open a path below the directory `root` and return a new descriptor."""
    *parents, last = _plain_names(parts)
    directory = root
    try:
        for part in parents:
            deeper = _enter(directory, part)
            # `root` is the caller's to close.
            if directory != root:
                os.close(directory)
            directory = deeper
        if flags == DIRECTORY:
            return _enter(directory, last)
        return os.open(last, flags, dir_fd=directory)
    finally:
        if directory != root:
            os.close(directory)


def _enter(directory: int, name: str) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except NotADirectoryError:
        # Linux reports a symbolic link to a directory as no directory.
        # A second look is safe here: it chooses the message, and opens nothing.
        if stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _plain_names(parts: Sequence[str]) -> Sequence[str]:
    """Return the parts if each is a plain name, without ``..`` or a separator."""
    for part in parts:
        # O_NOFOLLOW does not stop `..` or a separator, so this does not rely on `path_parts` at the callers.
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise OSError(errno.EINVAL, "not a name", part)
    return parts


def open_file(root: int, parts: Sequence[str]) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and status.

    Raises
    ------
    NotARegularFileError
        If it is something else, or has a second name.
    OSError
        If it cannot be opened.
    """
    descriptor = open_beneath(root, parts, READ)
    with ExitStack() as undo:
        undo.callback(os.close, descriptor)
        # Of the descriptor: the name may stand for something else by now.
        found = os.fstat(descriptor)
        reason = reason_to_refuse(found)
        if reason is not None:
            raise NotARegularFileError(errno.EINVAL, reason, "/".join(parts))
        undo.pop_all()
    return descriptor, found


def reason_to_refuse(found: os.stat_result) -> str | None:
    """Return why something is no regular file with one name; None if it is one."""
    if stat.S_ISDIR(found.st_mode):
        return "is a directory"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_nlink > 1:
        return "has several names (hard links), one of which may be outside; copy it first"
    return None


def open_directory(root: int, parts: Sequence[str], *, make: bool = False) -> int:
    """Open a directory below `root`; with `make`, create it and its parents where they are missing."""
    if not parts:
        return os.open(".", DIRECTORY, dir_fd=root)
    if not make:
        return open_beneath(root, parts, DIRECTORY)
    directory = os.open(".", DIRECTORY, dir_fd=root)
    for part in parts:
        try:
            deeper = _open_or_make(directory, part)
        finally:
            os.close(directory)
        directory = deeper
    return directory


def _open_or_make(directory: int, part: str) -> int:
    try:
        return os.open(part, DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        # Code may be faster. What it has put there is opened as a directory, or refused.
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=directory)
    return os.open(part, DIRECTORY, dir_fd=directory)


@contextmanager
def api_errors(path: str, owner: str = "session") -> Iterator[None]:
    """Raise the system's errors about `path`, a file of `owner`, as those of the API.

    An error that is not listed is a defect, and passes.
    """
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
        return FileNotFound(f"the {owner} has no file {path!r}; list its files to find the name")
    if number in _A_LINK:
        return NotAFile(f"{path!r} is or leads over a symbolic link; links are not followed")
    if number in _NOT_A_FILE:
        return NotAFile(f"{path!r} {_NOT_A_FILE[number]}")
    if number in _NO_ROOM:
        return StorageFull("the server's disk has no room for this file (or is read-only); nothing of it was kept")
    if number == errno.ENAMETOOLONG:
        return InvalidRequest("the path is too long for the server's file system")
    return None
