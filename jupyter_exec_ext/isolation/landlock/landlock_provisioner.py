"""`LandlockProvisioner`: kernels under Landlock, for any Jupyter application, and the rules of what they reach."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...system.worker_threads import in_thread
from ..common.cgroup import new_group, sweep_once
from ..common.isolated_process import IsolatedKernel, cap_limits
from ..common.isolated_provisioner import IsolatedProvisioner
from ..common.kernel_output import KernelOutput
from ..common.launch_request import Launch, View
from ..common.leftovers import MARK, link_anew, make_anew, own_name, private_directory, remove_directory
from ..common.visible_files import VisibleFilesError
from .landlock_process import LandlockProcess, NotStartedError, Orders, failure, ready_filter


class LandlockProvisioner(IsolatedProvisioner):
    """Provisioner of a kernel without namespaces, for containers that forbid them; ``c.LandlockProvisioner``.

    A kernelspec may set `read_only`, `writable`, `env` and `working_directory` in its provisioner's ``config``.

    It isolates less than a sandbox. The kernel reaches only the files that it is given, no network, no memory of other
    processes, and it cannot send them signals. It sees the machine's own paths and process ids. It has no terminals and
    no ``/dev/shm``. Without control groups, its number of processes has only the user's limit.
    """

    level = "landlock"
    _places: Path | None = None

    @classmethod
    def require(cls) -> None:
        """Check that this machine can isolate kernels with Landlock; raises `IsolationUnavailableError`."""
        ready_filter()

    def choose_places(self) -> None:
        """Choose the directory that takes the place of a sandbox's own file systems."""
        if self._places is None:
            self._places = private_directory()

    @property
    def home(self) -> str:
        """Home directory of the kernel."""
        return str(self._place("home"))

    @property
    def shared_directory(self) -> tuple[Path, str] | None:
        """A directory that the kernel and the server can write; it has the same path for both."""
        return None if self._places is None else (self._place("tmp"), str(self._place("tmp")))

    def launch_isolated(self, what: Launch) -> IsolatedKernel:
        """Start a kernel, and return when it is isolated."""
        return launch_under_landlock(what, self._place("home"), self._place("tmp"), self.log)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the directories of the kernel."""
        await super().cleanup(restart)
        if not restart and self._places is not None:
            await in_thread(remove_directory, self._places)
            self._places = None

    def _place(self, name: str) -> Path:
        assert self._places is not None
        return self._places / name


# IPython runs the files in this directory when it starts.
_STARTUP = ".ipython/profile_default/startup/00-jupyter-exec.py"


def launch_under_landlock(
    what: Launch, home: Path, temporary: Path, log: logging.Logger | logging.LoggerAdapter[Any]
) -> IsolatedKernel:
    """Start a kernel under Landlock, and return when it is isolated.

    Parameters
    ----------
    home, temporary : Path
        Directories of this kernel, which are emptied.

    Raises
    ------
    IsolationUnavailableError
        If the kernel cannot be isolated.
    VisibleFilesError
        If the kernel would see or write more than it may.
    OSError
        If its program cannot be executed.
    """
    sweep_once()
    # The second part is for this kernel, so that its processes can be ended without those of others.
    view, mark = what.view(), f"{own_name()}/{secrets.token_hex(4)}"
    sockets = home.parent / "sockets"
    for directory in (sockets, home, temporary):  # an earlier kernel may have left anything there
        make_anew(directory)
    # The directory's path can be too long for a socket, the link's is short.
    link_anew(what.socket_directory, sockets)
    startup = home / _STARTUP
    startup.parent.mkdir(parents=True)
    shutil.copyfile(Path(__file__).parent / "startup.py", startup)
    limits = what.limits.of_each_process()
    del limits["RLIMIT_NPROC"]  # it counts all processes of the user, not those of the kernel
    orders = Orders(
        program=os.path.abspath(shutil.which(what.command[0]) or what.command[0]),
        command=what.command,
        # MARK is last: the kernel's variables must not name another server.
        environment={"TMPDIR": str(temporary), **what.environment, MARK: mark},
        directory=view.work_directory,
        rules=rules_of(view, what.connection_file, own=(str(home), str(temporary)), sockets=str(sockets)),
        limits=cap_limits(limits),
        filter=ready_filter(),
    )
    with ExitStack() as undo, ExitStack() as held:
        group = new_group(what.limits.memory_bytes, what.limits.processes)
        if group is not None:
            undo.callback(group.remove)
        output, write_end = os.pipe()
        undo.callback(os.close, output)
        held.callback(os.close, write_end)
        try:
            process = LandlockProcess(orders, environment={MARK: own_name()}, group=group, output=write_end)
        except NotStartedError as error:
            raise failure(error.report, orders.program) from None
        undo.callback(process.end)
        kernel_output = KernelOutput(what.kernel_id, log)
        kernel_output.read_in_background(output)
        undo.pop_all()
    return IsolatedKernel(process, group, kernel_output, (what.socket_directory, home.parent))


# Only devices that store nothing. /dev/shm and terminals are shared by all users.
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# Files of /proc about the machine, and not about other processes. A process also gets its own files.
_OF_MACHINE = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"),
    *("sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/osrelease", "sys/kernel/ostype"),
    *("sys/kernel/pid_max", "sys/kernel/threads-max", "sys/kernel/random/uuid"),
    *("sys/vm/max_map_count", "sys/vm/overcommit_memory"),
)

Rule = tuple[str, str]


def rules_of(view: View, connection_file: str, *, own: Iterable[str], sockets: str) -> list[Rule]:
    """Return the Landlock rules for a view. Their order does not matter: each adds to the others.

    Parameters
    ----------
    view : View
        Files that the kernel sees.
    connection_file : str
        The kernel's connection file.
    own : iterable of str
        Directories that were made for this kernel.
    sockets : str
        Directory for the kernel's sockets only.

    Raises
    ------
    VisibleFilesError
        If rules cannot express the view.
    """
    if view.read_only_inside_work:
        raise VisibleFilesError(
            f"{view.work_directory} holds what the kernel must not change ({view.read_only_inside_work[0]}), and "
            "Landlock cannot except a part of a directory; start the kernel in another directory, set 'cwd', or use "
            "the level 'sandbox'"
        )
    hidden = [os.path.realpath(path) for path in view.hidden]
    rules = [(path, "read") for seen in view.read_only for path in _list_except(os.path.realpath(seen), hidden)]
    rules += [(path, "write" if os.path.isdir(path) else "device") for path in view.writable.values()]
    rules += [(path, "write") for path in (view.work_directory, *own)]
    rules.append((sockets, "sockets"))
    rules.append((os.path.realpath(connection_file), "read"))
    rules += [(path, "device") for name in _DEVICES if os.path.exists(path := f"/dev/{name}")]
    rules += [(path, "read") for name in _OF_MACHINE if os.path.exists(path := f"/proc/{name}")]
    return rules


def _list_except(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Yield a path, or its entries without the hidden ones. Links are left out, since they lead anywhere."""
    if path in hidden:
        return
    if not any(other.startswith(f"{path.rstrip('/')}/") for other in hidden):
        yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _list_except(entry.path, hidden)
