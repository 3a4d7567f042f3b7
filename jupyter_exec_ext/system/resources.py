"""Resources of the process: errors for descriptors, memory or ports that have run out, and a cache of freed memory.

For a large block glibc's malloc asks the system for pages, and gives them back when it is freed. Each page costs when
it is first written to, on a virtual machine 3 µs. A picture of 5 MB is copied several times on its way, by each process
that it passes, so that a third of the time went into that. The size from which malloc does so rises
to the largest block that was ever freed that way.

References
----------
mallopt(3), ``M_MMAP_THRESHOLD``: "dynamic mmap threshold"
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from ..errors import OutOfResources

# EAGAIN: no more processes or threads (fork, pthread_create). EADDRNOTAVAIL: no more local ports.
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
    # libzmq can abort the process when it gets no descriptor, so callers try before they use it.
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened.extend(os.dup(opened[0]) for _ in range(count - 1))
    finally:
        for descriptor in opened:
            os.close(descriptor)


#: Malloc keeps twice as much as is free at the end of its memory.
BLOCK_BYTES = 16 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have this process keep what it frees, up to 32 MiB, as if it had had something large before.

    No page of it is touched. Other allocators take no notice.
    """
    with suppress(MemoryError):
        bytes(BLOCK_BYTES)
