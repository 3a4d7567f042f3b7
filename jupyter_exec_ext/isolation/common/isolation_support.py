"""Requirements of every kind of isolation: the error where they are missing, and the filter of system calls."""

from __future__ import annotations

import sys
from pathlib import Path

from .seccomp import UnsupportedArchitectureError, filter_path, supported


class IsolationUnavailableError(RuntimeError):
    """A kernel cannot be isolated on this machine, and so is not started.

    Parameters
    ----------
    reason : str
        A short name, such as ``no_bubblewrap``.
    message : str
        What is missing, and how to get it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def needed_filter(profile: str) -> Path:
    """Return the filter of system calls of a profile, for this machine.

    Raises
    ------
    IsolationUnavailableError
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
