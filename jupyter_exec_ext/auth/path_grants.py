"""Directories and devices that a policy grants to sandboxed kernels: how they are written, and what policies share.

Pure: `isolation.common.grant_checks` checks them against the machine when a kernel starts.
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
# Names below /dev that the kernel gives to devices which open the machine itself. Others are shared: vendors have names
# of their own for accelerators and instruments, so no list of all harmless ones can be made.
_REFUSED_NAMES = (
    # Memory, processors, firmware, management controllers, and the system's kernel.
    *("k?mem", "oldmem", "crash", "port", "kmsg", "nvram", r"cpu[/_\d].*", "mcelog", "snapshot", "userfaultfd"),
    *("gpiomem.*", r"uio\d+", "vfio/.*", "iommu", r"mei\d*", "ipmi.*", "tpm.*", "watchdog.*", "mst/.*", "efi.*"),
    *("xen/.*", "vbox.*", "vmci", "vhost-.*", "autofs", "cuse", "ecryptfs", "cachefiles", "binder.*"),
    # Disks and tapes, also by their raw protocols, and controllers of disks.
    *(r"sg\d+", "bsg/.*", "nvme.*", r"ng\d+n\d+", "mtd.*", "ubi.*", "raw.*", r"n?st\d+.*", "tape/.*", "mmcblk.*"),
    *("mapper/.*", "device-mapper", r"(dm-|md|loop|nbd|drbd|rbd|ram|zram|sr)\d.*", "loop-control", "btrfs-control"),
    *(r"([shv]|xv)d[a-z]+\d*", "disk/.*", "block/.*", "pktcdvd/.*", "zfs"),
    *("megaraid.*", r"mpt\d?ctl", r"aac\d+", r"tw[ael]\d+"),
    # Terminals, consoles and serial ports, from which others can be read and typed at.
    *("console", "ptmx", "pts/.*", "pty.*", "tty.*", "vcs.*", "hvc.*", "hvsi.*", "xvc.*", "vport.*"),
    *("virtio-ports/.*", "rfcomm.*", "cua.*", "3270/.*"),
    # Keyboards, mice, screens, and the bus on which they and disks are.
    *("input/.*", "uinput", "uhid", r"hidraw\d+", "mice", "psaux", r"js\d+", r"fb\d*", "vga_arbiter"),
    *("bus/.*", "usb/hid.*", "usbmon.*"),
    # Networks beside the sandbox's own.
    *("net/.*", r"(ipv)?tap\d+", "ppp"),
    # Files of other programs, and links to any device.
    *("shm/.*", "fd/.*", "mqueue/.*", "hugepages/.*", "char/.*"),
)
_REFUSED_DEVICES = re.compile(f"/dev/({'|'.join(_REFUSED_NAMES)})")


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
    """Check the grants of a configured policy.

    A token's limits need no check of their own: they can only repeat grants of the policy.

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
            raise InvalidRequest(f"'mounts': {path!r} must be an absolute path, with no '..' and no trailing slash")
    for inside in places:
        for other in (*_TAKEN, *(each for each in places if each != inside)):
            if is_inside(inside, other) or is_inside(other, inside):
                raise InvalidRequest(f"'mounts': {inside!r} overlaps with {other!r}, which is taken; use another path")
    for device in devices:
        if not _GPU.fullmatch(device) and not (_is_whole_path(device) and device.startswith("/dev/")):
            raise InvalidRequest(f"'devices': {device!r} is no device; write 'nvidia:0', 'dri' or a path in /dev")
        if _REFUSED_DEVICES.fullmatch(device):
            raise InvalidRequest(
                f"'devices': {device!r} would open the machine's memory, disks, terminals, input or "
                "networks to the kernel, and cannot be shared; remove it from the policy"
            )


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole_path(path: str) -> bool:
    if not path.isprintable():
        return False
    return path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path
