"""`ACAProvisioner`: an Azure Container Apps session as a kernel, for any Jupyter application, with its files."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Any, TypeVar

import zmq
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Bool, Integer, List, Unicode, Union
from traitlets.config import Config

from ...errors import FileNotFound, Unavailable
from ...models import FileInfo
from ...protocol.file_requests import mime_type
from ...system.worker_threads import finished
from ..protocol.addresses import (
    ALLOWED_HOSTS,
    DEFAULT_API_VERSION,
    MAX_RUN_SECONDS,
    check_endpoint,
    check_host,
    family_of,
)
from ..protocol.file_format import ACAFile
from .aca_kernel import ACAKernel
from .aca_session import ACASession
from .credential_sources import AZURE, check_source, credential_from
from .kernel_loop import KernelLoop, acquire_loop, release_loop

if TYPE_CHECKING:
    from ..client.aio.pool_client import AsyncACAClient


T = TypeVar("T")
_ENDED = "the kernel that the files belong to has ended"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)?")


class KernelFiles:
    """The `files` of a provisioner, which the engine uses on any event loop.

    The session is that of the kernel's present life. Files can be moved while code runs. If the session has expired
    meanwhile, an upload is lost with it, which the next run reports.

    Parameters
    ----------
    loop : KernelLoop
        The loop of the kernel.
    kernel : ACAKernel
        The kernel whose session has the files.
    client : callable
        Returns the client, in the loop's thread.
    """

    def __init__(self, loop: KernelLoop, kernel: ACAKernel, client: Callable[[], AsyncACAClient]) -> None:
        self._loop = loop
        self._kernel = kernel
        self._client = client

    async def list_files(self) -> list[FileInfo]:
        """Return the files below ``/mnt/data``; before api-version 2025-10-02 those of this directory only."""
        return await self._run(self._list())

    async def download(self, path: str, target: IO[bytes]) -> None:
        """Write the content of a session's file into `target`; raises `NotFound`."""
        await self._run(self._download(path, target))

    async def upload(self, path: str, source: IO[bytes]) -> None:
        """Upload a file into the session, which is started if needed."""
        await self._run(self._upload(path, source))

    async def delete(self, path: str) -> None:
        """Delete a file; raises `NotFound`."""
        await self._run(self._delete(path))

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.wrap_future(self._loop.run(coroutine))
        except RuntimeError:
            raise Unavailable(_ENDED) from None
        try:
            await asyncio.wait([running])  # unlike await, this tells a loop that ends from a caller that is cancelled
        finally:
            running.cancel()
        if running.cancelled():
            raise Unavailable(_ENDED)
        return running.result()

    # --- in the loop's thread ---

    async def _list(self) -> list[FileInfo]:
        if not self._kernel.session.is_started:
            return []
        files = await self._client().files(self._kernel.session.identifier, recursive=True)
        return [file_info_of(file) for file in files if not file.is_directory]

    async def _download(self, path: str, target: IO[bytes]) -> None:
        await self._client().download(self._identifier(path), path, target)

    async def _upload(self, path: str, source: IO[bytes]) -> None:
        await self._kernel.session.start()
        await self._client().upload(self._kernel.session.identifier, path, source)

    async def _delete(self, path: str) -> None:
        await self._client().delete_file(self._identifier(path), path)

    def _identifier(self, path: str) -> str:
        if not self._kernel.session.is_started:
            raise FileNotFound(f"the session has no file {path!r}")
        return self._kernel.session.identifier


def file_info_of(file: ACAFile) -> FileInfo:
    """Return a file of the service as our record; its times have seven digits of the second, ours three."""
    time = _TIME.fullmatch(file.last_modified)
    mtime = f"{time[1]}.{(time[2] or '')[:3].ljust(3, '0')}Z" if time is not None else file.last_modified
    return FileInfo(file.path, file.size_bytes, mtime, mime_type(file.path))


_KILLED = -signal.SIGKILL
_TERMINATED = -signal.SIGTERM
_RESTARTER, _INTERVAL = "KernelRestarter", "time_to_dead"
_POLL_SECONDS = 15.0


