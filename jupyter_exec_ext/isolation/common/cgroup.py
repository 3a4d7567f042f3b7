"""Control groups: limits for all processes of an isolated kernel together, if this server may make groups.

Limits on each process do not stop a kernel that starts many. Control groups limit them together, count those that
were killed for lack of memory, and share the processors by kernels instead of by processes. Root may nearly always
make groups. A user may if the system has delegated a part of the tree, as systemd does for its user sessions.

References
----------
https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path

from .leftovers import is_gone, own_name, sweep

ROOT = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_PREFIX = "jex-"
_CONTROLLERS = frozenset({"pids", "memory", "cpu", "devices"})
# Nodes of each sandbox: null, zero, full, random, urandom, tty, ptmx and terminals.
_COMMON_DEVICES = ("1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:2", "136:*")
_REMOVE_SECONDS, _REMOVE_POLL_SECONDS = 5.0, 0.002
_OF_SERVER = re.compile(rf"{_PREFIX}(\d+-\d+-\d+)-[0-9a-f]+")


class ControlGroup:
    """A group of processes with limits; one directory in version 2, one for each controller in version 1."""

    def __init__(self, directories: list[Path]) -> None:
        self._directories = directories

    @property
    def limits(self) -> list[str]:
        """Names of the limited resources: ``memory``, ``processes``, and ``processors`` (equal shares)."""
        files = {
            "memory": ("memory.max", "memory.limit_in_bytes"),
            "processes": ("pids.max",),
            "processors": ("cpu.weight", "cpu.shares"),
        }
        return [name for name, of in files.items() if any((d / f).exists() for d in self._directories for f in of)]

    def add(self, pid: int) -> None:
        """Put a process in the group, with all that it starts from now on."""
        for directory in self._directories:
            _write(directory / "cgroup.procs", pid)

    def remove(self) -> None:
        """Kill the processes that are left in the group, and remove it."""
        for directory in self._directories:
            _remove(directory)


def new_group(memory_bytes: int | None, processes: int, devices: Sequence[str] = ()) -> ControlGroup | None:
    """Return a new group with as many of these limits as the system allows; None if it allows none.

    With `devices`, version 1 also refuses all other devices. Version 2 has programs for that instead of files; there
    the nodes that a sandbox sees are the only limit.
    """
    wanted: dict[str, int | Sequence[str]] = {"pids": processes, "cpu": 0}
    if memory_bytes is not None:
        wanted["memory"] = memory_bytes
    if devices:
        wanted["devices"] = devices
    made: list[Path] = []
    # One group of each hierarchy, since a process can be in only one.
    for places in _cgroup_hierarchies():
        for parent, controllers in sorted(places, key=lambda place: len(wanted.keys() & place[1]), reverse=True):
            limits = {name: wanted[name] for name in controllers if name in wanted}
            directory = _make_group(parent, limits) if limits else None
            if directory is not None:
                made.append(directory)
                wanted = {name: value for name, value in wanted.items() if name not in limits}
                break
    return ControlGroup(made) if made else None


def _make_group(parent: Path, limits: Mapping[str, int | Sequence[str]]) -> Path | None:
    """Return a new group with limits; None if the server may not make it here."""
    directory = parent / f"{_PREFIX}{own_name()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir()
    except OSError:
        return None
    try:
        for name, value in limits.items():
            _set_limit(directory, name, value)
    except OSError:
        directory.rmdir()
        return None
    return directory


def sweep_groups() -> None:
    """Remove the groups of servers that have ended."""
    for parent, _ in chain.from_iterable(_cgroup_hierarchies()):
        with suppress(OSError):
            for directory in parent.glob(f"{_PREFIX}*"):
                match = _OF_SERVER.fullmatch(directory.name)
                if match and is_gone(match[1]):
                    _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a group's directory. Kill its processes, and wait: an ended process stays in it for some time."""
    give_up_at = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            directory.rmdir()
        except OSError as error:
            # After this server has ended, the sweep of another one tries again.
            if error.errno != errno.EBUSY or time.monotonic() > give_up_at:
                return
        else:
            return
        with suppress(OSError):
            # A process may fork before its signal comes, so each round reads the list again.
            for pid in (directory / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
        time.sleep(_REMOVE_POLL_SECONDS)


def _set_limit(directory: Path, controller: str, value: int | Sequence[str]) -> None:
    if controller == "pids":
        _write(directory / "pids.max", value)
    elif controller == "memory":
        is_version_2 = (directory / "memory.max").exists()
        _write(directory / ("memory.max" if is_version_2 else "memory.limit_in_bytes"), value)
        with suppress(OSError):  # not every system counts swap
            if is_version_2:
                # Otherwise a kernel at its limit would swap instead of being killed.
                _write(directory / "memory.swap.max", 0)
            else:
                # After the limit above: version 1 refuses a sum with swap that is lower than it.
                _write(directory / "memory.memsw.limit_in_bytes", value)
    elif not isinstance(value, int):
        _write(directory / "devices.deny", "a")
        numbers = (os.stat(path).st_rdev for path in value)
        for device in (*_COMMON_DEVICES, *(f"{os.major(number)}:{os.minor(number)}" for number in numbers)):
            _write(directory / "devices.allow", f"c {device} rwm")
    # Membership alone gives a group its share of the processors ("cpu").


def _cgroup_hierarchies() -> Iterator[list[tuple[Path, list[str]]]]:
    """Yield the directories of each hierarchy in which groups could be made, with their usable controllers."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if ".." in Path(inside).parts:  # a group outside the server's namespace
            continue
        if controllers:  # version 1; version 2 has one line, without controllers
            usable = sorted(_CONTROLLERS.intersection(controllers.split(",")))
            if usable:
                yield [(ROOT / usable[0] / inside, usable)]
        else:
            # A group with processes has no children with controllers, so the new group may have to be a sibling.
            yield list(_places_with_controllers(ROOT / inside, (ROOT / inside).parent))


def _places_with_controllers(*parents: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the groups of version 2 that offer controllers to new groups below them."""
    for parent in parents:
        with suppress(OSError):
            offered = (parent / "cgroup.subtree_control").read_text().split()
            usable = [name for name in _CONTROLLERS if name in offered]
            if usable:
                yield parent, usable


def _write(path: Path, value: object) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def sweep_once() -> None:
    """End the processes and remove the files of servers that were killed; once in each process."""
    _sweep(os.getpid())


@cache
def _sweep(_: int) -> None:
    sweep()
    sweep_groups()
