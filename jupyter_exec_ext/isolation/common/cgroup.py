"""Control groups: limits for all processes of a sandbox together, where this server may make groups.

A limit of each process is none for a kernel that starts many. Control groups limit them together, count those that
were killed for lack of memory, and share the processors out by kernels instead of by processes. Who may make them
depends on the machine: root nearly always, a user where the system has left a part of the tree to them (as systemd does
for its user sessions).

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
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from .leftovers import is_gone, own_name, sweep

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "jex-"
_REMOVE_SECONDS, _REMOVE_POLL_SECONDS = 5.0, 0.002
_OF_SERVER = re.compile(rf"{_PREFIX}(\d+-\d+-\d+)-[0-9a-f]+")


class ControlGroup:
    """A group of processes with limits; one directory in version 2, one for each controller in version 1."""

    def __init__(self, directories: list[Path]) -> None:
        self._directories = directories

    @property
    def limits(self) -> list[str]:
        """What is limited: ``memory``, ``processes``, and ``processors``, of which all get the same."""
        files = {
            "memory": ("memory.max", "memory.limit_in_bytes"),
            "processes": ("pids.max",),
            "processors": ("cpu.weight", "cpu.shares"),
        }
        return [name for name, of in files.items() if any((d / f).exists() for d in self._directories for f in of)]

    def add(self, pid: int) -> None:
        """Put a process in the group, and with it what it starts from now on."""
        for directory in self._directories:
            _write(directory / "cgroup.procs", pid)

    def kill(self) -> None:
        """End the processes in the group."""
        for directory in self._directories:
            with suppress(OSError):
                for pid in (directory / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        """Remove the group, after its processes have ended."""
        for directory in self._directories:
            _remove(directory)


def new_group(memory_bytes: int | None, processes: int) -> ControlGroup | None:
    """Return a new group with these limits, or as many of them as can be had; None if none can."""
    wanted = {"pids": processes, "cpu": 0}
    if memory_bytes is not None:
        wanted["memory"] = memory_bytes
    made: list[Path] = []
    for parent, controllers in _parents():
        limits = {name: wanted[name] for name in controllers if name in wanted}
        if not limits:
            continue
        directory = parent / f"{_PREFIX}{own_name()}-{secrets.token_hex(4)}"
        try:
            directory.mkdir()
        except OSError:
            continue  # not ours to make
        try:
            for name, value in limits.items():
                _LIMITERS[name](directory, value)
        except OSError:
            directory.rmdir()
            continue
        made.append(directory)
        wanted = {name: value for name, value in wanted.items() if name not in limits}
    return ControlGroup(made) if made else None


def sweep_groups() -> None:
    """Remove the groups of servers that are gone."""
    for parent, _ in _parents():
        with suppress(OSError):
            for directory in parent.glob(f"{_PREFIX}*"):
                match = _OF_SERVER.fullmatch(directory.name)
                if match and is_gone(match[1]):
                    _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a group's directory. What is still in it ends; a process that has ended can be in it for some time."""
    give_up_at = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > give_up_at:
                return
        else:
            return
        with suppress(OSError):
            for pid in (directory / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
        time.sleep(_REMOVE_POLL_SECONDS)


def _limit_processes(directory: Path, most: int) -> None:
    _write(directory / "pids.max", most)


def _limit_memory(directory: Path, most_bytes: int) -> None:
    """Limit memory and, where that is counted, swap."""
    if (directory / "memory.max").exists():
        _write(directory / "memory.max", most_bytes)
        with suppress(OSError):
            _write(directory / "memory.swap.max", 0)
    else:
        _write(directory / "memory.limit_in_bytes", most_bytes)
        with suppress(OSError):
            _write(directory / "memory.memsw.limit_in_bytes", most_bytes)


def _share_processors(directory: Path, _: int) -> None:
    """Leave the group its share: a kernel gets as much of busy processors as another, however many processes it has."""


_LIMITERS = {"pids": _limit_processes, "memory": _limit_memory, "cpu": _share_processors}


def _parents() -> Iterator[tuple[Path, list[str]]]:
    """Yield the directories in which groups could be made, with the controllers that they offer."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if ".." in Path(inside).parts:  # a group outside our own namespace
            continue
        if controllers:
            for controller in _LIMITERS.keys() & controllers.split(","):
                yield ROOT / controller / inside, [controller]
        else:
            # A group that has processes has no children with controllers, so ours may have to be a sibling.
            for parent in (ROOT / inside, (ROOT / inside).parent):
                with suppress(OSError):
                    offered = (parent / "cgroup.subtree_control").read_text().split()
                    usable: list[str] = [name for name in _LIMITERS if name in offered]
                    if usable:
                        yield parent, usable


def _write(path: Path, value: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def sweep_once() -> None:
    """End and remove what servers have left behind that were killed; once in each process."""
    _sweep(os.getpid())


@cache
def _sweep(_: int) -> None:
    sweep()
    sweep_groups()
