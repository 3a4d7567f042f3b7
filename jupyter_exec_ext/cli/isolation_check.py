"""Whether kernels can be isolated, on this machine or on a server, and what it means where they are not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..client.sync.client import ExecClient
from ..errors import ExecError, IsolationRequired
from .doctor_finding import Finding

if TYPE_CHECKING:
    from .kernelspecs.local_kernels import LocalKernel

#: What isolates kernels on the server's machine, the best first.
LOCAL_LEVELS = ("sandbox", "landlock")
_WORDS = {"sandbox": "sandboxed", "landlock": "isolated by Landlock"}
# Any will do to see whether a control group can be had.
_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES = 1024**3, 512
_VERSION_SECONDS = 20.0

_REFUSED = "so scoped tokens may not run code there, unless ExecEngine.allow_unprotected_tokens is set"
_ALLOWED = (
    "scoped tokens may run code there all the same (ExecEngine.allow_unprotected_tokens), so their scopes and policies "
    "bind well-behaved code only"
)
_CONTROL_GROUPS = (
    "let servers make control groups with the controllers 'memory' and 'pids' (systemd: Delegate=yes in their unit; a "
    "container: /sys/fs/cgroup mounted so that it can be written)"
)


def unprotected(names: Sequence[str], level: str | None, *, allowed: bool = False) -> Iterator[Finding]:
    """Say what it means that kernels are not isolated.

    Parameters
    ----------
    level : str or None
        The most isolation that these kernels can be given, None for none.
    allowed : bool
        Whether scoped tokens may use them as they are.
    """
    if names:
        given = (
            f"scoped tokens get the isolation {level!r} for them; for yourself, ask for it (jupyter exec run "
            f"--isolation {level}), or set ExecEngine.default_isolation"
        )
        yield Finding(
            f"without isolation: {', '.join(names)}; code in these kernels has all rights of the server's user",
            _ALLOWED if allowed else _REFUSED if level is None else given,
            fails=False,
        )


def level_on_request(client: ExecClient, kernel_name: str) -> str | None:
    """Return the most isolation that a server can give a kernel that has none by itself, found out by starting it."""
    for level in LOCAL_LEVELS:
        try:
            client.session(kernel_name, isolation=level).close()
        except IsolationRequired:
            continue
        except ExecError:  # it says nothing about isolation; a run, which comes next, fails as well
            return None
        return level
    return None


def problems_here() -> dict[str, str | None]:
    """Return why kernels of this machine cannot have a level of isolation, or None, for each level there is."""
    from .kernelspecs.local_kernels import PROVISIONERS, provisioner_class, why_unavailable

    installed = [level for level in LOCAL_LEVELS if provisioner_class(PROVISIONERS[level]) is not None]
    return {level: why_unavailable(level) for level in installed or LOCAL_LEVELS[:1]}


def isolation_here(kernels: Sequence[LocalKernel], problems: Mapping[str, str | None]) -> Iterator[Finding]:
    """Say which isolation kernels of this machine can have, and what that limits.

    Parameters
    ----------
    kernels : sequence of LocalKernel
        Those that are installed.
    problems : mapping
        What `problems_here` returned.
    """
    if not sys.platform.startswith("linux"):
        yield Finding(
            f"kernels can be isolated on Linux only, and this is {sys.platform}",
            "for code that is not yours, use a server on Linux or a remote kernel",
            fails=False,
        )
        return
    for level, problem in problems.items():
        if problem is None:
            by = f" ({_bubblewrap()})" if level == "sandbox" else ""
            yield Finding(f"kernels can be {_WORDS[level]} here{by}")
            continue
        # Nobody has to isolate; but a kernelspec that asks for it is one that does not start.
        broken = [kernel.name for kernel in kernels if kernel.level == level]
        which = f", so these do not start: {', '.join(broken)}" if broken else ""
        yield Finding(f"kernels cannot be {_WORDS[level]} here{which}", problem, fails=bool(broken))
    if problems.get("sandbox", "") is None:
        yield from _limits()


def _bubblewrap() -> str:
    from ..isolation.sandbox.sandbox_support import find_tools

    command = [find_tools().bwrap, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False)
    return done.stdout.strip() or "bubblewrap"


def _limits() -> Iterator[Finding]:
    """Say what is limited for all processes of a sandbox together; code can start many."""
    from ..isolation.common.cgroup import new_group

    group = new_group(_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES)
    limits = [] if group is None else group.limits
    if group is not None:
        group.remove()
    if "memory" in limits:
        yield Finding("the memory of a sandbox is limited as a whole (control group)")
    else:
        yield Finding(
            "the memory of a sandbox is not limited as a whole, but that of each of its processes",
            _CONTROL_GROUPS,
            fails=False,
        )
    if "processes" in limits:
        yield Finding("the number of processes of a sandbox is limited (control group)")
    elif os.geteuid() == 0:  # whom the system's own limit does not hold for
        yield Finding(
            "the number of processes of a sandbox is not limited where the server runs as root: code can start "
            "processes until the machine has no more (a fork bomb)",
            f"run servers as another user, or {_CONTROL_GROUPS}",
            fails=False,
        )
    else:
        yield Finding("the number of processes of a sandbox is limited (RLIMIT_NPROC)")
