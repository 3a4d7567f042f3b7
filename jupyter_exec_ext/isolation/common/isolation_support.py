"""Requirements of every kind of isolation: the filter of system calls, and the error when something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

from .seccomp import UnsupportedArchitectureError, filter_path, supported


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
