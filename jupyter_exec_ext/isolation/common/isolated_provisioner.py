"""Base of the provisioners of isolated kernels: configuration, launch, signals and cleanup.

A kernelspec names its provisioner in its metadata (``jupyter exec kernelspec install --sandbox`` writes one), or the
engine chooses it if a policy requires isolation. There is no fallback to a kernel without isolation.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psutil
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Integer, List, Unicode, default

from ...system.worker_threads import finished, in_thread
from .cgroup import sweep_once
from .isolated_process import CleanupThread, IsolatedKernel, cleanup_thread, in_lasting_thread
from .isolation_support import IsolationUnavailableError
from .kernel_output import KernelOutput
from .launch_request import (
    CPU_VARIABLE,
    HOME,
    MEMORY_VARIABLE,
    READABLE_VARIABLE,
    SOCKET,
    SOCKETS,
    Launch,
    Limits,
    sandbox_environment,
)
from .leftovers import base_directory, make_directory, new_link, private_directory, remove_directory
from .visible_files import resolve_program, view_of

_PRIVATE, _LAUNCHED = "private", "launched"


class IsolatedProvisioner(LocalProvisioner):
    """Provisioner of isolated kernels. Settings of ``c.IsolatedProvisioner`` hold for every kind of isolation."""

    level = "none"
    #: The launch sets limits on processes before the kernel starts, so the engine sets none afterwards.
    limits_processes = True
    #: Settings that a kernelspec may have; all others belong to the configuration of the application.
    of_kernelspec: ClassVar[tuple[str, ...]] = ("read_only", "writable", "env", "working_directory")

    read_only = List(
        Unicode(),
        help="Directories and files that kernels can read beside the system's programs and their own environment.",
    ).tag(config=True)
    writable = List(Unicode(), help="Directories that kernels can write beside their working directory.").tag(
        config=True
    )
    env = List(
        Unicode(),
        help="Names (with * as a wildcard) of environment variables that kernels get from the server's environment, "
        "beside the language, the time zone and the like.",
    ).tag(config=True)
    working_directory = Unicode(
        _LAUNCHED,
        help="Working directory of a kernel: 'launched' for the directory that it is started in (a notebook's), "
        "'private' for an empty one that goes with it, or a path.",
    ).tag(config=True)
    max_memory_bytes = Integer(
        help="Address space of each of a kernel's processes and, where control groups can be had, memory of all "
        "together; 0 for no limit. The default is half of the machine's."
    ).tag(config=True)
    max_cpu_seconds = Integer(0, help="Processor time of each of a kernel's processes; 0 for no limit.").tag(
        config=True
    )
    max_processes = Integer(512, help="How many processes and threads a kernel may have at once.").tag(config=True)
    max_open_files = Integer(4096, help="How many files each of a kernel's processes may have open.").tag(config=True)
    max_file_bytes = Integer(4 * 1024**3, help="The largest file that a kernel may write.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        # jupyter_client passes a kernelspec's `config` as keyword arguments, which could set any trait.
        unknown = set(kwargs) - {"kernel_id", "kernel_spec", "parent", "config", *self.of_kernelspec}
        if unknown:
            known = ", ".join(self.of_kernelspec)
            raise ValueError(f"a kernelspec cannot set {', '.join(sorted(unknown))} of its sandbox; it can set {known}")
        super().__init__(**kwargs)
        self._isolated: IsolatedKernel | None = None
        self._output: KernelOutput | None = None
        self._launch: Future[IsolatedKernel] | None = None
        self._finalizer: weakref.finalize[..., IsolatedProvisioner] | None = None
        self._socket_directory: Path | None = None
        self._private_directory: Path | None = None
        self._limits: Limits | None = None
        self._environment: dict[str, str] = {}
        self._readable: list[str] = []
        self._work_directory = ""

    @default("max_memory_bytes")
    def _default_max_memory_bytes(self) -> int:
        return int(psutil.virtual_memory().total // 2)

    # --- overridden by each kind of isolation; these block ---

    @classmethod
    def require(cls) -> None:
        """Check that this machine can isolate kernels; raises `IsolationUnavailableError`."""
        raise NotImplementedError

    def choose_places(self) -> None:
        """Choose directories that the kernel needs beside that of its sockets, without blocking."""

    @property
    def home(self) -> str:
        """Home directory of the kernel."""
        return HOME

    def launch_isolated(self, what: Launch) -> IsolatedKernel:
        """Start a kernel, and return when it is isolated; raises `IsolationUnavailableError`, `VisibleFilesError`."""
        raise NotImplementedError

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this machine cannot isolate kernels, None if it can; blocks for some milliseconds."""
        try:
            cls.require()
            base_directory()
        except IsolationUnavailableError as error:
            return str(error)
        return None

    @classmethod
    def sweep(cls) -> None:
        """End the processes and remove the files of servers that were killed."""
        if sys.platform.startswith("linux"):
            with suppress(IsolationUnavailableError):  # the start of an isolated kernel reports it
                in_lasting_thread(sweep_once).result()

    # --- called by a kernel manager, in this order ---

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare a launch: check that there can be isolation, and choose the directory of the sockets.

        Raises
        ------
        IsolationUnavailableError
            If this machine cannot isolate kernels.
        """
        await in_thread(self.require)
        # A restarted kernel keeps its path, since clients have it from the connection file.
        if self._socket_directory is None:
            self._socket_directory = new_link()
        self.choose_places()
        manager: Any = self.parent
        # Sockets in a directory work without a network, and no other user can connect to them.
        # With cached ports, jupyter_client would look for free TCP ports at this address, which is a path.
        manager.cache_ports = False
        manager.transport = "ipc"
        manager.ip = str(self._socket_directory / SOCKET)
        chosen = await super().pre_launch(**kwargs)
        self._readable = [path for path in chosen["env"].get(READABLE_VARIABLE, "").split(os.pathsep) if path]
        self._limits, given = self._limits_for(chosen["env"])
        self._environment = sandbox_environment(given, os.environ, self.env, self.kernel_spec.env, home=self.home)
        return chosen

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel, and return when it is isolated.

        Raises
        ------
        IsolationUnavailableError
            If the kernel cannot be isolated.
        VisibleFilesError
            If the kernel would see or write more than it may.
        """
        assert self._socket_directory is not None and self._limits is not None
        manager: Any = self.parent
        cmd = [resolve_program(cmd[0]), *cmd[1:]]
        self._work_directory = await in_thread(self._choose_work_directory, kwargs.get("cwd"))
        what = Launch(
            command=cmd,
            environment=self._environment,
            limits=self._limits,
            socket_directory=self._socket_directory,
            connection_file=manager.connection_file,
            kernel_id=str(self.kernel_id),
            view=partial(
                view_of,
                cmd,
                self._work_directory,
                resource_directory=self.kernel_spec.resource_dir,
                read_only=[*self.read_only, *self._readable],
                writable=self.writable,
                also_hidden=[str(base_directory())],
            ),
        )
        try:
            self._isolated = await self._launched(what)
        except Exception:  # a failed start must leave no directory
            await self.cleanup()  # at its end, when a host would do it, no thread can be started
            raise
        self._output = self._isolated.output
        self.process = self._isolated.process
        self.pid = self._isolated.process.pid
        self.cwd = Path(self._work_directory)
        return self.connection_info

    def last_words(self) -> str:
        """Return the end of the output of the kernel's ended process; blocks for up to a second."""
        return "" if self._output is None else self._output.last_words()

    @property
    def shared_directory(self) -> tuple[Path, str] | None:
        """A directory that the kernel and the server can write, and its path in the kernel."""
        return None if self._socket_directory is None else (self._socket_directory, SOCKETS)

    @property
    def kernel_pid(self) -> int | None:
        """Process id of the kernel, as the server sees it."""
        return None if self._isolated is None else self._isolated.process.kernel_pid

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel and to what it has started in its session."""
        if self._isolated is None or self.process is None:
            return
        if signum == signal.SIGKILL:
            self._isolated.process.kill()
        else:
            self._isolated.process.send_to_kernel(signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill the kernel and everything that it has started."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Ask the kernel's process to end."""
        await self.send_signal(signal.SIGTERM)

    async def wait(self) -> int | None:
        """Wait for the end of the kernel."""
        code = await super().wait()
        if self._isolated is not None:
            # This waits for processes that still end, for up to `END_SECONDS`.
            isolated, self._isolated = self._isolated, None
            await in_thread(isolated.close)
        return code

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the directories of the kernel."""
        if restart:
            return
        # The kernel was shut down during its start: end it when it is there.
        launching, self._launch = self._launch, None
        if launching is not None:
            launching.add_done_callback(_end_unwanted)
        for directory in (self._socket_directory, self._private_directory):
            if directory is not None:
                await in_thread(remove_directory, directory)
        self._socket_directory = self._private_directory = None

    def _limits_for(self, env: Mapping[str, str]) -> tuple[Limits, dict[str, str]]:
        """Return the limits (the lower of the configuration's and the policy's), and the variables without them."""

        def lowest(configured: int, variable: str) -> int | None:
            return min((value for value in (configured, int(env.get(variable, 0))) if value > 0), default=None)

        limits = Limits(
            memory_bytes=lowest(self.max_memory_bytes, MEMORY_VARIABLE),
            cpu_seconds=lowest(self.max_cpu_seconds, CPU_VARIABLE),
            processes=self.max_processes,
            open_files=self.max_open_files,
            file_bytes=self.max_file_bytes,
        )
        return limits, {name: value for name, value in env.items() if name not in (MEMORY_VARIABLE, CPU_VARIABLE)}

    def _choose_work_directory(self, launched: object) -> str:
        if self.working_directory == _LAUNCHED:
            return str(launched or os.getcwd())
        if self.working_directory == _PRIVATE:
            if self._private_directory is None:
                self._private_directory = private_directory()
            make_directory(self._private_directory)
            return str(self._private_directory)
        return os.path.expanduser(self.working_directory)

    async def _launched(self, what: Launch) -> IsolatedKernel:
        """Start a kernel in the thread that lives as long as this process.

        If the start was cancelled, its loop was closed or the kernel was shut down meanwhile, end the kernel at once.
        """
        # Started now, since the finalizer may run when no thread can be started any more.
        cleanup = cleanup_thread()
        launching = self._launch = in_lasting_thread(partial(self.launch_isolated, what))
        with ExitStack() as undo:
            # After a cancellation the thread goes on, and the kernel must end when it is there.
            undo.callback(launching.add_done_callback, _end_unwanted)
            try:
                isolated = await finished(launching)
            except GeneratorExit:  # garbage collection of this coroutine, whose loop was closed: it must not wait
                undo.pop_all()
                launching.add_done_callback(lambda done: cleanup.add(partial(_end_unwanted, done)))
                raise
            undo.pop_all()
        if self._launch is not launching:
            raise RuntimeError("the kernel was shut down while it was started")
        self._launch = None
        if self._finalizer is not None:
            self._finalizer.detach()  # that of the kernel before a restart
        self._finalizer = weakref.finalize(self, _end_orphan, os.getpid(), cleanup, isolated)
        self._finalizer.atexit = False  # the kernel ends with the process in any case
        return isolated


def _end_unwanted(launching: Future[IsolatedKernel]) -> None:
    """End a kernel that is not wanted any more; at once, since the next one may use the same directory."""
    if not launching.cancelled() and launching.exception() is None:
        launching.result().end()


def _end_orphan(pid: int, cleanup: CleanupThread, isolated: IsolatedKernel) -> None:
    """End a kernel whose provisioner was garbage-collected."""
    if pid == os.getpid():  # a forked process has copies of its parent's objects
        cleanup.add(isolated.end)
