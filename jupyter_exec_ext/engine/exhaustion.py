"""When the system, or this process, has no more descriptors, processes, memory or ports."""

from __future__ import annotations

import errno
import os

from ..errors import OutOfResources

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})


def out_of_resources(error: BaseException) -> bool:
    """Whether the system refused something because it, or this process, has no more of it."""
    return getattr(error, "errno", None) in _EXHAUSTED


def exhausted(error: BaseException) -> OutOfResources:
    """Return what that means for a caller."""
    reason = os.strerror(getattr(error, "errno", 0))
    return OutOfResources(
        f"the server has reached a limit of the system ({reason.lower()}); try again when sessions have ended",
        retry_after_seconds=5.0,
    )


def require_descriptors(count: int = 1) -> None:
    """Do nothing, if this process can still open so many descriptors.

    Raises
    ------
    OutOfResources
    """
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened.extend(os.dup(opened[0]) for _ in range(count - 1))
    except OSError as error:
        raise exhausted(error) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
