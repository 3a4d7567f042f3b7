"""The start of one sandbox, as it runs in the thread that lives as long as the server."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .arguments import GROUP, PASSWD, Descriptors, Limits, View, limited_command, sandbox_arguments
from .cgroup import ControlGroup, new_group, sweep_groups
from .launcher import SandboxOutput, read_output
from .leftovers import MARK, own_name, sweep
from .process import BrokenSandboxError, SandboxProcess
from .support import failure, find_tools

_SAID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Parameters
    ----------
    command : sequence of str
        The kernel's own.
    view : callable
        Works out what the kernel sees.
    kernel_id : str
        Its name in the log.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    view: Callable[[], View]
    socket_directory: Path
    connection_file: str
    kernel_id: str
    host_network: bool = False


@dataclass(slots=True)
class LaunchedSandbox:
    """A sandbox that was started, and its control group."""

    process: SandboxProcess
    group: ControlGroup | None

    def close(self) -> None:
        """Let go of what it held; for one that has ended."""
        self.process.close()
        if self.group is not None:
            self.group.remove()


def launch(what: Launch, log: logging.Logger | logging.LoggerAdapter[Any]) -> LaunchedSandbox:
    """Start a sandbox, and return when its kernel is inside.

    Raises
    ------
    IsolationUnavailableError, TooMuchToSeeError
    """
    sweep_once()
    tools = find_tools()
    view = what.view()
    make_anew(what.socket_directory)  # a kernel before it may have left anything there
    with ExitStack() as held:
        read = _Readable(held)
        descriptors = Descriptors(
            held.enter_context(open(tools.seccomp_filter, "rb")).fileno(),
            read(PASSWD),
            read(GROUP),
        )
        arguments = sandbox_arguments(
            view,
            what.environment,
            descriptors,
            what.limits,
            socket_directory=str(what.socket_directory),
            connection_file=os.path.realpath(what.connection_file),
            host_network=what.host_network,
        )
        args = read("".join(f"{argument}\0" for argument in arguments))
        group = new_group(what.limits.memory_bytes, what.limits.processes)
        output, said = os.pipe()
        try:
            process = SandboxProcess(
                [tools.bwrap, "--args", str(args)],
                limited_command(what.command, what.limits, tools),
                env={MARK: own_name()},
                descriptors=[args, descriptors.seccomp_filter, descriptors.passwd, descriptors.group],
                group=group,
                output=said,
            )
        except BaseException as error:
            os.close(said)
            text = os.read(output, _SAID_BYTES)
            os.close(output)
            if group is not None:
                group.remove()
            if isinstance(error, BrokenSandboxError):
                raise failure(text) from None
            raise
        os.close(said)
    read_output(output, SandboxOutput(what.kernel_id, log))
    return LaunchedSandbox(process, group)


class _Readable:
    """Makes texts that a child can read from a descriptor, without a file that anybody could open."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held

    def __call__(self, text: str) -> int:
        descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
        self._held.callback(os.close, descriptor)
        os.write(descriptor, os.fsencode(text))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def make_anew(directory: Path) -> None:
    """Make an empty directory, whatever was there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def sweep_once() -> None:
    """End and remove what servers have left behind that were killed; once in each process."""
    _sweep(os.getpid())


@cache
def _sweep(_: int) -> None:
    sweep()
    sweep_groups()
