"""Directories and devices that a policy grants to sandboxed kernels: how they are written, and what policies share.

Pure: `isolation.common.granted_paths` checks them against the machine when a kernel starts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequest

MAX_GRANTS = 32
# Paths at which a sandbox has something of its own.
_TAKEN = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/etc", "/proc", "/sys", "/dev"),
    *("/run", "/tmp", "/home", "/work", "/session", "/kernel-work", "/sockets", "/mnt/data"),  # noqa: S108
)
_GPU = re.compile(r"nvidia:\d{1,3}|dri")
# With these a process reads or changes the machine, or gets terminals of others.
_REFUSED_DEVICES = re.compile(r"/dev/(mem|kmem|port|kmsg|nvram|console|ptmx|tty\d*|vcs.*|pts/.*|shm/.*|fd/.*|cpu/.*)")


def read_mounts(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Read the field ``mounts``: outside directories by their paths inside; raises `InvalidRequest`."""
    pairs = {} if value is None else value
    if not isinstance(pairs, Mapping) or len(pairs) > MAX_GRANTS:
        raise InvalidRequest(f"{name!r} must be an object of at most {MAX_GRANTS} directories by their paths inside")
    for path in (*pairs, *pairs.values()):
        if not _is_whole_path(path):
            raise InvalidRequest(f"{name!r}: {path!r} must be a path from '/' on, without '..' and a slash at its end")
    for inside in pairs:
        for other in (*_TAKEN, *(each for each in pairs if each != inside)):
            if is_inside(inside, other) or is_inside(other, inside):
                raise InvalidRequest(f"{name!r}: {inside!r} overlaps with {other!r}, which is taken; use another path")
    return tuple(pairs.items())


def read_devices(name: str, value: Any) -> tuple[str, ...]:
    """Read the field ``devices``; raises `InvalidRequest`."""
    names = () if value is None else value
    if not isinstance(names, (list, tuple)) or len(names) > MAX_GRANTS:
        raise InvalidRequest(f"{name!r} must be a list of at most {MAX_GRANTS} devices")
    for device in names:
        is_gpu = isinstance(device, str) and _GPU.fullmatch(device)
        if not is_gpu and not (_is_whole_path(device) and device.startswith("/dev/")):
            raise InvalidRequest(f"{name!r}: {device!r} is no device; write 'nvidia:0', 'dri' or a path in /dev")
        if _REFUSED_DEVICES.fullmatch(device):
            raise InvalidRequest(f"{name!r}: {device!r} would open the machine itself to the kernel")
    return tuple(names)


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _is_whole_path(path: Any) -> bool:
    if not isinstance(path, str) or len(path) > 1000 or not path.isprintable():
        return False
    return path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path
