"""Start of a kernel process for a session: opens its connection, checks it, and sends the set-up code."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Protocol

from ...errors import Conflict, KernelStartTimeout
from ...protocol.kernel_messages import KernelMessage, execute_request
from ...protocol.kernel_preparation import unattended_request
from ...protocol.languages import normalize_language
from ..ports import Kernel, KernelHost, KernelLaunch, SessionFiles
from .death_report import DeathEvidence
from .kernel_connection import KernelConnection
from .process_limits import ProcessLimits, limit_process
from .shared_resources import EngineResources

# Kernels of this language answer on the control channel while code runs.
_ANSWERING_LANGUAGE = "python"
# Timeout for attaching to a running kernel.
_ATTACH_SECONDS = 10.0


class MessageReceiver(Protocol):
    """Receiver of a kernel's messages."""

    def on_message(self, message: KernelMessage) -> None:
        """Take in a message."""

    def on_too_large(self, reason: str) -> None:
        """Note that a message was left out because of its size."""


class KernelNetwork(Protocol):
    """Network of a session with rules."""

    def serve(self, listener: socket.socket | None) -> None:
        """Let a kernel reach the network, by the listening socket in its sandbox; raises `IsolationRequired`."""


class KernelStarter:
    """Starts the kernel processes of one session, one after the other.

    Parameters
    ----------
    name : str
        The kernelspec.
    env : mapping
        The complete environment of the kernel's processes, the session's mark included.
    session_id : str
        Mark of the session's processes, which end with the session.
    language : str
        The kernel's language, as its kernelspec names it.
    attach_to : str or None
        A running kernel to attach to, instead of starting one.
    isolate : str or None
        The isolation to start it with where its kernelspec has none of its own.
    files : SessionFiles
        Prepares the directory the kernel starts in.
    aside : str or None
        The id of a kernel for the warm pool.
    launch : KernelLaunch or None
        Gives the process of the first kernel, which then has a state.

    Attributes
    ----------
    language : str
        The kernel's language. Where its kernelspec names none, it is known once the kernel has answered.
    setup_code : str or None
        Code that a fresh kernel of the session's own runs, silently, before anything else.
    packages_code : str or None
        Code that gives a kernel the session's packages, before `setup_code`; done twice, it is the same.
    network : KernelNetwork or None
        Network of a session with network rules.
    title : str
        Name under which the host lists the session's kernels; empty for a kernel that has no session yet.
    setups : list of str
        The ids of the requests by which the present process was told to run our set-up code.
    """

    def __init__(
        self,
        name: str,
        env: Mapping[str, str],
        *,
        session_id: str,
        language: str,
        attach_to: str | None,
        isolate: str | None,
        host: KernelHost,
        files: SessionFiles,
        resources: EngineResources,
        start_timeout_seconds: float,
        process_limits: ProcessLimits,
        aside: str | None = None,
        launch: KernelLaunch | None = None,
    ) -> None:
        self.name = name
        self.session_id = session_id
        self.language = language
        self.attach_to = attach_to
        self.aside = aside
        self._first_launch = launch
        self.setup_code: str | None = None
        self.packages_code: str | None = None
        self.title = ""
        self.network: KernelNetwork | None = None
        self.setups: list[str] = []
        self.evidence = DeathEvidence(session_id, resources)
        # A sandbox or Landlock sets the limits before the kernel begins, and learns of them by these variables.
        self._env = {**env, **process_limits.variables()}
        self._isolate = isolate
        self._host = host
        self._files = files
        self._resources = resources
        self._start_timeout_seconds = start_timeout_seconds
        self._process_limits = process_limits

    async def prepare_directory(self) -> str | None:
        """Make sure of the directory the kernel starts in, and return it; None for the host's own."""
        return await self._files.prepare(self.session_id)

    async def launch(self) -> Kernel:
        """Start the kernel, or attach to a running one; see `KernelHost`."""
        if self.attach_to is not None:
            return await self._host.attach(self.attach_to)
        directory = await self.prepare_directory()
        launch, self._first_launch = self._first_launch, None  # later kernels are fresh ones
        if launch is None:
            return await self._host.start(self.name, self._env, directory, self._isolate, aside=self.aside)
        try:
            await launch.begin()
            return await self._host.start(self.name, self._env, directory, self._isolate, launch=launch)
        finally:
            await launch.release()

    async def announce(self, kernel: Kernel) -> None:
        """List the kernel as that of the session, if it has one, and is not listed."""
        if self.title:
            await kernel.list_as(self.session_id, self.title)

    def serve_network(self, kernel: Kernel) -> None:
        """Let a kernel that was just started reach what its session's rules allow; raises `IsolationRequired`."""
        if self.network is not None:
            self.network.serve(kernel.traits.network_listener)

    @property
    def is_python(self) -> bool:
        """True if the kernel runs Python."""
        return normalize_language(self.language) == _ANSWERING_LANGUAGE

    def open(self, kernel: Kernel, receiver: MessageReceiver) -> KernelConnection:
        """Open the connection to a kernel, and its way to the network.

        Raises
        ------
        IsolationRequired
            If the kernel's process cannot be limited as the policy requires, or no network rules would hold for it.
        OSError, zmq.ZMQError
            If this process can open nothing more.
        """
        info, traits = kernel.take_connection(), kernel.traits
        if not traits.limits_itself:
            # A shared kernel cannot be limited; where there has to be a limit, this refuses.
            limit_process(None if traits.is_shared else kernel.pid, self._process_limits)
        self.serve_network(kernel)
        return KernelConnection(
            self._resources,
            info,
            receiver.on_message,
            on_too_large=receiver.on_too_large,
            # A remote kernel hands over its output when a run has ended; there is nothing to wait for.
            # A kernel whose kernelspec names no language is asked as well: one that cannot wait does not agree.
            can_wait=(self.is_python or not self.language) and not traits.is_shared and kernel.pid is not None,
            waits=traits.waits_for_readers,
            draws_plots=not traits.is_confined,
            may_be_busy=traits.is_shared,
        )

    async def check(self, kernel: Kernel, connection: KernelConnection, *, is_first: bool) -> None:
        """Prove the connection and, meanwhile, note the evidence that would explain a death."""
        # At the same time as the check: it makes a file, and may read the process table.
        begin = asyncio.to_thread(self.evidence.begin, kernel, is_python=self.is_python, is_first=is_first)
        evidence = asyncio.get_running_loop().create_task(begin)
        is_shared = kernel.traits.is_shared
        try:
            if is_shared and is_first:
                await self._check_running(connection)
            else:
                await connection.check(self._start_timeout_seconds)
        finally:
            # A thread cannot be cancelled. Left alone, it could make a crash file after `close` has removed the last.
            crash_setup = await asyncio.shield(evidence)
        self.language = self.language or connection.language
        self.setups.clear()
        # Crash reports first, so that they cover the session's own set-up code, too.
        is_set_up = is_shared or kernel.traits.has_state  # it has run the set-up code before its checkpoint
        # Packages for a kernel from a checkpoint, too, which may be older than the session's first installation.
        for setup in (crash_setup, self.packages_code, None if is_set_up else self.setup_code):
            if setup is not None:
                self.set_up(connection, setup)
        # A kernel with files elsewhere runs code through a service, to which each request is a call.
        if not is_set_up and self.is_python and kernel.traits.files is None:
            self.setups.append(connection.send("shell", "execute_request", unattended_request()))

    async def _check_running(self, connection: KernelConnection) -> None:
        """Prove the first connection to a running kernel; unlike one that starts, it answers at once."""
        try:
            await connection.check(min(_ATTACH_SECONDS, self._start_timeout_seconds))
        except KernelStartTimeout:
            raise Conflict(
                "the kernel does not answer: it is just starting, or busy with code that lets it answer nobody; attach "
                "when it is idle"
            ) from None

    def use_setup(self, code: str | None, connection: KernelConnection | None) -> None:
        """Have each fresh kernel run code of ours when it has started, and the present one now, if it is connected."""
        self.setup_code = code
        if connection is not None and code is not None:
            self.set_up(connection, code)

    def use_packages(self, code: str | None, connection: KernelConnection | None) -> None:
        """Give packages to each kernel when it has started, and to the present one now, if it is connected."""
        self.packages_code = code
        if connection is not None and code is not None:
            self.set_up(connection, code)

    def set_up(self, connection: KernelConnection, code: str, *, silent: bool = True) -> None:
        """Send code of ours. Not waited for: the kernel runs it before any later request."""
        # Not in the history, where the user would find code that is not theirs.
        request = {**execute_request(code, allow_input=False), "silent": silent, "store_history": False}
        self.setups.append(connection.send("shell", "execute_request", request))

    def warm_up(self, connection: KernelConnection | None) -> None:
        """Have a connected kernel do once what takes longer the first time; its user sees nothing of it."""
        if connection is not None and self.is_python:
            # IPython leaves out some of its hooks for silent requests, such as `pre_run_cell`.
            self.set_up(connection, "print()", silent=False)
