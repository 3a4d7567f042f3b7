"""Opening files below a directory, whatever the code in that directory does meanwhile.

A path that was checked and is opened afterwards may be another one by then: the code that runs in a session can swap
a directory with a symbolic link between the two. So nothing is checked beforehand; the system itself refuses to leave
the directory while it opens. There are two ways, with the same results:

- `openat2` of Linux, in one system call: below the directory, and no symbolic link anywhere on the way;
- a walk that opens each part with ``O_NOFOLLOW`` relative to the one before, for other systems, old kernels, and
  containers whose filter of system calls does not know `openat2`.

Both refuse every symbolic link, also one that stays inside, so that a path means the same everywhere. What was opened
is then looked at by its descriptor: a regular file with one name. A file with a second name (a hard link) may be a file
from outside, and is refused, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

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


class NotARegularFileError(OSError):
    """What was opened is a directory, a FIFO, a device, a socket, or a file with several names."""


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
    """Return the parts if each is a name: neither ``..``, which leads out, nor something that hides it."""
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
    """Return the best way that this system has."""
    return open_beneath if has_openat2() else open_by_walk


def open_file(root: int, parts: Sequence[str], how: Opener | None = None) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and what it is.

    Raises
    ------
    NotARegularFileError
    OSError
    """
    descriptor = (how or opener())(root, parts, READ)
    try:
        found = os.fstat(descriptor)
        complaint = complaint_about(found)
        if complaint is not None:
            raise NotARegularFileError(errno.EINVAL, complaint, "/".join(parts))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def complaint_about(found: os.stat_result) -> str | None:
    """Return why something is not a file that we deal with; None if it is."""
    if stat.S_ISDIR(found.st_mode):
        return "is a directory"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_nlink > 1:
        return "has several names (hard links), one of which may be outside; copy it first"
    return None


def open_directory(root: int, parts: Sequence[str], *, make: bool = False) -> int:
    """Open a directory below `root`, making what is missing on the way if `make`.

    A directory is made relative to the one that was opened, so this is a walk in any case.
    """
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
