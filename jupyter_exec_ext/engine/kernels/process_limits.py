"""Limits of the operating system on a kernel's process and all that it starts.

They are set from outside, on the running process, before its first execution, and cannot be raised again from inside
(unless the server runs as root, whose processes may do anything). What the process does at its very start can be
quicker: a provisioner that limits what it starts is what holds that.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

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
        """Whether there is a limit at all."""
        return self.cpu_seconds is not None or self.memory_bytes is not None

    def variables(self) -> dict[str, str]:
        """Return the limits as environment variables, for a provisioner that sets them itself."""
        limits = {MEMORY_VARIABLE: self.memory_bytes, CPU_VARIABLE: self.cpu_seconds}
        return {name: str(value) for name, value in limits.items() if value is not None}


NO_PROCESS_LIMITS = ProcessLimits()


def can_limit() -> bool:
    """Whether this system lets limits be set on a process that runs."""
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
