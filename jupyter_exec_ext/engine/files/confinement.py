"""Confined opening of files below a directory, while hostile code in that directory swaps paths for links.

Checking a path before opening it is no protection: code in the session can replace a directory by a symbolic link
between the two. So the operating system itself refuses to leave the directory while it opens a file. There are two
ways, with the same results:

- `openat2` of Linux, in one system call: below the directory, and no symbolic link anywhere on the way;
- a walk that opens each part with ``O_NOFOLLOW`` relative to the one before, for other systems, old kernels, and
  containers whose filter of system calls does not know `openat2`.

Both refuse every symbolic link, also one that stays inside, so that a path means the same everywhere. The open
descriptor must then be a regular file with one name: a file with a second name (a hard link) may be one from outside.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

from ...errors import ExecError, FileNotFound, InvalidRequest, NotAFile, StorageFull

# Opens `parts` below the directory behind the descriptor with the flags given, and returns a new descriptor.
Opener = Callable[[int, Sequence[str], int], int]

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would block whoever opens it.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

_SYS_OPENAT2 = 437  # the same on every architecture that Python runs on
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_TRIES = 16

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


class NotARegularFileError(OSError):
    """The path leads to a directory, a FIFO, a device, a socket, or a file with several names."""


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t]
    return function


def open_beneath(root: int, parts: Sequence[str], flags: int) -> int:
    """Open with `openat2`."""
    return _openat2(root, "/".join(_names(parts)), flags)


def _openat2(root: int, path: str, flags: int) -> int:
    raw = os.fsencode(path)
    how = _OpenHow(
        flags | os.O_CLOEXEC | os.O_NOFOLLOW,
        0,
        _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS,
    )
    for _ in range(_MAX_TRIES):
        descriptor: int = _syscall()(_SYS_OPENAT2, root, raw, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        # The system asks to try again when something was renamed while it looked.
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)


def open_by_walk(root: int, parts: Sequence[str], flags: int) -> int:
    """Open part by part, each relative to the one before."""
    *way, last = _names(parts)
    directory = root
    try:
        for part in way:
            deeper = os.open(part, DIRECTORY, dir_fd=directory)
            if directory != root:
                os.close(directory)
            directory = deeper
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    finally:
        if directory != root:
            os.close(directory)


def _names(parts: Sequence[str]) -> Sequence[str]:
    """Return the parts if each is a plain name, without ``..`` or a separator."""
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise OSError(errno.EINVAL, "not a name", part)
    return parts


def has_openat2() -> bool:
    """Return whether `openat2` is there and may be used; a container's filter may refuse it."""
    if not sys.platform.startswith("linux"):
        return False
    root = os.open("/", DIRECTORY)
    try:
        os.close(_openat2(root, ".", DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


@cache
def opener() -> Opener:
    """Return `open_beneath` where the system has it, else `open_by_walk`."""
    return open_beneath if has_openat2() else open_by_walk


def open_file(root: int, parts: Sequence[str], how: Opener | None = None) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and status.

    Raises
    ------
    NotARegularFileError
    OSError
    """
    descriptor = (how or opener())(root, parts, READ)
    try:
        found = os.fstat(descriptor)
        reason = reason_to_refuse(found)
        if reason is not None:
            raise NotARegularFileError(errno.EINVAL, reason, "/".join(parts))
    except BaseException:
        os.close(descriptor)
        raise
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
        return opener()(root, parts, DIRECTORY)
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
