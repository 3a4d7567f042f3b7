"""A kernel host over any jupyter_client multi-kernel manager: the server's or the gateway's.

Kernels are started by the host's own manager, so its kernelspecs, provisioners, limits and culling apply and its
users see them. Three things differ from a kernel that a notebook starts: the environment is exactly what it is
given, the automatic restarter is off (it would race with the supervisor, which knows why a kernel died), and the
number of kernels is checked with those that are still starting.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from jupyter_core.paths import jupyter_runtime_dir
from jupyter_core.utils import ensure_async

from ..errors import KernelSpecNotFound, KernelStartFailed, TooManyKernels
from ..models import KernelSpecInfo
from .exhaustion import exhausted, out_of_resources
from .ports import KernelExit
from .supervisor import watch_exit

_SETTLE_POLL_SECONDS = 0.05
_SETTLE_LIMIT_SECONDS = 30.0
_KILL_POLL_SECONDS = 0.01
_KILL_LIMIT_SECONDS = 10.0


class HostedKernel:
    """A kernel of the host's multi-kernel manager."""

    def __init__(self, manager: MultiKernelManager, kernel_id: str) -> None:
        self._manager = manager
        self._kernel_id = kernel_id
        self._km: AsyncKernelManager = manager.get_kernel(kernel_id)  # type: ignore[assignment]
        self._km.stop_restarter()
        self._km.autorestart = False

    @property
    def kernel_id(self) -> str:
        """The host's id of the kernel."""
        return self._kernel_id

    @property
    def present(self) -> bool:
        """Whether the host still has the kernel, alive or dead."""
        return self._kernel_id in self._manager and self._manager.get_kernel(self._kernel_id) is self._km

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine; a provisioner may number processes of another."""
        process = getattr(self._km.provisioner, "process", None)
        return process.pid if isinstance(process, subprocess.Popen) else None

    @property
    def being_shut_down(self) -> bool:
        """Whether the host is ending its process on purpose."""
        return bool(self._km.shutting_down)

    async def alive(self) -> bool:
        """Return whether the kernel's process runs."""
        return bool(await ensure_async(self._km.is_alive()))

    def connection_info(self) -> Mapping[str, Any]:
        """Return the addresses and the key, as in a connection file."""
        return self._km.get_connection_info()

    def watch_exit(self, on_exit: Callable[[KernelExit], None]) -> Callable[[], None]:
        """Call `on_exit` once when the present process ends; the returned function ends the watch."""

        def ended(exit_: KernelExit) -> None:
            self._mark("dead")
            on_exit(exit_)

        assert self._km.provisioner is not None
        return watch_exit(self._km.provisioner, ended)

    async def interrupt(self) -> None:
        """Ask the running code to stop, in the kernelspec's way."""
        await ensure_async(self._km.interrupt_kernel())

    async def kill(self) -> None:
        """End the process at once and wait until it has ended; the host keeps the kernel.

        The host may start another process meanwhile, which is none of ours to end or to wait for.
        """
        provisioner = self._km.provisioner
        if provisioner is None or not provisioner.has_process:
            return
        has_ended = _end_of(provisioner)
        await provisioner.kill(restart=True)
        give_up_at = asyncio.get_running_loop().time() + _KILL_LIMIT_SECONDS
        while asyncio.get_running_loop().time() < give_up_at:
            if await has_ended():
                return
            await asyncio.sleep(_KILL_POLL_SECONDS)

    async def restart(self, *, now: bool) -> None:
        """Start a fresh process under the same id; with `now`, without asking the old one to exit."""
        self._mark("restarting")
        await ensure_async(self._km.restart_kernel(now=now))
        self._mark("starting")

    async def shutdown(self, *, now: bool) -> None:
        """End the process and make the host forget the kernel."""
        await self._until_host_is_done()
        if not self.present:
            return
        try:
            await ensure_async(self._manager.shutdown_kernel(self._kernel_id, now=now))
        except Exception:
            # Somebody restarted or shut it down at the same moment; the manager does one thing at a time.
            await self._until_host_is_done()
            if self.present:
                await ensure_async(self._manager.shutdown_kernel(self._kernel_id, now=True))

    async def _until_host_is_done(self) -> None:
        """Wait, for a bounded time, for a start, restart or shutdown that somebody else began."""
        ready = getattr(self._km, "ready", None)
        if ready is not None:
            pending = asyncio.wrap_future(ready) if isinstance(ready, concurrent.futures.Future) else ready
            await asyncio.wait([pending], timeout=_SETTLE_LIMIT_SECONDS)
        if self.being_shut_down:
            await self.settled()

    def touch(self) -> None:
        """Tell the host that the kernel is in use, so that it is not culled."""
        now = datetime.now(timezone.utc)
        for thing, name in ((self._km, "last_activity"), (self._manager, "last_kernel_activity")):
            if hasattr(thing, name):
                setattr(thing, name, now)

    def take_over_watch(self) -> None:
        """Make the host read the kernel's output no more: from now on it is told what it needs to know.

        Jupyter Server follows every kernel's output to know when it is busy: it copies and checks each message on
        the event loop, which a message of 100 MB holds up for as long as that takes.
        """
        # Not the manager's `stop_watching_activity`: it also gives up a restart that the host is waiting for.
        stream = getattr(self._km, "_activity_stream", None)
        if stream is not None and not stream.closed():
            stream.close()
            self._km._activity_stream = None  # type: ignore[attr-defined]
            self._mark("idle")

    def note_state(self, state: str) -> None:
        """Tell the host that the kernel has become busy or idle, whoever's code it was."""
        if state in ("busy", "idle"):
            self._mark(state)
            self.touch()

    async def settled(self) -> None:
        """Wait until a shutdown or restart that somebody else began is over."""
        give_up_at = asyncio.get_running_loop().time() + _SETTLE_LIMIT_SECONDS
        while self.present and asyncio.get_running_loop().time() < give_up_at:
            if not self.being_shut_down and await self.alive():
                return
            await asyncio.sleep(_SETTLE_POLL_SECONDS)

    def _mark(self, state: str) -> None:
        """Tell the host's kernel list what its own watch of iopub cannot see."""
        if hasattr(self._km, "execution_state"):
            self._km.execution_state = state


