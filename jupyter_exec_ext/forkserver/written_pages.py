"""Which pages of memory a forked kernel writes while it begins, so that the next one can have them copied ahead.

The system copies a page when one of two processes that share it writes to it: some 3,000 times for a kernel, each with
a fault. Kernels of one parent write to nearly the same pages, since their objects are at the same addresses. Loaded by
``fork_program.py``; where the system tells nothing of pages, nothing is copied ahead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from array import array

_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14; on older ones it fails, and nothing is lost
_PRESENT, _FILE, _EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56  # the kernel's admin-guide/mm/pagemap


class WrittenPages:
    """What the first kernel of a parent has written, for those after it. To be made by the parent."""

    def __init__(self) -> None:
        self._file = os.memfd_create("pages") if hasattr(os, "memfd_create") else -1
        self._areas = _writable() if self._file >= 0 else []

    def copy(self) -> None:
        """Copy what is known to be written; in a child that is yet to begin."""
        known = array("Q")
        if self._file >= 0:
            known.frombytes(os.pread(self._file, os.fstat(self._file).st_size, 0))
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for address, size in zip(known[::2], known[1::2], strict=True):
            advise(address, size, _POPULATE_WRITE)

    def learn(self) -> None:
        """Note what this child has written so far, if it is the first that does; it can note nothing after that."""
        if self._file < 0:
            return
        try:
            if os.fstat(self._file).st_size == 0:
                os.pwrite(self._file, _exclusive_pages(self._areas).tobytes(), 0)
        except OSError:
            pass  # a system that tells nothing
        finally:
            os.close(self._file)
            self._file = -1


def _exclusive_pages(areas: list[tuple[int, int]]) -> array[int]:
    """Return addresses and sizes, in bytes and alternating, of the memory in `areas` that no other process shares."""
    found = array("Q")
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for start, end in areas:
            count = (end - start) // mmap.PAGESIZE
            entries = array("Q", os.pread(pagemap.fileno(), count * 8, start // mmap.PAGESIZE * 8))
            for number, entry in enumerate(entries):
                if not (entry & _PRESENT and entry & _EXCLUSIVE) or entry & _FILE:
                    continue
                address = start + number * mmap.PAGESIZE
                if found and found[-2] + found[-1] == address:
                    found[-1] += mmap.PAGESIZE
                else:
                    found.extend((address, mmap.PAGESIZE))
    return found


def _writable() -> list[tuple[int, int]]:
    """Return the beginnings and ends of this process's private memory; threads add more to it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        fields = [line.split() for line in maps]
    return [
        (int(start, 16), int(end, 16))
        for (start, end), access, name in ((f[0].split("-"), f[1], f[-1]) for f in fields)
        if access == "rw-p" and not name.startswith("[stack")
    ]
