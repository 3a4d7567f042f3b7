"""Limits of the operating system: on a kernel's processes, and on the descriptors of the server.

Those of a kernel are set from outside, on the running process, before its first execution, and cannot be raised again
from inside (unless the server runs as root, whose processes may do anything). What the process does at its very start
can be quicker: a provisioner that limits what it starts is what holds that.

The server raises its own limit on descriptors to the hard one, and its kernels keep the old one. Many programs suffer
from a high limit: those that close all descriptors one by one before they start something, and those that use
`select`, which knows 1,024 of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from ...errors import IsolationRequired

if sys.platform == "linux":
    import resource

#: How a provisioner learns of limits that it sets by itself, before the kernel begins: a kernel manager passes it
#: nothing else. Callers cannot set names like these.
MEMORY_VARIABLE, CPU_VARIABLE = "JUPYTER_EXEC_MAX_MEMORY_BYTES", "JUPYTER_EXEC_MAX_CPU_SECONDS"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of each process of a session; None for no limit.

    Parameters
    ----------
    cpu_seconds : int or None
        Processor time in seconds. A process that has used it up is ended by SIGXCPU.
    memory_bytes : int or None
        Address space in bytes. A process that asks for more gets a MemoryError.
    """

    cpu_seconds: int | None = None
    memory_bytes: int | None = None

    @property
    def any(self) -> bool:
        """True if there is a limit at all."""
        return self.cpu_seconds is not None or self.memory_bytes is not None

    def variables(self) -> dict[str, str]:
        """Return the limits as environment variables, for a provisioner that sets them itself."""
        limits = {MEMORY_VARIABLE: self.memory_bytes, CPU_VARIABLE: self.cpu_seconds}
        return {name: str(value) for name, value in limits.items() if value is not None}


NO_PROCESS_LIMITS = ProcessLimits()


def can_limit() -> bool:
    """True if this system lets limits be set on a process that runs."""
    return sys.platform == "linux"


def limit_process(pid: int | None, limits: ProcessLimits) -> None:
    """Set limits on a process, for itself and whatever it starts from now on.

    Raises
    ------
    IsolationRequired
        If that is not possible here: then no code is to run in it.
    """
    if not limits.any:
        return
    if pid is None or not can_limit():
        raise IsolationRequired(
            "the policy limits processor time or memory (max_cpu_seconds, max_memory_bytes), which cannot be enforced "
            "on this kernel; use a kernelspec of this machine, on Linux, or a policy without these limits"
        )
    if sys.platform == "linux":
        try:
            if limits.cpu_seconds is not None:
                # The second number is when the process is killed if it has made itself deaf to SIGXCPU.
                resource.prlimit(pid, resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 1))
            if limits.memory_bytes is not None:
                resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        except ProcessLookupError:
            return  # it has ended, which its supervisor reports
        except OSError as error:
            raise IsolationRequired(f"the kernel's limits could not be set: {os.strerror(error.errno or 0)}") from None


def limits_of_process(pid: int) -> ProcessLimits:
    """Return the limits that are in force on a process, whoever has set them; none where that cannot be told."""
    found: list[int | None] = [None, None]
    if sys.platform == "linux":
        for at, kind in enumerate((resource.RLIMIT_CPU, resource.RLIMIT_AS)):
            with suppress(OSError):  # it has ended, or belongs to another user
                soft, _ = resource.prlimit(pid, kind)
                found[at] = None if soft == resource.RLIM_INFINITY else soft
    return ProcessLimits(*found)


# Descriptors of a session, at most: four channels, a process's descriptor and a log, four more for a sandbox, and the
# connections of a client that runs code and follows it. Measured on 2026-11-26: 6 for a plain kernel, 10 in a sandbox.
_DESCRIPTORS_PER_SESSION = 12


# Once: a second call would take the raised limit for the old one.
@cache
def raise_descriptor_limit() -> int | None:
    """Raise this process's soft limit to the hard one; children that it forks get the old one back.

    Returns
    -------
    int or None
        The soft limit as it was, for `keeping_descriptor_limit`; None where the limit of another process cannot be set,
        and so nothing is raised.
    """
    if sys.platform != "linux":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # For terminals and worker processes. What `subprocess` starts runs no such function.
        os.register_at_fork(after_in_child=lambda: _set_soft_limit(0, soft))
    return soft


def keeping_descriptor_limit(make: Callable[..., KernelManager], soft: int | None) -> Callable[..., KernelManager]:
    """Return what makes kernel managers as `make` does, but sets the soft limit of each process that they launch."""
    if soft is None:
        return make

    def make_manager(*args: Any, **options: Any) -> KernelManager:
        manager = make(*args, **options)
        # jupyter_client leaves this method to subclasses, and calls it for restarts as well as for starts.
        launch = manager._async_launch_kernel

        async def launch_with_limit(*args: Any, **options: Any) -> None:
            await launch(*args, **options)
            process = getattr(manager.provisioner, "process", None)
            if isinstance(process, subprocess.Popen):  # and none of another machine
                _set_soft_limit(process.pid, soft)

        manager._async_launch_kernel = launch_with_limit  # type: ignore[method-assign]
        return manager

    return make_manager


def _set_soft_limit(pid: int, soft: int) -> None:
    """Lower the soft limit of a process, 0 for this one; the hard one stays."""
    if sys.platform == "linux":
        with suppress(ProcessLookupError):  # it has ended
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            # The kernel may have lowered its hard limit by now, and a soft limit above that is refused.
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))


def fitting_sessions(limit: int, opened: int, kept: int, pooled: int) -> int:
    """Return how many sessions there can be, at least 1.

    Parameters
    ----------
    limit, opened, kept : int
        Descriptors that this process may have, has, and keeps for other things.
    pooled : int
        How many kernels may be kept ready beside those of sessions.
    """
    return max(1, (limit - opened - kept) // _DESCRIPTORS_PER_SESSION - pooled)


def descriptor_limit() -> int | None:
    """Return how many descriptors this process may have; None if that is not known, or there is no limit."""
    if sys.platform != "linux":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def opened_descriptors() -> int | None:
    """Return how many descriptors this process has; None where the system does not tell."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir()) if sys.platform == "linux" else None
