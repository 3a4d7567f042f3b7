"""The provisioner: an Azure Container Apps session as a kernel, for any Jupyter application."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from concurrent.futures import Future
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Bool, Integer, List, Unicode, Union
from traitlets.config import Config

from ...system.worker_threads import finished
from ..protocol.addresses import (
    ALLOWED_HOSTS,
    DEFAULT_API_VERSION,
    MAX_RUN_SECONDS,
    check_endpoint,
    check_host,
    family_of,
)
from .aca_kernel import ACAKernel
from .aca_session import ACASession
from .credential_sources import AZURE, check_source, credential_from
from .kernel_loop import KernelLoop, leave_loop, use_loop
from .remote_session_files import KernelFiles

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient

_KILLED = -signal.SIGKILL
_TERMINATED = -signal.SIGTERM
_RESTARTER, _INTERVAL = "KernelRestarter", "time_to_dead"
_LOOK_EVERY_SECONDS = 15.0


class ACAProvisioner(KernelProvisionerBase):
    """Makes a kernel of a session; configured as ``c.ACAProvisioner`` in any Jupyter application.

    No process is started: the kernel side is an object in a thread of this one. A kernelspec must set `endpoint` in its
    provisioner's ``config``, and may set `api_version`, `credential`, `timeout_seconds` and `env`.
    """

    level = "remote"
    _of_kernelspec = ("endpoint", "api_version", "credential", "timeout_seconds", "env")

    endpoint = Unicode(help="The pool's management endpoint.")
    api_version = Unicode(DEFAULT_API_VERSION, help="The version of the service's protocol.").tag(config=True)
    credential = Unicode(
        AZURE,
        help="Where access tokens come from: 'azure' for azure-identity's DefaultAzureCredential, 'token-file:PATH', "
        "or 'env:NAME' for a variable of this process. It is never a token itself.",
    ).tag(config=True)
    timeout_seconds = Integer(
        MAX_RUN_SECONDS, help="How long a cell may run. The service itself allows no more than the default."
    ).tag(config=True)
    allowed_hosts = List(
        Unicode(),
        list(ALLOWED_HOSTS),
        help="Where access tokens may be sent, with * in front for one or more labels. A kernelspec cannot add to it: "
        "whoever can write one would get the tokens.",
    ).tag(config=True)
    verify = Union(
        [Bool(), Unicode()],
        default_value=True,
        help="Whether to check the service's certificate, or the path of a CA bundle to check it with.",
    ).tag(config=True)
    env = List(
        Unicode(),
        help="Names (with * as a wildcard) of environment variables that are sent to sessions, beside those that the "
        "kernelspec sets itself. What is sent is there for the code to read.",
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        unknown = set(kwargs) - {"kernel_id", "kernel_spec", "parent", "config", *self._of_kernelspec}
        if unknown:
            known = ", ".join(self._of_kernelspec)
            raise ValueError(f"a kernelspec cannot set {', '.join(sorted(unknown))} of a session; it can set {known}")
        super().__init__(**kwargs)
        self._loop: KernelLoop | None = None
        self._kernel: ACAKernel | None = None
        self._environment: dict[str, str] = {}
        self._has_process = False

    @classmethod
    def unavailable(cls) -> str | None:
        """Return None: sessions can be used from any machine."""
        return None

    @classmethod
    def sweep(cls) -> None:
        """Do nothing: what a killed server leaves behind ends with its pool's idle time."""

    # --- what a kernel manager calls, in this order ---

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Check the configuration and choose what the session is to know of the environment; nothing is contacted.

        Raises
        ------
        InvalidRequest
        """
        check_host(check_endpoint(self.endpoint), self.allowed_hosts)
        family_of(self.api_version)
        check_source(self.credential)
        self._look_less_often()
        chosen = await super().pre_launch(**kwargs)
        given: Mapping[str, str] = chosen["env"]
        own = self.kernel_spec.env
        names = [name for name in given if name in own or any(fnmatchcase(name, wanted) for wanted in self.env)]
        self._environment = {name: given[name] for name in names}
        return {**chosen, "cmd": []}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Begin a kernel; its session begins with the first request for it."""
        if self._kernel is None:
            self._loop = use_loop()
            try:
                self._kernel = await finished(self._loop.run(self._new_kernel(self._loop, self._wanted())))
            except BaseException:
                self._leave()
                raise
        else:
            assert self._loop is not None
            await finished(self._loop.run(_begin(self._kernel)))
        self._has_process = True
        manager: Any = self.parent
        for channel, port in self._kernel.ports.items():  # bound already, so that nobody else can take them
            setattr(manager, f"{channel}_port", port)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return self.connection_info

    @property
    def has_process(self) -> bool:
        """Whether there is a kernel, dead ones included until somebody has waited for them."""
        return self._has_process

    @property
    def exited(self) -> Future[int] | None:
        """Has the exit code when the present kernel is dead; for those who want to know at once."""
        return None if self._kernel is None else self._kernel.exited

    @property
    def files(self) -> KernelFiles | None:
        """The files of the present kernel's session; None if there is no kernel."""
        if self._kernel is None or self._loop is None or self._kernel.exited.done():
            return None
        loop = self._loop
        return KernelFiles(loop, self._kernel, lambda: self._client(loop))

    async def poll(self) -> int | None:
        """Return None while the kernel lives."""
        if self.exited is None or not self._has_process:
            return 0
        return self.exited.result() if self.exited.done() else None

    async def wait(self) -> int | None:
        """Wait for the end of the kernel."""
        code = 0 if self.exited is None else await finished(self.exited)
        self._has_process = False
        return code

    async def send_signal(self, signum: int) -> None:
        """End the kernel for signals that end, and say that it cannot be interrupted for SIGINT."""
        if self._kernel is None or self._loop is None or signum == 0:
            return
        if signum == signal.SIGINT:
            await finished(self._loop.run(_interrupt(self._kernel)))
        else:
            await finished(self._loop.run(_end(self._kernel, -signum)))

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once; its session is ended in the background."""
        await self.send_signal(-_KILLED)

    async def terminate(self, restart: bool = False) -> None:
        """End the kernel, in the same way."""
        await self.send_signal(-_TERMINATED)

    async def cleanup(self, restart: bool = False) -> None:
        """Let go of the sockets, unless the kernel begins anew."""
        if not restart and self._kernel is not None and self._loop is not None:
            kernel, self._kernel = self._kernel, None
            self._has_process = False
            try:
                await finished(self._loop.run(_close(kernel)))
            finally:
                self._leave()

    # --- ---

    def _look_less_often(self) -> None:
        """Have the application ask every 15 s, and not every 3, whether the kernel lives, unless its settings say.

        There is no process that could die unseen. That a session has ended on Azure is noticed by the next run; what a
        look can find is a kernel that code has ended. The looks are all that hundreds of idle kernels cost.
        """
        manager = self.parent
        # A setting of the restarter's subclass, or below the manager's own name, goes before this one.
        if manager is not None and f"{_RESTARTER}.{_INTERVAL}" not in manager.config:
            manager.update_config(Config({_RESTARTER: {_INTERVAL: _LOOK_EVERY_SECONDS}}))  # a copy, for this kernel

    def _leave(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            leave_loop(loop)

    def _wanted(self) -> dict[str, Any]:
        """Return where the kernel is to be reached; it chooses the ports that are not said."""
        manager: Any = self.parent
        if self._encrypts(manager) and manager.curve_publickey is None:
            manager.curve_publickey, manager.curve_secretkey = zmq.curve_keypair()
        wanted: dict[str, Any] = manager.get_connection_info()
        return wanted

    @staticmethod
    def _encrypts(manager: Any) -> bool:
        policy = getattr(manager, "transport_encryption", "disabled")
        return policy != "disabled" and manager.transport in ("tcp", "ipc")

    async def _new_kernel(self, loop: KernelLoop, wanted: Mapping[str, Any]) -> ACAKernel:
        return ACAKernel(loop, wanted, lambda: self._new_session(loop), self.log)

    def _new_session(self, loop: KernelLoop) -> ACASession:
        return ACASession(
            self._client(loop),
            timeout_seconds=self.timeout_seconds,
            environment=dict(self._environment),
            leave=loop.leave,
        )

    def _client(self, loop: KernelLoop) -> AsyncACAClient:
        from ..client.aio.pool_client import AsyncACAClient

        credential = loop.shared(("credential", self.credential), lambda: credential_from(self.credential))
        return loop.shared(
            ("client", self.endpoint, self.api_version, self.credential, self.verify),
            lambda: AsyncACAClient(
                self.endpoint,
                credential,
                api_version=self.api_version,
                allowed_hosts=self.allowed_hosts,
                verify=self.verify,
            ),
        )


async def _begin(kernel: ACAKernel) -> None:
    kernel.end(0)
    kernel.begin()


async def _interrupt(kernel: ACAKernel) -> None:
    kernel.interrupt()


async def _end(kernel: ACAKernel, exit_code: int) -> None:
    kernel.end(exit_code)


async def _close(kernel: ACAKernel) -> None:
    kernel.close()
