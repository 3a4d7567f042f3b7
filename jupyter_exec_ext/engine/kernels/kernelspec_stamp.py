"""What shows whether a kernelspec is still what it was when it was read, for less than to read it again.

A kernelspec's directory is found by looking through others, so their entries count as much as the file itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

_SETTLED_SECONDS = 2.0

Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp_of(kernel_dirs: Iterable[str], resource_dir: str) -> Stamp | None:
    """Return what changes with a kernelspec.

    Parameters
    ----------
    kernel_dirs : iterable of str
        Where kernelspecs are looked for.
    resource_dir : str
        Where this one is.

    Returns
    -------
    tuple or None
        None where that cannot be told: there is no file, or something was changed so lately that it could be changed
        again within the resolution of its file system's clock.
    """
    places = [*kernel_dirs, resource_dir, os.path.join(resource_dir, "kernel.json")]
    found = [_stat(place) for place in places]
    if found[-1] is None:
        return None
    latest_ns = max(result.st_mtime_ns for result in found if result is not None)
    if latest_ns > time.time_ns() - _SETTLED_SECONDS * 1e9:
        return None
    return tuple(result and (result.st_ino, result.st_mtime_ns, result.st_size) for result in found)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
