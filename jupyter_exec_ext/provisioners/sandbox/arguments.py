"""The command line of a sandbox: what a kernel sees, and what it may use. Pure.

A kernel sees the programs of the system and its own environment, both read-only, one directory that it may write, its
sockets, and nothing else: no network, no other process, no file of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .support import NAMESPACES, NO_NETWORK, Tools

#: Who a kernel is inside. Outside it is the server's user.
USER, UID, GID = "jupyter", 1000, 1000
#: Where it finds its working directory, at the first of these places where nothing else is seen, and its home.
WORK_PLACES, HOME = ("/work", "/session", "/kernel-work"), "/home"
#: Where programs written for Azure's session pools look for it. It is there, too, unless something else is.
DATA = "/mnt/data"
#: Where it makes its sockets, and what their names begin with. Some kernels know only addresses of less than 32 bytes.
#: The directory is a file system of its own, with room for little more, and ends with the sandbox.
SOCKETS, SOCKET, SOCKETS_BYTES = "/sockets", "s", 64 * 1024
TEMPORARY, SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108  # its own

PASSWD = f"{USER}:x:{UID}:{GID}:{USER}:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
GROUP = f"{USER}:x:{GID}:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the processes of one kernel may use; None for no limit.

    Parameters
    ----------
    memory_bytes : int or None
        Address space of each process and, where control groups can be had, memory of all together.
    cpu_seconds : int or None
        Processor time of each process.
    processes : int
        Processes and threads at once.
    open_files, file_bytes : int
        For each process: descriptors, and the largest file it may write.
    tmp_bytes : int
        What each of ``/tmp``, the home directory and ``/dev/shm`` can hold. It is memory.
    """

    memory_bytes: int | None
    cpu_seconds: int | None
    processes: int
    open_files: int
    file_bytes: int
    tmp_bytes: int = 0

    def of_each_process(self) -> dict[str, tuple[int, int]]:
        """Return the limits of the system on each process, soft and hard, by their names."""
        limits = {
            "RLIMIT_NPROC": (self.processes, self.processes),
            "RLIMIT_NOFILE": (self.open_files, self.open_files),
            "RLIMIT_FSIZE": (self.file_bytes, self.file_bytes),
            "RLIMIT_CORE": (0, 0),
        }
        if self.memory_bytes is not None:
            limits["RLIMIT_AS"] = (self.memory_bytes, self.memory_bytes)
        if self.cpu_seconds is not None:
            # The second number is when a process is killed that has made itself deaf to SIGXCPU.
            limits["RLIMIT_CPU"] = (self.cpu_seconds, self.cpu_seconds + 1)
        return limits


@dataclass(frozen=True, slots=True)
class View:
    """What of the machine a kernel sees.

    Parameters
    ----------
    read_only : sequence of str
        Directories and files, under the paths that they have outside.
    links : mapping of str to str
        Symbolic links to make, by their places.
    hidden : sequence of str
        Directories below those that are read-only, which are empty to the kernel.
    writable : mapping of str to str
        Directories that it may write, by their places inside.
    work_directory : str
        What is at one of `WORK_PLACES`, and at `DATA`.
    read_only_inside_work : sequence of str
        Paths below `work_directory`, relative to it, that it may not write.
    """

    read_only: Sequence[str]
    links: Mapping[str, str]
    hidden: Sequence[str]
    work_directory: str
    read_only_inside_work: Sequence[str] = ()
    writable: Mapping[str, str] = field(default_factory=dict)


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
