"""The provisioner: a kernel that Landlock holds, for any Jupyter application."""

from __future__ import annotations

from pathlib import Path

from ...system.worker_threads import in_thread
from ..common.isolated_provisioner import IsolatedProvisioner
from ..common.launch_request import Launch
from ..common.leftovers import private_directory, remove_directory
from .landlock_launch import LaunchedKernel, launch
from .landlock_support import ready_filter


class LandlockProvisioner(IsolatedProvisioner):
    """Runs a kernel without namespaces, for containers that forbid them; configured as ``c.LandlockProvisioner``.

    A kernelspec may set `read_only`, `writable`, `env` and `working_directory` in its provisioner's ``config``.

    It holds less than a sandbox. The kernel has no part of the file system but what it is given, no network, and no way
    to the memory of other processes or to send them signals. It does see the machine's own paths and process ids, it
    can have no terminals and nothing in ``/dev/shm``, and where there are no control groups, its number of processes
    has no limit but the user's.
    """

    level = "landlock"
    _places: Path | None = None

    @classmethod
    def require(cls) -> None:
        """Find out whether Landlock can hold kernels on this machine; raises `IsolationUnavailableError`."""
        ready_filter()

    def choose_places(self) -> None:
        """Choose a directory for what would be a file system of its own in a sandbox."""
        if self._places is None:
            self._places = private_directory()

    @property
    def home(self) -> str:
        """The home directory that the kernel has."""
        return str(self._place("home"))

    @property
    def shared_directory(self) -> tuple[Path, str] | None:
        """A directory that the kernel and the server can write, which has the same name for both."""
        return None if self._places is None else (self._place("tmp"), str(self._place("tmp")))

    def launch_isolated(self, what: Launch) -> LaunchedKernel:
        """Start a kernel, and return when it is held."""
        return launch(what, self._place("home"), self._place("tmp"), self.log)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what belonged to the kernel."""
        await super().cleanup(restart)
        if not restart and self._places is not None:
            await in_thread(remove_directory, self._places)
            self._places = None

    def _place(self, name: str) -> Path:
        assert self._places is not None
        return self._places / name
