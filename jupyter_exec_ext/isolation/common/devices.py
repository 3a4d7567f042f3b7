"""Keeps the machine's devices as they are when the server runs as root.

A sandbox has the machine's own ``/dev/null`` and the like, and to it, root outside is their owner inside: it could take
them away from everybody by changing their mode. Bubblewrap can make a mount read-only, but then no device on it can be
used any more. So the thread that starts sandboxes gets mounts of its own, in which each of these devices is a read-only
mount that can be used; sandboxes inherit that.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

#: What bubblewrap's ``--dev`` has of the machine's devices.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_NOSUID, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 2, 32, 4096, 16384, 1 << 19


def keep_devices() -> None:
    """Give the calling thread mounts of its own with devices that cannot be changed, if it is root's.

    Root without the right to do that, as in a container, keeps the container's devices as they are.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def mount(source: str | None, target: str, flags: int) -> None:
        told = None if source is None else source.encode()
        check(libc.mount(told, target.encode(), None, ctypes.c_ulong(flags), None))

    with suppress(OSError):
        check(libc.unshare(_CLONE_NEWNS))  # of this thread alone
        mount(None, "/", _MS_SLAVE | _MS_REC)  # what is mounted outside later appears here, too, and not the reverse
        for device in (f"/dev/{name}" for name in DEVICES):
            mount(device, device, _MS_BIND)
            mount(None, device, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)
