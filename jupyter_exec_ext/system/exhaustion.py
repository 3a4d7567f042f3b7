"""Exhaustion of the system or of this process: no more descriptors, processes, memory or ports."""

from __future__ import annotations

import errno
import os

from ..errors import OutOfResources

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})


def out_of_resources(error: BaseException) -> bool:
    """Return whether the system or ZeroMQ refused something because it, or this process, has no more of it."""
    return getattr(error, "errno", None) in _EXHAUSTED


def exhausted(error: BaseException) -> OutOfResources:
    """Return the error for a caller of this server."""
    return OutOfResources(
        f"the server has reached a limit of the system ({_reason(error)}); try again when sessions have ended",
        retry_after_seconds=5.0,
    )


def exhausted_program(error: BaseException) -> OutOfResources:
    """Return the error for a program that has kernels of its own."""
    return OutOfResources(
        f"this program has reached a limit of the system ({_reason(error)}); close what it does not need, or raise the "
        "limit (ulimit)"
    )


def _reason(error: BaseException) -> str:
    return os.strerror(getattr(error, "errno", 0)).lower()


def require_descriptors(count: int = 1) -> None:
    """Do nothing, if this process can still open so many descriptors.

    Raises
    ------
    OutOfResources
    """
    try:
        try_descriptors(count)
    except OSError as error:
        raise exhausted(error) from error


def try_descriptors(count: int) -> None:
    """Open so many descriptors, and close them; raises OSError if there are not as many."""
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened.extend(os.dup(opened[0]) for _ in range(count - 1))
    finally:
        for descriptor in opened:
            os.close(descriptor)
