"""Checks of a policy's grants (directories and devices) against this machine, at each start of a sandboxed kernel.

The engine sends them in `GRANTS_VARIABLE`. A directory that is missing, or holds secrets, fails the start.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from glob import glob
from pathlib import Path

from ...system.protected_paths import protected_files
from .launch_request import View
from .visible_files import VisibleFilesError, hidden_directories, is_below

_NVIDIA_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NOT_SHARED = ("/proc", "/sys", "/dev", "/run", "/etc", "/boot")


def with_grants(view: View, grants: str, also_hidden: Iterable[str] = ()) -> View:
    """Return a view with granted directories and devices.

    Parameters
    ----------
    view : View
        All else that the kernel sees.
    grants : str
        Value of `GRANTS_VARIABLE`; empty for none.
    also_hidden : iterable of str
        Further directories that the kernel must not see, beside Jupyter's own.

    Raises
    ------
    VisibleFilesError
        If a directory or device is missing, must not be shared, or has its place inside taken.
    """
    if not grants:
        return view
    wanted = json.loads(grants)
    to_hide = [*hidden_directories(), *map(os.path.realpath, also_hidden)]
    mounts = {}
    for inside, outside in wanted["mounts"].items():
        taken = (*view.read_only, *view.links, *view.writable, *to_hide)
        if other := next((path for path in taken if is_below(path, inside) or is_below(inside, path)), None):
            raise VisibleFilesError(f"mounts: {inside} is taken in the kernel by {other}; use another path")
        mounts[inside] = shareable_directory(outside, [*to_hide, *protected_files(), view.work_directory])
    nodes = (node for device in wanted["devices"] for node in device_nodes(device))
    return replace(view, mounts=mounts, devices=list(dict.fromkeys(nodes)))


def shareable_directory(path: str, to_hide: Iterable[str]) -> str:
    """Return the real path of a directory that kernels may see.

    Raises
    ------
    VisibleFilesError
        If it does not exist, holds a home or secrets, or is a part of these or of the system's own directories.
    """
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise VisibleFilesError(f"mounts: the directory {path} is not there; create it, or change the policy")
    home = os.path.realpath(os.path.expanduser("~"))
    to_hide = list(to_hide)
    if other := next((each for each in (home, *to_hide, *_NOT_SHARED) if is_below(each, real)), None):
        raise VisibleFilesError(f"mounts: {path} cannot be shared, since it holds {other}; name a directory below")
    if other := next((each for each in (*to_hide, *_NOT_SHARED) if is_below(real, each)), None):
        raise VisibleFilesError(f"mounts: {path} cannot be shared, since it is a part of {other}")
    # Keys and logins of programs are in hidden directories.
    if is_below(real, home) and any(part.startswith(".") for part in Path(real).relative_to(home).parts):
        raise VisibleFilesError(f"mounts: {path} cannot be shared, since it is hidden in the home directory {home}")
    return real


def device_nodes(device: str) -> Iterator[str]:
    """Yield the nodes of a device: ``nvidia:0``, ``dri`` or a path in ``/dev``.

    Raises
    ------
    VisibleFilesError
        If there is none.
    """
    kind, _, number = device.partition(":")
    paths = [device]
    if kind == "nvidia":
        paths = [f"/dev/nvidia{number}"]
        yield from filter(_is_character_device, _NVIDIA_SHARED)
    elif kind == "dri":
        paths = sorted(filter(_is_character_device, glob("/dev/dri/*"))) or ["/dev/dri"]
    for path in paths:
        if not _is_character_device(path):
            problem = "is no character device" if os.path.lexists(path) else "is not on this machine"
            raise VisibleFilesError(f"devices: {path} {problem}; see 'jupyter exec doctor --devices'")
        yield path


def _is_character_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)  # a link could lead to another device
    except OSError:
        return False
