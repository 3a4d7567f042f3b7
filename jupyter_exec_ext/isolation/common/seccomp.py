"""The filters of system calls that sandboxed kernels run under: where they are, and how a process takes one on.

They are programs for the kernel's classic BPF machine, made by ``tools/make_seccomp.py``, which also says what they
refuse and why. Bubblewrap is given one as a descriptor (``--seccomp``); where there is no Bubblewrap, a launcher calls
`apply` before it becomes the kernel. Such a launcher is a script that runs without this package on its path, so this
module imports the standard library only and works as a file of its own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

TYPE_CHECKING = False  # to import as little as possible: every kernel waits for the launcher
if TYPE_CHECKING:
    from pathlib import Path

PROFILES = ("sandbox", "landlock")
MACHINES = ("x86_64", "aarch64")

# What systems other than Linux, and some tools on it, call the same machines.
_OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
_FILTERS = os.path.join(os.path.dirname(__file__), "filters")

_PR_GET_SECCOMP = 21
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS


class UnsupportedArchitectureError(LookupError):
    """There is no filter for this kind of machine.

    Parameters
    ----------
    machine : str
        What the machine calls itself.
    """

    def __init__(self, machine: str) -> None:
        super().__init__(f"there is no filter of system calls for {machine or 'this machine'}, only for {_listed()}")
        self.machine = machine


def _listed() -> str:
    return " and ".join(MACHINES)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_path(profile: str = "sandbox", machine: str | None = None) -> Path:
    """Return the file with the filter of a profile.

    Parameters
    ----------
    profile : str
        ``sandbox`` for what runs in namespaces of its own, ``landlock`` for what has none.
    machine : str or None
        As in ``uname -m``; None for this machine.

    Raises
    ------
    UnsupportedArchitectureError
        If there is no filter for the machine.
    ValueError
        If there is no such profile.
    """
    import platform
    from pathlib import Path

    if profile not in PROFILES:
        raise ValueError(f"{profile!r} is none of the profiles {', '.join(PROFILES)}")
    name = platform.machine() if machine is None else machine
    known = _OTHER_NAMES.get(name.lower(), name)
    if known not in MACHINES:
        raise UnsupportedArchitectureError(name)
    return Path(_FILTERS, f"{profile}-{known}.bpf")


def supported() -> bool:
    """Whether the running kernel has filters of system calls."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        _prctl(_PR_GET_SECCOMP)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER)  # no filter at all: a kernel that has them looks for it in vain
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def apply(filter_bytes: bytes) -> None:
    """Let the calling thread, and whatever it starts from now on, make no calls but those the filter allows.

    There is no way back. The thread also gives up ever to gain privileges from a program that it executes; the kernel
    asks for that, since a filter could otherwise mislead such a program. Threads that run already are not held.

    Parameters
    ----------
    filter_bytes : bytes
        The content of one of the files.

    Raises
    ------
    OSError
        If the kernel does not take it; then the calls are not filtered.
    ValueError
        If this is no filter.
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
    """Call `prctl`, with arguments as wide as the kernel reads them, and zeros for those that are not used."""
    function = ctypes.CDLL(None, use_errno=True).prctl
    function.restype = ctypes.c_int
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    if function(ctypes.c_int(option), *words) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
