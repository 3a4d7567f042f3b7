"""The command line of a sandbox: what a kernel sees, and what it may use. Pure.

A kernel sees the programs of the system and its own environment, both read-only, one directory that it may write, its
sockets, and nothing else: no network, no other process, no file of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..common.launch_request import GID, HOME, SOCKETS, SOCKETS_BYTES, UID, USER, WORK_PLACES, Limits, View
from .sandbox_support import NAMESPACES, NO_NETWORK, Tools

#: Where programs written for Azure's session pools look for it. It is there, too, unless something else is.
DATA = "/mnt/data"
TEMPORARY, SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108  # its own

PASSWD = f"{USER}:x:{UID}:{GID}:{USER}:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
GROUP = f"{USER}:x:{GID}:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files that bubblewrap inherits: what it reads while it makes a sandbox."""

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

    They hold the kernel's environment, so they go through a pipe (``--args``): other users can read command lines.
    """
    arguments = [*NAMESPACES, *([] if host_network else [NO_NETWORK])]
    arguments += ["--uid", str(UID), "--gid", str(GID), "--hostname", USER]
    # First, or they would cover what is to be seen below them, such as an environment made in /tmp.
    arguments += [*_memory_directory(TEMPORARY, limits), *_memory_directory(HOME, limits)]
    for path in view.read_only:
        arguments += ["--ro-bind", path, path]
    for place, target in view.links.items():
        arguments += ["--symlink", target, place]
    for path in view.hidden:
        arguments += ["--tmpfs", path, "--remount-ro", path]
    arguments += ["--ro-bind-data", str(descriptors.passwd), "/etc/passwd"]
    arguments += ["--ro-bind-data", str(descriptors.group), "/etc/group"]
    # Inside, the server's own user may still be the owner of what is in /proc/sys, and as root write it.
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
    # What holds all of this is memory that nobody counts.
    arguments += ["--remount-ro", "/", "--chdir", work, "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--seccomp", str(descriptors.seccomp_filter)]


def limited_command(command: Sequence[str], limits: Mapping[str, tuple[int, int]], tools: Tools) -> list[str]:
    """Return the command that sets limits (of `Limits.of_each_process`) inside a sandbox and becomes the kernel.

    The kernel leads a session of its own, so that an interrupt reaches what it has started, too.
    """
    options = [f"--{name.removeprefix('RLIMIT_').lower()}={soft}:{hard}" for name, (soft, hard) in limits.items()]
    return [tools.setsid, tools.prlimit, *options, "--", *command]


def work_place(view: View) -> str:
    """Return where a kernel finds its working directory: an environment of it may be below ``/work`` itself."""
    return next((place for place in WORK_PLACES if _is_free(place, view)), WORK_PLACES[-1])


def _is_free(place: str, view: View) -> bool:
    """Whether nothing that is seen lies at a place, below it or around it."""
    taken = (os.path.normpath(path) + "/" for path in (*view.read_only, *view.links, *view.writable))
    return not any(path.startswith(f"{place}/") or f"{place}/".startswith(path) for path in taken)


def _memory_directory(path: str, limits: Limits) -> list[str]:
    return ["--perms", "0700" if path == HOME else "1777", "--size", str(limits.tmp_bytes), "--tmpfs", path]
