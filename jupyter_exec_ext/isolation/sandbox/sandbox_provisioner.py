"""`SandboxProvisioner`: kernels in a sandbox made by bubblewrap, for any Jupyter application."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, ClassVar

from traitlets import Bool, Enum, Integer

from ...system.worker_threads import in_thread
from ..common.cgroup import new_group, sweep_once
from ..common.grant_checks import with_grants
from ..common.isolated_process import IsolatedKernel, cap_limits
from ..common.isolated_provisioner import IsolatedProvisioner
from ..common.isolation_support import IsolationUnavailableError
from ..common.kernel_output import KernelOutput, OutputPipe
from ..common.launch_request import GRANTS_VARIABLE, NETWORK_VARIABLE, SOCKET, SOCKETS, WORK_PLACES, Launch
from ..common.leftovers import MARK, base_directory, link_anew, own_name, remove_directory
from .bubblewrap import (
    GROUP,
    PASSWD,
    Descriptors,
    failure,
    find_tools,
    limited_command,
    ready_tools,
    sandbox_arguments,
    work_place,
)
from .kernel_removal import PLACEHOLDER_SIGNAL, end_kernel
from .proxy_environment import PROXY_PORT, proxy_environment
from .sandbox_process import SANDBOX_ID, BrokenSandboxError, SandboxProcess, put_behind_gate


class SandboxProvisioner(IsolatedProvisioner):
    """Provisioner of a kernel in a sandbox made by bubblewrap; ``c.SandboxProvisioner`` in any Jupyter application.

    A kernelspec may set `read_only`, `writable`, `env`, `working_directory` and `network` in its provisioner's
    ``config``.
    """

    level = "sandbox"
    _work_place = WORK_PLACES[0]
    _certificates: str | None = None  # None for a kernel without a proxy
    _grants = ""
    _pipe: OutputPipe | None = None
    of_kernelspec: ClassVar[tuple[str, ...]] = (*IsolatedProvisioner.of_kernelspec, "network")

    network = Enum(
        ("none", "host"),
        default_value="none",
        help="'host' gives kernels this machine's network, its loopback included.",
    )
    allow_host_network = Bool(
        False,
        help="Let a kernelspec ask for the network of this machine. Such a kernel reaches the server itself, "
        "and counts as one without isolation.",
    ).tag(config=True)
    max_tmp_bytes = Integer(
        512 * 1024**2, help="Size of each of /tmp, the home directory and /dev/shm. It is memory."
    ).tag(config=True)

    @classmethod
    def require(cls) -> None:
        """Check that this machine can make sandboxes; raises `IsolationUnavailableError`."""
        ready_tools()

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare a launch: check that there can be a sandbox, and choose the directory of its sockets.

        Raises
        ------
        IsolationUnavailableError
            If sandboxes cannot be made here, or the kernelspec may not have the network that it asks for.
        """
        if self.network == "host" and not self.allow_host_network:
            raise IsolationUnavailableError(
                "host_network",
                "this kernelspec asks for the machine's network, which is no isolation; the administrator can allow it "
                "(SandboxProvisioner.allow_host_network)",
            )
        chosen = await super().pre_launch(**kwargs)
        self._certificates = chosen["env"].get(NETWORK_VARIABLE)
        self._grants = chosen["env"].get(GRANTS_VARIABLE, "")
        if self._certificates is not None:
            if self.network == "host":
                raise IsolationUnavailableError(
                    "host_network", "this kernelspec has the machine's network, so no rules can hold for it"
                )
            self._environment |= proxy_environment(has_certificates=bool(self._certificates))
        return chosen

    @property
    def network_listener(self) -> socket.socket | None:
        """Listening socket of the kernel's proxy, in its network namespace; it is closed when the kernel has ended."""
        process = None if self._isolated is None else self._isolated.process
        return process.listener if isinstance(process, SandboxProcess) else None

    # --- kernels from checkpoints, in the place of the first one ---

    @property
    def placeholder_signal(self) -> int:
        """Signal at which the sandbox's first process becomes a sleeping one; 0 if another one is the kernel."""
        process = None if self._isolated is None else self._isolated.process
        return PLACEHOLDER_SIGNAL if isinstance(process, SandboxProcess) and process.successor is None else 0

    def new_output(self) -> OutputPipe:
        """Return the output of a process that is to take the place of the kernel."""
        return OutputPipe(KernelOutput(str(self.kernel_id), self.log))

    async def end_kernel(self, spared_pids: Collection[int]) -> None:
        """End the kernel and all that it has started, and keep its sandbox, in which some processes go on.

        Raises
        ------
        RuntimeError
            If the sandbox has ended, or processes in it fork more quickly than they can be ended.
        """
        await in_thread(end_kernel, self._sandbox, spared_pids)

    def adopt(self, process: Any, output: OutputPipe) -> None:
        """Have another process inside (a `subprocess.Popen` and a `Successor`) be the kernel, after `end_kernel`."""
        self._sandbox.successor = self.process = process
        self.pid = process.pid
        self._output = output.output
        if self._pipe is not None:
            self._pipe.close()  # processes that were spared may keep it open
        self._pipe = output

    @property
    def _sandbox(self) -> SandboxProcess:
        process = None if self._isolated is None else self._isolated.process
        if not isinstance(process, SandboxProcess):
            raise RuntimeError("the kernel's sandbox has ended")
        return process

    def launch_isolated(self, what: Launch) -> IsolatedKernel:
        """Start a sandbox, and return when its kernel is inside."""
        limits = replace(what.limits, tmp_bytes=self.max_tmp_bytes)
        # Making a view reads the disk. The launch gets this one, so that the place chosen here stays right.
        view = with_grants(what.view(), self._grants, [str(base_directory())])
        self._work_place = work_place(view)
        what = replace(what, view=lambda: view, limits=limits, host_network=self.network == "host")
        if self._certificates is not None:
            what = replace(what, is_proxied=True, certificates=self._certificates)
        return launch_sandbox(what, self.log)

    def resolve_path(self, path: str) -> str | None:
        """Return the path outside of a file in the kernel's working directory; None if there is no such file."""
        inside = os.path.normpath(os.path.join(self._work_place, path))
        if not self._work_directory or not inside.startswith(self._work_place + "/"):
            return None
        outside = Path(self._work_directory, os.path.relpath(inside, self._work_place))
        return str(outside) if outside.exists() else None


