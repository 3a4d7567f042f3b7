"""Descriptor limits: the server raises its soft limit to the hard one, and its kernels keep the old one.

Many programs suffer from a high limit: those that close all descriptors one by one before they start something, and
those that use `select`, which knows 1,024 of them. So what the server raises for itself is set back in its children.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

if sys.platform == "linux":
    import resource

# Descriptors of a session, at most: four channels, a process's descriptor and a log, four more for a sandbox, and the
# connections of a client that runs code and follows it. Measured on 2026-11-26: 6 for a plain kernel, 10 in a sandbox.
_DESCRIPTORS_PER_SESSION = 12


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


def opened_descriptors() -> int:
    """Return how many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