class ACAProvisioner(KernelProvisionerBase):
    """Provisioner of kernels in ACA sessions; configured as ``c.ACAProvisioner`` in any Jupyter application.

    It starts no process: the kernel side is an object in a thread of this process. A kernelspec must set `endpoint` in
    its provisioner's ``config``, and may set `api_version`, `credential`, `timeout_seconds` and `env`.
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
        help="Where access tokens may be sent, with * in front for one or more labels. A kernelspec cannot add to it, "
        "since its author would get the tokens.",
    ).tag(config=True)
    verify = Union(
        [Bool(), Unicode()],
        default_value=True,
        help="Check the service's certificate; a text is the path of a CA bundle to check it with.",
    ).tag(config=True)
    env = List(
        Unicode(),
        help="Names (with * as a wildcard) of environment variables that are sent to sessions, beside those that the "
        "kernelspec sets itself. Code in the session can read them.",
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        # A kernelspec's `config` comes as keyword arguments, and could set any trait.
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
        """Do nothing: sessions of a killed server end with their pool's idle time."""

    # --- called by a kernel manager, in this order ---

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Check the configuration, and choose the session's environment variables; contact no service.

        Raises
        ------
        InvalidRequest
            If the endpoint, the api-version or the credential is wrong.
        """
        check_host(check_endpoint(self.endpoint), self.allowed_hosts)
        family_of(self.api_version)
        check_source(self.credential)
        self._set_poll_interval()
        chosen = await super().pre_launch(**kwargs)
        given: Mapping[str, str] = chosen["env"]
        own = self.kernel_spec.env
        names = [name for name in given if name in own or any(fnmatchcase(name, wanted) for wanted in self.env)]
        self._environment = {name: given[name] for name in names}
        return {**chosen, "cmd": []}  # the kernel manager requires `cmd`

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start a kernel; its session starts with the first request."""
        if self._kernel is None:
            self._loop = acquire_loop()
            with contextlib.ExitStack() as undo:  # cancellation, too, must not keep the loop alive
                undo.callback(self._release_loop)
                self._kernel = await finished(self._loop.run(self._new_kernel(self._loop, self._connection_wanted())))
                undo.pop_all()
        else:
            assert self._loop is not None
            await finished(self._loop.run(self._kernel.restart()))
        self._has_process = True
        manager: Any = self.parent
        for channel, port in self._kernel.ports.items():  # already bound, so that no other program can take them
            setattr(manager, f"{channel}_port", port)
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return self.connection_info

    @property
    def has_process(self) -> bool:
        """True if there is a kernel; a dead one counts until `wait`."""
        return self._has_process

    @property
    def exited(self) -> Future[int] | None:
        """Future of the present kernel's exit code, so that its end is noticed without polling."""
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
        """End the kernel; for SIGINT, only report that it cannot be interrupted."""
        if self._kernel is None or self._loop is None or signum == 0:  # 0 only asks whether it lives
            return
        if signum == signal.SIGINT:
            await finished(self._loop.run(_call(self._kernel.interrupt)))
        else:
            await finished(self._loop.run(_call(self._kernel.end, -signum)))

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once, and its session in the background."""
        await self.send_signal(-_KILLED)

    async def terminate(self, restart: bool = False) -> None:
        """End the kernel, in the same way."""
        await self.send_signal(-_TERMINATED)

    async def cleanup(self, restart: bool = False) -> None:
        """Close the sockets, unless the kernel is to be restarted."""
        if not restart and self._kernel is not None and self._loop is not None:
            kernel, self._kernel = self._kernel, None
            self._has_process = False
            try:
                await finished(self._loop.run(_call(kernel.close)))
            finally:
                self._release_loop()

    def _set_poll_interval(self) -> None:
        """Let the application poll the kernel every 15 s instead of every 3 s, unless its settings have an interval.

        A poll can only find a kernel that code has ended: there is no local process, and the next run notices the end
        of a session on Azure. Polls are the only cost of hundreds of idle kernels.
        """
        manager = self.parent
        # Settings of the restarter's subclass, or below the manager's own name, override this one.
        if manager is not None and f"{_RESTARTER}.{_INTERVAL}" not in manager.config:
            manager.update_config(Config({_RESTARTER: {_INTERVAL: _POLL_SECONDS}}))  # a copy, for this kernel

    def _release_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            release_loop(loop)

    def _connection_wanted(self) -> dict[str, Any]:
        """Return the kernel's connection info, with 0 for each port that the kernel has to choose."""
        manager: Any = self.parent
        # jupyter_client leaves the keys to provisioners. After a restart it still has them.
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
            delete_in_background=loop.delete_in_background,
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


async def _call(method: Callable[..., object], *arguments: object) -> None:
    """Call a method of the kernel in the loop's thread."""
    method(*arguments)
