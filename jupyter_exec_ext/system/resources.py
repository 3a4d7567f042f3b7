"""Resources of the process: errors for descriptors, memory or ports that have run out, and a cache of freed memory.

For a large block glibc's malloc asks the system for pages, and gives them back when it is freed. Each page costs when
it is first written to, on a virtual machine 3 µs. A picture of 5 MB is copied several times on its way, by each process
that it passes, so a third of the time went into that. The size from which malloc does so, the mmap threshold, rises to
the largest block that was ever freed that way.

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


def is_out_of_resources(error: BaseException) -> bool:
    """Return whether the system or ZeroMQ refused something because it, or this process, has no more of it."""
    return getattr(error, "errno", None) in _EXHAUSTED


def make_resources_error(error: BaseException) -> OutOfResources:
    """Return the error for a caller of this server."""
    return OutOfResources(
        f"the server has reached a limit of the system ({_reason(error)}); try again when sessions have ended",
        retry_after_seconds=5.0,
    )


def make_program_resources_error(error: BaseException) -> OutOfResources:
    """Return the error for a program that has kernels of its own."""
    return OutOfResources(
        f"this program has reached a limit of the system ({_reason(error)}); close what it does not need, or raise the "
        "limit (ulimit)"
    )


def _reason(error: BaseException) -> str:
    return os.strerror(getattr(error, "errno", 0)).lower()


def require_descriptors(count: int = 1) -> None:
    """Raise `OutOfResources` unless this process can open `count` more descriptors."""
    try:
        probe_descriptors(count)
    except OSError as error:
        raise make_resources_error(error) from error


def probe_descriptors(count: int) -> None:
    """Open `count` descriptors and close them; raise `OSError` if the process cannot have so many."""
    # libzmq can abort the process when it gets no descriptor, so callers try before they use it.
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened.extend(os.dup(opened[0]) for _ in range(count - 1))
    finally:
        for descriptor in opened:
            os.close(descriptor)


#: Freeing this block raises glibc's mmap threshold to a little over 16 MiB, and its trim threshold to twice that.
BLOCK_BYTES = 16 * 1024 * 1024


def keep_freed_memory() -> None:
    """Make malloc keep up to 32 MiB of freed memory at the end of its heap, and use it for blocks of up to 16 MiB.

    No page of the block is touched. Allocators other than glibc's are not affected.
    """
    with suppress(MemoryError):
        bytes(BLOCK_BYTES)
