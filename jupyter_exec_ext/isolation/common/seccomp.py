"""Seccomp filters of isolated kernels: apply one to a process.

The filters are programs for the kernel's classic BPF machine. ``tools/make_seccomp.py`` makes them, and explains what
they refuse and why; `isolation_support` finds the file of one. Bubblewrap gets one as a descriptor (``--seccomp``).
Under Landlock, the launcher calls `apply` before it becomes the kernel. It runs without this package on its path, so
this file works on its own and imports only the standard library, and little of it: every kernel waits for the launcher.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_PR_GET_SECCOMP = 21
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS


class _Program(ctypes.Structure):
    # `c_char_p` passes an address only, so zero bytes within the program do no harm.
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def supported() -> bool:
    """Return whether the system can filter system calls."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        _prctl(_PR_GET_SECCOMP)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER)  # a null filter: a system with seccomp fails with EFAULT
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def apply(filter_bytes: bytes) -> None:
    """Restrict the calling thread, and all that it starts from now on, to the system calls that a filter allows.

    This cannot be undone. The thread also sets ``no_new_privs``, which the system demands since a filter could mislead
    a privileged program. Other threads that already run are not restricted.

    Parameters
    ----------
    filter_bytes : bytes
        Content of one of the files.

    Raises
    ------
    OSError
        If the system rejects it; then the calls are not filtered.
    ValueError
        If the bytes are not a filter.
    """
    count, rest = divmod(len(filter_bytes), _INSTRUCTION_BYTES)
    if rest or not 0 < count <= _MAX_INSTRUCTIONS:
        raise ValueError(f"{len(filter_bytes)} bytes are no filter of system calls")
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "only Linux has filters of system calls")
    program = _Program(count, filter_bytes)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _prctl(option: int, *arguments: int) -> None:
    """Call `prctl` with arguments of the right width, and zeros for unused ones."""
    function = ctypes.CDLL(None, use_errno=True).prctl
    function.restype = ctypes.c_int
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    if function(ctypes.c_int(option), *words) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
