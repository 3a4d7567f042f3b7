"""Bubblewrap: its requirements on this machine, and its command line for one sandbox.

A kernel that needs isolation is never started without it. Each missing requirement has a name and a remedy.

The kernel sees the system's programs and its own environment, both read-only, one directory that it may write, and its
sockets. It sees no network, no other process, and no other file of the user's.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..common.isolation_support import IsolationUnavailableError, needed_filter
from ..common.launch_request import GID, HOME, SOCKETS, SOCKETS_BYTES, UID, USER, WORK_PLACES, Limits, View
from .proxy_environment import CERTIFICATES

#: The first release with ``--size``, without which a kernel could fill the machine's memory with files.
MIN_BWRAP = (0, 7)
_TRIAL_SECONDS = 20.0
_INSTALL = "install it (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)"
# No such program or interpreter, no right, and a program for another processor.
_NOT_EXECUTABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC)
_NO_NAMESPACES = re.compile(
    rb"no permissions to create|creating new namespace failed|setting up uid map|unprivileged user namespaces",
    re.IGNORECASE,
)

#: Arguments for a process that sees nothing of the machine. Further arguments make files visible.
NAMESPACES = (
    # Not every system has cgroup namespaces, so only this one is optional.
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
NO_NETWORK = "--unshare-net"


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs of this machine that make a sandbox, and the filter of system calls for its processor."""

    bwrap: str
    prlimit: str
    setsid: str
    seccomp_filter: str


def find_tools() -> Tools:
    """Return the tools for a sandbox, without a trial.

    Raises
    ------
    IsolationUnavailableError
        If a tool is missing or too old.
    """
    seccomp_filter = needed_filter("sandbox")
    bwrap = _program("bwrap", "no_bubblewrap", f"bubblewrap (bwrap) is not installed; {_INSTALL}")
    _check_version(bwrap)
    missing = "{} is not installed; install util-linux"
    return Tools(
        bwrap,
        _program("prlimit", "no_prlimit", missing.format("prlimit")),
        _program("setsid", "no_setsid", missing.format("setsid")),
        str(seccomp_filter),
    )


def ready_tools() -> Tools:
    """Return the tools for a sandbox, after one trial in this process.

    Raises
    ------
    IsolationUnavailableError
        If a tool is missing or too old, or the trial fails.
    """
    tools = find_tools()
    _try(tools)
    return tools


@cache  # exceptions are not cached, so a failed trial is repeated
def _try(tools: Tools) -> None:
    with open(tools.seccomp_filter, "rb") as seccomp_filter:
        # In a container that masks parts of /proc, Linux refuses a new /proc. So the trial mounts one, too.
        command = [tools.bwrap, *NAMESPACES, NO_NETWORK, "--ro-bind", "/", "/", "--proc", "/proc"]
        # Without this option bubblewrap leaves an orphan, which would stay a zombie if the server is process 1.
        command += [
            "--as-pid-1",
            "--seccomp",
            str(seccomp_filter.fileno()),
            "--",
            tools.prlimit,
            "--nofile",
            "--noheadings",
        ]
        done = _run(command, env={"PATH": os.defpath}, pass_fds=[seccomp_filter.fileno()])
    if done.returncode != 0:
        raise failure(done.stderr)


def _run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run bubblewrap to its end.

    Raises
    ------
    IsolationUnavailableError
        If it cannot be executed, or takes too long.
    """
    what = f"bubblewrap ({command[0]})"
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_SECONDS, check=False, **options
        )
    except subprocess.TimeoutExpired:
        message = f"{what} did not end within {_TRIAL_SECONDS:g} s; run it by hand to see why, or {_INSTALL}"
        raise IsolationUnavailableError("bubblewrap_failed", message) from None
    except OSError as error:
        if error.errno not in _NOT_EXECUTABLE:  # such as too few descriptors, which says nothing about bubblewrap
            raise
        message = f"{what} does not work: {os.strerror(error.errno)}; {_INSTALL}"
        raise IsolationUnavailableError("bubblewrap_failed", message) from None


def failure(said: bytes) -> IsolationUnavailableError:
    """Return the error for a sandbox that could not be made, from bubblewrap's message."""
    text = said.decode("utf-8", "replace").strip().removeprefix("bwrap: ") or "it did not say why"
    shown = "".join(character if character.isprintable() else " " for character in text)[:300]
    # Bubblewrap exits with 1 for every error, so only its messages tell them apart. They differ by release.
    if _NO_NAMESPACES.search(said):
        return IsolationUnavailableError(
            "no_user_namespaces",
            f"this system lets bubblewrap create no user namespaces ({shown}); allow them (sysctl "
            "user.max_user_namespaces, kernel.unprivileged_userns_clone; on Ubuntu 24.04 an AppArmor profile for "
            "bwrap; in a container a seccomp profile that allows them), or use the level 'landlock'",
        )
    if b"seccomp" in said.lower():
        return IsolationUnavailableError(
            "no_seccomp", f"the filter of system calls could not be set ({shown}); allow the system call 'seccomp'"
        )
    return IsolationUnavailableError("bubblewrap_failed", f"bubblewrap could not make a sandbox: {shown}")


