"""Landlock rulesets through their three system calls: restrict what a process and its children can reach.

A ruleset forbids kinds of access. Rules then allow it for directories and files, with everything below them. No rule
can forbid: a file stays out of reach only if it is not below anything that is allowed.

Like ``seccomp.py`` this file is loaded on its own, by a launcher that runs without this package on its path, so it
imports only the standard library.

References
----------
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

#: Linux 6.12. Earlier versions let signals and abstract sockets reach all processes of the same user.
MIN_ABI = 6

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_SOCK = 1 << 5, 1 << 9
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
# All rights on files up to version 5. Linux allows accesses that a ruleset does not handle.
_ALL = (1 << 16) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1, 1 << 1

#: Rights that a rule can give. None allows to make device files.
RIGHTS = {
    "read": _EXECUTE | _READ_FILE | _READ_DIR,
    "write": _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV),
    "device": _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV,
    "sockets": _READ_FILE | _READ_DIR | _REMOVE_FILE | _MAKE_SOCK,
}


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Rule(ctypes.Structure):
    _pack_ = 1  # as in the system's header: 12 bytes
    _layout_ = "ms"  # Python 3.14 warns about `_pack_` without it
    _fields_ = [("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32)]


def abi() -> int:
    """Return the version of Landlock.

    Raises
    ------
    OSError
        If the system has none (ENOSYS), or it is turned off (EOPNOTSUPP).
    """
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _call(_CREATE_RULESET, None, 0, _VERSION)


def restrict(rules: list[tuple[int, str]]) -> None:
    """Restrict this thread, and all that it starts from now on, to the files that the rules allow.

    TCP, and signals and abstract sockets of processes outside, are forbidden without exception. The thread must have
    set ``no_new_privs``.

    Parameters
    ----------
    rules : list of (int, str)
        Open files and directories, and the name in `RIGHTS` of the right on each and on everything below.

    Raises
    ------
    OSError
        Then nothing is restricted.
    """
    handled = _Ruleset(_ALL, _BIND_TCP | _CONNECT_TCP, _ABSTRACT_SOCKETS | _SIGNALS)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    try:
        for descriptor, right in rules:
            allowed = RIGHTS[right]
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                # The system refuses a rule that gives a file rights on directories (EINVAL).
                allowed &= _OF_FILES
            rule = _Rule(allowed, descriptor)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(function(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
