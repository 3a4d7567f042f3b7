"""Processes of isolated kernels: their common base, their limits, and the record of a started kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .cgroup import ControlGroup
from .kernel_output import KernelOutput
from .leftovers import remove_directory

if sys.platform == "linux":
    import resource

END_SECONDS = 10.0


class IsolatedProcess(subprocess.Popen[bytes]):
    """A process that holds an isolated kernel and ends with it. Each kind of isolation has a subclass.

    Start it in a thread that lives as long as the server: the kernel ends with that thread.
    """

    # Keeps each process until `close`: the garbage collector would otherwise call `__del__` of one that is to be ended.
    _open: ClassVar[set[IsolatedProcess]] = set()

    @property
    def kernel_pid(self) -> int | None:
        """Process id of the kernel, as the server sees it; None before the kernel has started."""
        raise NotImplementedError

    def send_to_kernel(self, signum: int) -> None:
        """Send a signal to the kernel and to what it has started in its session."""
        pid = self.kernel_pid
        if pid is None or self.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(pid, signum)

    def end(self) -> None:
        """Kill the kernel and everything it has started, wait for the end, and release the descriptors."""
        self.kill()
        try:
            self.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            super().kill()
            self.wait()
        self.close()

    def close(self) -> None:
        """Release the descriptors. Call it after the process has ended."""
        self._release()

    def _release(self) -> None:
        """Close the descriptors of a subclass."""
        self._open.discard(self)

    def __del__(self, **kwargs: Any) -> None:
        """Release the descriptors; `Popen` warns if the process has not ended."""
        self._release()
        super().__del__(**kwargs)


@dataclass(slots=True)
class IsolatedKernel:
    """A started kernel, with everything that has to be removed after its end.

    Parameters
    ----------
    process : IsolatedProcess
        The process that holds the kernel.
    group : ControlGroup or None
        The control group of the kernel's processes.
    output : KernelOutput
        Text that the process prints beside the kernel's messages.
    directories : tuple of Path
        Directories of this kernel only.
    """

    process: IsolatedProcess
    group: ControlGroup | None
    output: KernelOutput
    directories: tuple[Path, ...]

    def close(self) -> None:
        """Release the resources of a kernel whose process has ended."""
        self.process.close()
        if self.group is not None:
            self.group.remove()

    def end(self) -> None:
        """End the kernel, and remove everything that belongs to it."""
        self.process.end()
        if self.group is not None:
            self.group.remove()
        for directory in self.directories:
            remove_directory(directory)


def cap_limits(wanted: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return resource limits, lowered to the server's own hard limits, which only root could raise."""
    if sys.platform != "linux":
        return dict(wanted)
    capped = {}
    for name, values in wanted.items():
        own = resource.getrlimit(getattr(resource, name))[1]
        soft, hard = values if own == resource.RLIM_INFINITY else (min(value, own) for value in values)
        capped[name] = (soft, hard)
    return capped