_MAX_MESSAGE_BYTES = 4096


def launch_sandbox(what: Launch, log: logging.Logger | logging.LoggerAdapter[Any]) -> IsolatedKernel:
    """Start a sandbox, and return when its kernel is inside. A failed start leaves nothing behind.

    Raises
    ------
    IsolationUnavailableError
        If the sandbox cannot be made.
    VisibleFilesError
        If the kernel would see or write more than it may.
    """
    sweep_once()
    # `require` has made the trial before the launch.
    tools = find_tools()
    view = what.view()
    with ExitStack() as undo, ExitStack() as held:
        undo.callback(remove_directory, what.socket_directory)
        connection = json.loads(Path(what.connection_file).read_text())
        descriptors = Descriptors(
            held.enter_context(open(tools.seccomp_filter, "rb")).fileno(),
            _open_text(PASSWD, held),
            _open_text(GROUP, held),
            # The file has its path outside also inside, since the command names it, but the sockets have another path.
            _open_text(json.dumps(connection | {"ip": f"{SOCKETS}/{SOCKET}"}), held),
        )
        arguments = sandbox_arguments(
            view,
            what.environment,
            descriptors,
            what.limits,
            connection_file=os.path.realpath(what.connection_file),
            host_network=what.host_network,
            certificates=what.certificates,
        )
        args = _open_text("".join(f"{argument}\0" for argument in arguments), held)
        limits = cap_limits(what.limits.of_each_process())
        group = new_group(what.limits.memory_bytes, what.limits.processes, view.devices)
        if group is not None:
            undo.callback(group.remove)
        output, write_end = os.pipe()
        undo.callback(os.close, output)
        # With the server's own write end open, the reader of the output would never see its end.
        held.callback(os.close, write_end)
        try:
            process = SandboxProcess(
                [tools.bwrap, "--args", str(args)],
                limited_command(put_behind_gate(what.command), limits, tools),
                env={MARK: own_name(), SANDBOX_ID: secrets.token_hex(8)},
                descriptors=[args, *astuple(descriptors)],
                limits=limits,
                group=group,
                output=write_end,
                listen_at=PROXY_PORT if what.is_proxied else None,
            )
        except BrokenSandboxError:
            raise failure(_read_message(output)) from None
        undo.callback(process.end)
        # The sockets' file system is mounted inside only. The server reaches it through a descriptor of its own.
        link_anew(what.socket_directory, Path(f"/proc/{os.getpid()}/fd/{process.sockets}"))
        kernel_output = KernelOutput(what.kernel_id, log)
        kernel_output.read_in_background(output)
        undo.pop_all()
    return IsolatedKernel(process, group, kernel_output, (what.socket_directory,))


def _read_message(output: int) -> bytes:
    """Return bubblewrap's message; all processes that could write more have ended."""
    # A process that was missed would keep the pipe open, and one thread starts all kernels.
    os.set_blocking(output, False)
    try:
        return os.read(output, _MAX_MESSAGE_BYTES)
    except BlockingIOError:
        return b""


def _open_text(text: str, held: ExitStack) -> int:
    """Return a descriptor from which a child can read a text, without a file that other programs could open."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    held.callback(os.close, descriptor)
    os.write(descriptor, os.fsencode(text))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