def _program(name: str, reason: str, message: str) -> str:
    # A service's PATH may name only the server's own environment.
    found = shutil.which(name) or shutil.which(name, path=os.defpath)
    if found is None:
        raise IsolationUnavailableError(reason, message)
    return found


def run_for_version(bwrap: str) -> subprocess.CompletedProcess[bytes]:
    """Run bubblewrap to print its name and version; raises `IsolationUnavailableError` if it does not run."""
    return _run([bwrap, "--version"])


@cache  # exceptions are not cached, so a failed trial is repeated
def _check_version(bwrap: str) -> None:
    done = run_for_version(bwrap)
    found = re.search(rb"\d+(?:\.\d+)+", done.stdout)
    # A bubblewrap that was killed meanwhile has printed nothing, which must not pass for an old release.
    if found is None:
        why = f"it ended with {done.returncode} when it was asked for its version"
        raise IsolationUnavailableError("bubblewrap_failed", f"bubblewrap ({bwrap}) does not work: {why}; {_INSTALL}")
    version = found[0].decode()
    if tuple(map(int, version.split("."))) < MIN_BWRAP:
        wanted = ".".join(map(str, MIN_BWRAP))
        message = f"bubblewrap is {version}, and {wanted} is needed; {_INSTALL}"
        raise IsolationUnavailableError("old_bubblewrap", message)


#: Second path of the working directory, unless it is taken: programs for Azure's session pools use it.
DATA = "/mnt/data"
TEMPORARY, SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108  # its own

# Programs look up their user's name and home here; the machine's own files would show its users.
# In a user namespace, files of all other users appear with the owner 65534.
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
    certificates: str = "",
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
        arguments += _empty_directory(path)
    for place, path in view.mounts.items():
        arguments += ["--ro-bind", path, place]
    arguments += ["--ro-bind-data", str(descriptors.passwd), "/etc/passwd"]
    arguments += ["--ro-bind-data", str(descriptors.group), "/etc/group"]
    if certificates:
        arguments += ["--ro-bind", certificates, CERTIFICATES]
    # Inside, the server's user may still own the files in /proc/sys, and root could write them.
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    # The file system of --dev has no limit either. /dev/shm is a mount of its own, which stays writable.
    arguments += ["--dev", "/dev", *_memory_directory(SHARED_MEMORY, limits)]
    for node in view.devices:
        arguments += ["--dev-bind", node, node]
    arguments += ["--remount-ro", "/dev"]
    # In a directory of the machine instead, a kernel could write files without a limit.
    arguments += ["--perms", "0700", "--size", str(SOCKETS_BYTES), "--tmpfs", SOCKETS]
    arguments += ["--ro-bind-data", str(descriptors.connection), connection_file]
    for place, path in view.writable.items():
        arguments += ["--bind", path, place]
    work = work_place(view)
    for place in (work, DATA) if _is_free(DATA, view) else (work,):
        arguments += ["--bind", view.work_directory, place]
        # An environment below the working directory would be writable through the bind above.
        for path in view.read_only_inside_work:
            arguments += ["--ro-bind", f"{view.work_directory}/{path}", f"{place}/{path}"]
        for path in view.hidden_inside_work:
            arguments += _empty_directory(f"{place}/{path}")
    # The root file system is memory without a limit, so it must be read-only.
    arguments += ["--remount-ro", "/", "--chdir", work, "--clearenv"]
    # --clearenv drops bubblewrap's own variables, by which the server finds its processes.
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
    taken = (os.path.normpath(path) + "/" for path in (*view.read_only, *view.links, *view.writable, *view.mounts))
    return not any(path.startswith(f"{place}/") or f"{place}/".startswith(path) for path in taken)


def _empty_directory(path: str) -> list[str]:
    """Return arguments that cover a directory; read-only, since the new one is memory without a limit."""
    return ["--tmpfs", path, "--remount-ro", path]


def _memory_directory(path: str, limits: Limits) -> list[str]:
    return ["--perms", "0700" if path == HOME else "1777", "--size", str(limits.tmp_bytes), "--tmpfs", path]
