"""Directories and devices that a policy grants to sandboxed kernels: how they are written, and what policies share.

Pure: `isolation.common.granted_paths` checks them against the machine when a kernel starts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidRequest

MAX_GRANTS = 100
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
    if not isinstance(value, Mapping) or len(value) > MAX_GRANTS or not all(map(_is_text, (*value, *value.values()))):
        raise InvalidRequest(f"{name!r} must be an object of at most {MAX_GRANTS} directories by their paths inside")
    return tuple(value.items())


def read_devices(name: str, value: Any) -> tuple[str, ...]:
    """Read the field ``devices``; raises `InvalidRequest`."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_GRANTS or not all(map(_is_text, value)):
        raise InvalidRequest(f"{name!r} must be a list of at most {MAX_GRANTS} devices")
    return tuple(value)


def check_grants(mounts: Sequence[tuple[str, str]], devices: Sequence[str], isolation: str) -> None:
    """Check the grants of a configured policy; those of a token's limits are among them, word for word.

    Raises
    ------
    InvalidRequest
        If one is not written as it must be, or the isolation cannot hold them.
    """
    if (mounts or devices) and isolation != "sandbox":
        # Landlock shows directories at their own paths only, and cannot hide devices. Without isolation all is seen.
        field = "mounts" if mounts else "devices"
        raise InvalidRequest(f"{field!r} needs the isolation 'sandbox', and this policy has {isolation!r}")
    places = [inside for inside, _ in mounts]
    for path in (*places, *(outside for _, outside in mounts)):
        if not _is_whole_path(path):
            raise InvalidRequest(f"'mounts': {path!r} must be a path from '/' on, without '..' and a slash at its end")
    for inside in places:
        for other in (*_TAKEN, *(each for each in places if each != inside)):
            if is_inside(inside, other) or is_inside(other, inside):
                raise InvalidRequest(f"'mounts': {inside!r} overlaps with {other!r}, which is taken; use another path")
    for device in devices:
        if not _GPU.fullmatch(device) and not (_is_whole_path(device) and device.startswith("/dev/")):
            raise InvalidRequest(f"'devices': {device!r} is no device; write 'nvidia:0', 'dri' or a path in /dev")
        if _REFUSED_DEVICES.fullmatch(device):
            raise InvalidRequest(f"'devices': {device!r} would open the machine itself to the kernel")


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole_path(path: str) -> bool:
    if not path.isprintable():
        return False
    return path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path
