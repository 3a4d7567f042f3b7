"""The start of one sandbox, as it runs in the thread that lives as long as the server."""

from __future__ import annotations

import json
import logging
import os
import secrets
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..common.cgroup import ControlGroup, new_group, sweep_once
from ..common.launch_request import SOCKET, SOCKETS, Launch
from ..common.launch_thread import SandboxOutput, read_output
from ..common.leftovers import MARK, link_anew, own_name, remove_directory
from .bubblewrap_arguments import GROUP, PASSWD, Descriptors, limited_command, sandbox_arguments
from .sandbox_process import SANDBOX_ID, BrokenSandboxError, SandboxProcess, behind_gate, possible_limits
from .sandbox_support import failure, find_tools

_SAID_BYTES = 4096


@dataclass(slots=True)
class LaunchedSandbox:
    """A sandbox that was started, its control group, the directory of its sockets, and its output."""

    process: SandboxProcess
    group: ControlGroup | None
    socket_directory: Path
    output: SandboxOutput

    def close(self) -> None:
        """Let go of what it held; for one whose process has ended."""
        self.process.close()
        if self.group is not None:
            self.group.remove()

    def end(self) -> None:
        """End it, and remove all that it had; for one that nobody wants."""
        self.process.end()
        self.close()
        remove_directory(self.socket_directory)


def launch(what: Launch, log: logging.Logger | logging.LoggerAdapter[Any]) -> LaunchedSandbox:
    """Start a sandbox, and return when its kernel is inside. Of one that cannot be started nothing is left.

    Raises
    ------
    IsolationUnavailableError, TooMuchToSeeError
    """
    sweep_once()
    tools = find_tools()
    view = what.view()
    with ExitStack() as undo, ExitStack() as held:
        undo.callback(remove_directory, what.socket_directory)
        read = _Readable(held)
        descriptors = Descriptors(
            held.enter_context(open(tools.seccomp_filter, "rb")).fileno(),
            read(PASSWD),
            read(GROUP),
            read(json.dumps(json.loads(Path(what.connection_file).read_text()) | {"ip": f"{SOCKETS}/{SOCKET}"})),
        )
        arguments = sandbox_arguments(
            view,
            what.environment,
            descriptors,
            what.limits,
            connection_file=os.path.realpath(what.connection_file),
            host_network=what.host_network,
        )
        args = read("".join(f"{argument}\0" for argument in arguments))
        limits = possible_limits(what.limits.of_each_process())
        group = new_group(what.limits.memory_bytes, what.limits.processes)
        if group is not None:
            undo.callback(group.remove)
        output, said = os.pipe()
        undo.callback(os.close, output)
        held.callback(os.close, said)
        try:
            process = SandboxProcess(
                [tools.bwrap, "--args", str(args)],
                limited_command(behind_gate(what.command), limits, tools),
                env={MARK: own_name(), SANDBOX_ID: secrets.token_hex(8)},
                descriptors=[args, *astuple(descriptors)],
                limits=limits,
                group=group,
                output=said,
            )
        except BrokenSandboxError:
            raise failure(_what_was_said(output)) from None
        undo.callback(process.end)
        link_anew(what.socket_directory, Path(f"/proc/{os.getpid()}/fd/{process.sockets}"))
        passed_on = SandboxOutput(what.kernel_id, log)
        read_output(output, passed_on)
        undo.pop_all()
    return LaunchedSandbox(process, group, what.socket_directory, passed_on)


def _what_was_said(output: int) -> bytes:
    os.set_blocking(output, False)  # whoever could still write has ended
    try:
        return os.read(output, _SAID_BYTES)
    except BlockingIOError:
        return b""


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
