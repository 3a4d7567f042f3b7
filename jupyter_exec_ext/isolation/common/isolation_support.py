"""Requirements of every kind of isolation: the filter of system calls, and the error when something is missing."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .seccomp import supported

PROFILES = ("sandbox", "landlock")
MACHINES = ("x86_64", "aarch64")

# Names of the same machines on other systems, and in some tools.
_OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
_FILTERS = Path(__file__).with_name("filters")


class IsolationUnavailableError(RuntimeError):
    """The machine cannot isolate a kernel, so the kernel is not started.

    Parameters
    ----------
    reason : str
        Short name, such as ``no_bubblewrap``.
    message : str
        Missing requirement and its remedy.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedArchitectureError(LookupError):
    """There is no filter for this kind of machine.

    Parameters
    ----------
    machine : str
        Name of the machine, as in ``uname -m``.
    """

    def __init__(self, machine: str) -> None:
        super().__init__(f"there is no filter of system calls for {machine or 'this machine'}, only for {_listed()}")
        self.machine = machine


def _listed() -> str:
    return " and ".join(MACHINES)


def filter_path(profile: str = "sandbox", machine: str | None = None) -> Path:
    """Return the file with the filter of a profile.

    Parameters
    ----------
    profile : str
        ``sandbox`` for kernels in their own namespaces, ``landlock`` for kernels without.
    machine : str or None
        As in ``uname -m``; None for this machine.

    Raises
    ------
    UnsupportedArchitectureError
        If there is no filter for the machine.
    ValueError
        If the profile is unknown.
    """
    if profile not in PROFILES:
        raise ValueError(f"{profile!r} is none of the profiles {', '.join(PROFILES)}")
    name = platform.machine() if machine is None else machine
    known = _OTHER_NAMES.get(name.lower(), name)
    if known not in MACHINES:
        raise UnsupportedArchitectureError(name)
    return _FILTERS / f"{profile}-{known}.bpf"


def needed_filter(profile: str) -> Path:
    """Return the file with a profile's filter of system calls for this machine.

    Raises
    ------
    IsolationUnavailableError
        If this is not Linux, or the machine or the system has no filters.
    """
    if not sys.platform.startswith("linux"):
        raise IsolationUnavailableError(
            "not_linux", f"kernels can be sandboxed on Linux only, and this is {sys.platform}; use a remote kernel"
        )
    try:
        seccomp_filter = filter_path(profile)
    except UnsupportedArchitectureError as error:
        raise IsolationUnavailableError("unknown_architecture", f"{error}; use a remote kernel") from None
    if not supported():
        raise IsolationUnavailableError(
            "no_seccomp",
            "this system does not filter system calls (seccomp), or forbids it here; use a kernel built with "
            "CONFIG_SECCOMP_FILTER, and a container that allows the system call 'seccomp'",
        )
    return seccomp_filter