class HostedKernels:
    """The kernels of a host.

    Parameters
    ----------
    manager : MultiKernelManager
        The host's. Its `root_dir`, if it has one, is the working directory of kernels that are given no other.
    kernel_spec_manager : KernelSpecManager
        The host's.
    max_kernels : int or None
        The most kernels there may be, those of other clients included; None for no limit.
    forced_kernel_name : str
        The kernelspec the host uses whatever is asked for; empty if it has none.
    """

    def __init__(
        self,
        manager: MultiKernelManager,
        kernel_spec_manager: KernelSpecManager,
        *,
        max_kernels: int | None = None,
        forced_kernel_name: str = "",
    ) -> None:
        self._manager = manager
        self._specs = kernel_spec_manager
        self._max_kernels = max_kernels
        self._forced = forced_kernel_name
        self._starting: set[str] = set()

    @property
    def default_kernel_name(self) -> str:
        """The kernelspec used when a caller names none."""
        return self._forced or str(self._manager.default_kernel_name)

    async def kernelspecs(self) -> Sequence[KernelSpecInfo]:
        """Return the installed kernelspecs; those that cannot be read are left out."""
        found = await asyncio.to_thread(self._specs.get_all_specs)
        return [
            KernelSpecInfo(
                name,
                str(item["spec"].get("display_name", name)),
                str(item["spec"].get("language", "")),
                _provisioner(item["spec"].get("metadata")),
            )
            for name, item in sorted(found.items())
        ]

    async def find(self, kernel_name: str) -> KernelSpecInfo:
        """Return one kernelspec.

        Raises
        ------
        KernelSpecNotFound
            Naming those there are.
        """
        name = self._forced or kernel_name
        try:
            if not name.isprintable():  # it would get into the host's log as it is
                raise NoSuchKernel(name)
            spec = await asyncio.to_thread(self._specs.get_kernel_spec, name)
        except NoSuchKernel:
            names = ", ".join(spec.name for spec in await self.kernelspecs()) or "none"
            raise KernelSpecNotFound(f"no kernelspec {name!r} is installed here; there are: {names}") from None
        return KernelSpecInfo(name, spec.display_name, spec.language, _provisioner(spec.metadata))

    def forget_files(self, kernel_ids: set[str]) -> None:
        """Remove the connection files and sockets of kernels whose server was killed."""
        directory = Path(getattr(self._manager, "connection_dir", "") or jupyter_runtime_dir())
        for kernel_id in kernel_ids:
            for path in directory.glob(f"kernel-{kernel_id}*"):
                path.unlink(missing_ok=True)

    @contextmanager
    def reserve(self, kernel_id: str) -> Iterator[None]:
        """Hold a place among the host's kernels while one starts."""
        taken = self._starting.union(self._manager.list_kernel_ids()) - {kernel_id}
        if self._max_kernels is not None and len(taken) >= self._max_kernels:
            raise TooManyKernels(
                f"this server runs at most {self._max_kernels} kernels and has {len(taken)}; shut one down first"
            )
        self._starting.add(kernel_id)
        try:
            yield
        finally:
            self._starting.discard(kernel_id)

    async def start(self, kernel_name: str, env: Mapping[str, str], cwd: str | None) -> HostedKernel:
        """Start a kernel with exactly the environment `env`, in the directory `cwd` or, without one, in the host's."""
        kernel_id = str(uuid.uuid4())
        options: dict[str, Any] = {"kernel_id": kernel_id, "kernel_name": kernel_name, "env": dict(env)}
        directory = cwd or getattr(self._manager, "root_dir", None)
        if directory:
            options["cwd"] = directory
        with self.reserve(kernel_id):
            try:
                await ensure_async(self._manager.start_kernel(**options))
                kernel = HostedKernel(self._manager, kernel_id)
                await _ready(self._manager.get_kernel(kernel_id))
            except TooManyKernels:
                raise
            except Exception as error:
                if out_of_resources(error):
                    raise exhausted(error) from error
                raise KernelStartFailed(f"kernel {kernel_name!r} could not be started: {error}") from error
        return kernel


def _provisioner(metadata: Any) -> str:
    """Return the name of a kernelspec's provisioner, from its metadata."""
    named = metadata.get("kernel_provisioner") if isinstance(metadata, dict) else None
    name = named.get("provisioner_name") if isinstance(named, dict) else None
    return str(name or KernelProvisionerFactory.instance().default_provisioner_name)


def _end_of(provisioner: KernelProvisionerBase) -> Callable[[], Awaitable[bool]]:
    """Return what tells whether the provisioner's present process has ended."""
    process = getattr(provisioner, "process", None)

    async def has_ended() -> bool:
        if isinstance(process, subprocess.Popen):
            return process.poll() is not None
        return not provisioner.has_process or await provisioner.poll() is not None

    return has_ended


async def _ready(km: Any) -> None:
    """Wait for a start that the manager goes on with in the background (its pending kernels)."""
    ready = getattr(km, "ready", None)
    if isinstance(ready, concurrent.futures.Future):
        await asyncio.wrap_future(ready)
    elif ready is not None:
        await ready
