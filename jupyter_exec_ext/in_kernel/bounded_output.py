"""Bounded output of an IPython kernel: it prints in parts and waits for its readers instead of using more memory.

As it comes, ipykernel joins everything that is printed within its flush interval into one message, and the code goes on
while that message waits for a slow reader. Here each part waits until the one before it was sent.
``protocol/kernel_preparation.py`` makes the socket wait for readers, which is the other half.

Read by that module and by ``forkserver``. A kernel's environment need not have our package, and its Python and
ipykernel may be older. ``tests/in_kernel/test_replacements.py`` lists everything that is replaced in a kernel.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ipykernel.iostream import OutStream

PART_CHARACTERS = 128 * 1024
REMEMBERED_CHARACTERS = 16 * 1024
FREED_BYTES = 16 * 1024 * 1024


def bound_output(kernel: Any) -> None:
    """Make a kernel print in parts, once; call it in the kernel's main thread."""
    with contextlib.suppress(MemoryError):
        # glibc then keeps freed memory for the next picture or array; `system/resources.py` has the figures.
        bytes(FREED_BYTES)
    # IPython writes its history in a thread after each cell by default, which slows down the next one.
    kernel.shell.history_manager.db_cache_size = 100
    bound_streams(kernel)
    if hasattr(kernel.shell, "_tee"):
        kernel.shell._tee = _remember_beginning(kernel.shell._tee)


def bound_streams(kernel: Any) -> None:
    """Bound what a kernel has of its own, beside its shell: also of a new kernel around a shell that is bounded."""
    # ipykernel sleeps after each cell for clients that take the reply for the end of output. Ours wait for `idle`.
    kernel._execute_sleep = 0
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, OutStream) and not hasattr(stream, "_prints_in_parts"):
            _print_in_parts(stream)


def _print_in_parts(stream: Any) -> None:
    """Replace a stream's `write` by one that waits after each part until it was sent."""
    write, unsent = stream.write, 0

    def write_in_parts(string: Any) -> Any:
        nonlocal unsent
        # ipykernel's own `write` refuses what is no text.
        unsent += len(string) if isinstance(string, str) else 0
        if unsent < PART_CHARACTERS:
            return write(string)
        # One print can be of any length, so it is cut as well.
        for start in range(0, len(string), PART_CHARACTERS):
            write(string[start : start + PART_CHARACTERS])
            stream.flush()
        unsent = 0
        return len(string)

    stream.write = write_in_parts


def _remember_beginning(tee: Any) -> Any:
    """Wrap IPython's recording of a cell's output (for ``%notebook``) so that it keeps only the beginning.

    The record grows without bound, and each print takes longer the more there is.
    """

    @contextlib.contextmanager
    def tee_beginning(channel: str) -> Any:
        stream = getattr(sys, channel)
        write, left = stream.write, REMEMBERED_CHARACTERS
        with tee(channel):
            write_and_keep = stream.write

            def write_first(data: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= len(data) if isinstance(data, str) else 0
                if left >= 0:
                    return write_and_keep(data, *args, **kwargs)
                if stream.write is write_first:  # the cell may have replaced it meanwhile
                    stream.write = write
                return write(data, *args, **kwargs)

            stream.write = write_first
            yield

    return tee_beginning
