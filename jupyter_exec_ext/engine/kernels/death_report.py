"""Why did a kernel process die? What is noted while it lives, and what that says once it is dead."""

from __future__ import annotations

from dataclasses import dataclass

from ...models import ExecutionState
from ..ports import KernelExit
from .crash_files import CrashFile
from .oom_kills import OomWatch


@dataclass(frozen=True, slots=True)
class Death:
    """What is known of a kernel's death.

    Parameters
    ----------
    traceback : str
        Where the code was, as the dying process wrote it; empty if it did not.
    """

    state: ExecutionState
    reason: str
    traceback: str = ""


def plain_death(exit_: KernelExit) -> Death:
    """Return what the exit alone says."""
    why = " because its processor time was used up" if exit_.signal == "SIGXCPU" else ""
    return Death(ExecutionState.KERNEL_DIED, f"the kernel {exit_}{why}")


class PostMortem:
    """The evidence about one kernel process. All methods read files: call them in a thread.

    Parameters
    ----------
    pid : int or None
        The process, if it is one of this machine.
    crash_file : CrashFile or None
        Where it may write a crash report; None for a kernel that cannot.
    """

    def __init__(self, pid: int | None, crash_file: CrashFile | None) -> None:
        self._oom = OomWatch(pid)
        self._crash_file = crash_file

    @property
    def setup_code(self) -> str | None:
        """What the kernel has to run, silently, so that there is a report."""
        return None if self._crash_file is None else self._crash_file.setup_code

    def explain(self, exit_: KernelExit, *, killed_by_us: bool) -> Death:
        """Return what is known of the death."""
        traceback = "" if self._crash_file is None else self._crash_file.read()
        if self._oom.explains(exit_.signal, killed_by_us=killed_by_us):
            reason = f"the kernel {exit_} because its memory limit was reached"
            return Death(ExecutionState.OOM_KILLED, reason, traceback)
        plain = plain_death(exit_)
        return Death(plain.state, plain.reason, traceback)

    def close(self) -> None:
        """Remove what was written."""
        if self._crash_file is not None:
            self._crash_file.remove()
