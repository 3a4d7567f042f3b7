"""Requirements of the sandbox, and the errors when they are missing.

A kernel that needs isolation is never started without it. Each missing requirement has a name and a remedy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from ..common.isolation_support import IsolationUnavailableError, needed_filter

#: The first release with ``--size``, without which a kernel could fill the machine's memory with files.
MIN_BWRAP = (0, 7)
_TRIAL_SECONDS = 20.0
_INSTALL = "install it (Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)"
_NO_NAMESPACES = re.compile(
    rb"no permissions to create|creating new namespace failed|setting up uid map|unprivileged user namespaces",
    re.IGNORECASE,
)

#: Arguments for a process that sees nothing of the machine. Further arguments make files visible.
NAMESPACES = (
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
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath},
            pass_fds=[seccomp_filter.fileno()],
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise failure(done.stderr)


def failure(said: bytes) -> IsolationUnavailableError:
    """Return the error for a sandbox that could not be made, from bubblewrap's message."""
    text = said.decode("utf-8", "replace").strip().removeprefix("bwrap: ") or "it did not say why"
    shown = "".join(character if character.isprintable() else " " for character in text)[:300]
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
    found = shutil.which(name) or shutil.which(name, path=os.defpath)
    if found is None:
        raise IsolationUnavailableError(reason, message)
    return found


@cache  # exceptions are not cached, so a failed trial is repeated
def _check_version(bwrap: str) -> None:
    done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout)
    if found is None:
        why = f"it ended with {done.returncode} when it was asked for its version"
        raise IsolationUnavailableError("bubblewrap_failed", f"bubblewrap ({bwrap}) does not work: {why}; {_INSTALL}")
    if tuple(map(int, found[0].split("."))) < MIN_BWRAP:
        wanted = ".".join(map(str, MIN_BWRAP))
        message = f"bubblewrap is {found[0]}, and {wanted} is needed; {_INSTALL}"
        raise IsolationUnavailableError("old_bubblewrap", message)
