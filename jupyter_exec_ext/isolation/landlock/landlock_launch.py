"""The start of one kernel that Landlock holds, as it runs in the thread that lives as long as the server."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.cgroup import ControlGroup, new_group, sweep_once
from ..common.launch_request import Launch
from ..common.launch_thread import SandboxOutput, read_output
from ..common.leftovers import MARK, end_started_with, link_anew, make_anew, own_name, remove_directory
from .landlock_process import LandlockProcess, NotStartedError, Orders, limits_of_each
from .landlock_support import failure, ready_filter
from .rules import rules_of

# IPython runs what is in this directory of its user when it starts.
_STARTUP = ".ipython/profile_default/startup/00-jupyter-exec.py"


@dataclass(slots=True)
class LaunchedKernel:
    """A kernel that was started, and all that has to be ended with it."""

    process: LandlockProcess
    group: ControlGroup | None
    mark: str
    directories: tuple[Path, ...]
    output: SandboxOutput

    def end(self) -> None:
        """End it, and remove all that it had; for one that nobody wants."""
        self.process.kill()
        self.process.wait()
        self.close()
        for directory in self.directories:
            remove_directory(directory)

    def close(self) -> None:
        """Let go of what it held; for one that has ended."""
        if self.process.returncode != 0:
            # Its keeper may be what was killed, which then has left what the kernel had started.
            end_started_with(f"{MARK}={self.mark}")
            if self.group is not None:
                self.group.kill()
        self.process.close()
        if self.group is not None:
            self.group.remove()


def launch(
    what: Launch, home: Path, temporary: Path, log: logging.Logger | logging.LoggerAdapter[Any]
) -> LaunchedKernel:
    """Start a kernel, and return when it is held.

    Parameters
    ----------
    home, temporary : Path
        Directories of this kernel, which are made anew.

    Raises
    ------
    IsolationUnavailableError, TooMuchToSeeError
    OSError
        If its program cannot be executed.
    """
    sweep_once()
    view, mark = what.view(), f"{own_name()}/{secrets.token_hex(4)}"
    sockets = home.parent / "sockets"
    for directory in (sockets, home, temporary):  # a kernel before it may have left anything there
        make_anew(directory)
    link_anew(what.socket_directory, sockets)
    startup = home / _STARTUP
    startup.parent.mkdir(parents=True)
    shutil.copyfile(Path(__file__).parent / "startup.py", startup)
    orders = Orders(
        program=os.path.abspath(shutil.which(what.command[0]) or what.command[0]),
        command=what.command,
        environment={"TMPDIR": str(temporary), **what.environment, MARK: mark},
        directory=view.work_directory,
        rules=rules_of(view, what.connection_file, own=(str(home), str(temporary)), sockets=str(sockets)),
        limits=limits_of_each(what.limits),
        filter=ready_filter(),
    )
    group = new_group(what.limits.memory_bytes, what.limits.processes)
    output, said = os.pipe()
    try:
        process = LandlockProcess(orders, environment={MARK: own_name()}, group=group, output=said)
    except BaseException as error:
        os.close(output)
        if group is not None:
            group.remove()
        if isinstance(error, NotStartedError):
            raise failure(error.report, orders.program) from None
        raise
    finally:
        os.close(said)
    passed_on = SandboxOutput(what.kernel_id, log)
    read_output(output, passed_on)
    return LaunchedKernel(process, group, mark, (what.socket_directory, home.parent), passed_on)
