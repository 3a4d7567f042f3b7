"""Command line of bubblewrap for one sandbox. Pure.

The kernel sees the system's programs and its own environment, both read-only, one directory that it may write, and its
sockets. It sees no network, no other process, and no other file of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..common.launch_request import GID, HOME, SOCKETS, SOCKETS_BYTES, UID, USER, WORK_PLACES, Limits, View
from .sandbox_support import NAMESPACES, NO_NETWORK, Tools

#: Second path of the working directory, unless it is taken: programs for Azure's session pools use it.
DATA = "/mnt/data"
TEMPORARY, SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108  # its own

PASSWD = f"{USER}:x:{UID}:{GID}:{USER}:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
GROUP = f"{USER}:x:{GID}:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files that bubblewrap inherits and reads while it makes a sandbox."""

    seccomp_filter: int
    passwd: int
    group: int
    connection: int


def sandbox_arguments(
    view: View,
    environment: Mapping[str, str],
    descriptors: Descriptors,
    limits: Limits,
    *,
    connection_file: str,
    host_network: bool = False,
) -> list[str]:
    """Return bubblewrap's arguments, without the command that it is to run.

    Send them through a pipe (``--args``): they contain the environment, and other users can read command lines.
    """
    arguments = [*NAMESPACES, *([] if host_network else [NO_NETWORK])]
    arguments += ["--uid", str(UID), "--gid", str(GID), "--hostname", USER]
    # First, or they would cover visible files below them, such as an environment in /tmp.
    arguments += [*_memory_directory(TEMPORARY, limits), *_memory_directory(HOME, limits)]
    for path in view.read_only:
        arguments += ["--ro-bind", path, path]
    for place, target in view.links.items():
        arguments += ["--symlink", target, place]
    for path in view.hidden:
        arguments += ["--tmpfs", path, "--remount-ro", path]
    arguments += ["--ro-bind-data", str(descriptors.passwd), "/etc/passwd"]
    arguments += ["--ro-bind-data", str(descriptors.group), "/etc/group"]
    # Inside, the server's user may still own the files in /proc/sys, and root could write them.
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    arguments += ["--dev", "/dev", *_memory_directory(SHARED_MEMORY, limits), "--remount-ro", "/dev"]
    arguments += ["--perms", "0700", "--size", str(SOCKETS_BYTES), "--tmpfs", SOCKETS]
    arguments += ["--ro-bind-data", str(descriptors.connection), connection_file]
    for place, path in view.writable.items():
        arguments += ["--bind", path, place]
    work = work_place(view)
    for place in (work, DATA) if _is_free(DATA, view) else (work,):
        arguments += ["--bind", view.work_directory, place]
        for path in view.read_only_inside_work:
            arguments += ["--ro-bind", f"{view.work_directory}/{path}", f"{place}/{path}"]
    # The root file system is memory without a limit, so it must be read-only.
    arguments += ["--remount-ro", "/", "--chdir", work, "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--seccomp", str(descriptors.seccomp_filter)]


def limited_command(command: Sequence[str], limits: Mapping[str, tuple[int, int]], tools: Tools) -> list[str]:
    """Return the command that sets limits (of `Limits.of_each_process`) inside a sandbox and becomes the kernel.

    The kernel leads its own session, so that an interrupt also reaches the processes that it has started.
    """
    options = [f"--{name.removeprefix('RLIMIT_').lower()}={soft}:{hard}" for name, (soft, hard) in limits.items()]
    return [tools.setsid, tools.prlimit, *options, "--", *command]


def work_place(view: View) -> str:
    """Return the path of the working directory inside; ``/work`` may be taken by the kernel's environment."""
    return next((place for place in WORK_PLACES if _is_free(place, view)), WORK_PLACES[-1])


def _is_free(place: str, view: View) -> bool:
    """Return whether no visible file lies at a path, below it or around it."""
    taken = (os.path.normpath(path) + "/" for path in (*view.read_only, *view.links, *view.writable))
    return not any(path.startswith(f"{place}/") or f"{place}/".startswith(path) for path in taken)


def _memory_directory(path: str, limits: Limits) -> list[str]:
    return ["--perms", "0700" if path == HOME else "1777", "--size", str(limits.tmp_bytes), "--tmpfs", path]
