"""Kernel host over a jupyter_client multi-kernel manager: the server's or the gateway's.

Kernels are started by the host's own manager, so its kernelspecs, provisioners, limits and culling apply and its
users see them. Four things differ from a kernel that a notebook starts: the environment is exactly what it is given, it
is reached through Unix sockets where that works, the automatic restarter is off (it would race with the supervisor,
which knows why a kernel died), and the number of kernels is checked with those that are still starting.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_core.paths import jupyter_runtime_dir
from jupyter_core.utils import ensure_async

from ...errors import Conflict, IsolationRequired, KernelNotFound, KernelSpecNotFound, KernelStartFailed, TooManyKernels
from ...models import KernelSpecInfo
from ...system.removal import remove_tree
from ...system.resources import is_out_of_resources, make_resources_error, require_descriptors
from ..ports import Kernel, KernelLaunch, RoomMaker
from .attached_kernel import AttachedKernel
from .death_report import KernelStderr
from .hosted_kernel import HostedKernel
from .kernel_spec_catalog import KernelSpecCatalog
from .kernel_use_marks import KernelUseMarks
from .provisioners import (
    IsolatedKernelSpecs,
    isolated_name,
    level_by_name,
)
from .restored_launch import RestoredLaunch
from .unix_transport import kernel_id_of, use_sockets, with_frame_limit

# Descriptors kept for requests, files and the ends of kernels: no kernel is started beyond them.
KEPT_DESCRIPTORS = 32
_PASSED_ON = (TooManyKernels, IsolationRequired, KernelSpecNotFound, KernelStartFailed)


class ManagerKernelHost(KernelSpecCatalog):
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
    server_sessions : optional
        The host's session manager.
    """

    def __init__(
        self,
        manager: MultiKernelManager,
        kernel_spec_manager: KernelSpecManager,
        *,
        max_kernels: int | None = None,
        forced_kernel_name: str = "",
        server_sessions: Any = None,
    ) -> None:
        super().__init__(manager, kernel_spec_manager, forced_kernel_name=forced_kernel_name)
        self._uses = KernelUseMarks(manager, server_sessions)
        # For starting kernels by name; the host lists its own kernelspecs.
        manager.kernel_spec_manager = IsolatedKernelSpecs(kernel_spec_manager)
        self._max_kernels = max_kernels
        self._starting: set[str] = set()  # the manager lists a kernel only once its start is over
        self._own: set[str] = set()
        # Kernels that are hidden from the host's list, each from the beginning of its start.
        self._aside: set[str] = set()
        self._pool: RoomMaker | None = None
        self._turns: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()  # by kernel manager, for attached ones
        #: Whether kernels that can use them are reached through Unix sockets.
        self.prefers_sockets = True
        self._launches: dict[str, RestoredLaunch] = {}
        self._make = manager.kernel_manager_factory
        self._made: WeakValueDictionary[str, KernelManager] = WeakValueDictionary()  # for `_end_failed`
        manager.kernel_manager_factory = self._make_manager  # sees each manager before its kernel starts

    def forget_files(self, kernel_ids: set[str]) -> None:
        """Remove the connection files and sockets of kernels whose server was killed."""
        directory = Path(getattr(self._manager, "connection_dir", "") or jupyter_runtime_dir())
        for kernel_id in kernel_ids:
            for path in directory.glob(f"kernel-{kernel_id}*"):  # its sockets lie beside it
                remove_tree(path)

    @contextmanager
    def reserve(self, kernel_id: str) -> Iterator[None]:
        """Hold a place among the host's kernels while one starts; those that are kept aside have none."""
        self._require_place(self._starting.union(self._manager.list_kernel_ids()) - self._aside - {kernel_id})
        self._starting.add(kernel_id)
        try:
            yield
        finally:
            self._starting.discard(kernel_id)

    def _require_place(self, taken: set[str]) -> None:
        if self._max_kernels is not None and len(taken) >= self._max_kernels:
            raise TooManyKernels(
                f"this server runs at most {self._max_kernels} kernels and has {len(taken)}; shut one down first"
            )

    # --- kernels that are kept aside ---

    def use_pool(self, pool: RoomMaker) -> bool:
        """Have `pool` make room before a start is refused; return whether kernels can be started aside for it.

        They cannot where the manager goes on with starts in the background.
        """
        self._pool = pool
        return not getattr(self._manager, "use_pending_kernels", False)

    async def make_room(self) -> None:
        """End a kernel that is kept aside, if there is one and its place is needed; call this before `reserve`."""
        try:
            self._require_place(self._all())
        except TooManyKernels:
            if self._aside and self._pool is not None:
                await self._pool.make_room()

    def _all(self) -> set[str]:
        return self._starting.union(self._manager.list_kernel_ids(), self._aside)

    @contextmanager
    def _reserve_aside(self, kernel_id: str) -> Iterator[None]:
        """Take a place, from the start of a kernel to its end, which any other start may have instead."""
        self._require_place(self._all())
        self._aside.add(kernel_id)
        with ExitStack() as undo:
            undo.callback(self._aside.discard, kernel_id)
            yield
            undo.pop_all()

    def enlist(self, kernel: Kernel) -> None:
        """Make a kernel that was started aside one like all others."""
        assert isinstance(kernel, HostedKernel)
        with self.reserve(kernel.kernel_id):
            self._note_own(kernel.kernel_id)
            kernel.enlist()

    async def start(
        self,
        kernel_name: str,
        env: Mapping[str, str],
        cwd: str | None,
        isolate: str | None = None,
        *,
        aside: str | None = None,
        launch: KernelLaunch | None = None,
    ) -> HostedKernel:
        """Start a kernel with exactly the environment `env`, in the directory `cwd` or, without one, in the host's.

        With `isolate` it gets that isolation, whatever its kernelspec says. With `aside` the host has it, and lists it,
        only while it is being started and ended. `launch` gives its process, which has a state already.
        """
        kernel_id = aside or str(uuid.uuid4())
        name = kernel_name if isolate is None else isolated_name(kernel_name, isolate)
        has_stderr = isolate is None and await self.takes_stderr(kernel_name)
        options: dict[str, Any] = {"kernel_id": kernel_id, "kernel_name": name, "env": dict(env)}
        directory = cwd or getattr(self._manager, "root_dir", None)
        if directory:
            options["cwd"] = directory
        require_descriptors(KEPT_DESCRIPTORS)
        if not aside:
            await self.make_room()
        with self._reserve_aside(kernel_id) if aside else self.reserve(kernel_id), ExitStack() as undo:
            self._note_own(kernel_id)
            undo.callback(self._uses.end, kernel_id, kernel_id)
            if not aside:
                self._uses.begin(kernel_id, kernel_id)
            try:
                if isinstance(launch, RestoredLaunch):
                    self._launches[kernel_id] = launch
                    undo.callback(self._launches.pop, kernel_id, None)
                stderr = KernelStderr() if has_stderr and launch is None else None
                if stderr is not None:
                    undo.callback(stderr.close)
                    options["stderr"] = stderr.for_kernel
                active_at = getattr(self._manager, "last_kernel_activity", None)
                await ensure_async(self._manager.start_kernel(**options))
                kernel = HostedKernel(self._manager, kernel_id, self._uses, self._aside, stderr, launch)
                if aside:
                    kernel.set_aside(active_at)
                kernel.take_over_restarts()
                kernel.take_over_sockets()
                await kernel.started()
                kernel.forget_stderr()
                level = isolate or level_by_name(kernel.provisioner_name)
                if level is not None:
                    await kernel.require_level(level)
            except _PASSED_ON:
                raise
            except Exception as error:  # of any manager or provisioner
                undo.close()  # first: its descriptors may be those that the kernel's end lacks
                await self._end_failed(kernel_id)
                if is_out_of_resources(error):
                    raise make_resources_error(error) from error
                raise KernelStartFailed(f"kernel {kernel_name!r} could not be started: {error}") from error
            undo.pop_all()
        return kernel

    def _make_manager(self, *args: Any, **options: Any) -> KernelManager:
        made: KernelManager = self._make(*args, **options)
        kernel_id = kernel_id_of(options)
        self._made[kernel_id] = made
        if kernel_id in self._launches:
            self._launches[kernel_id].take_place_in(made)
        if kernel_id in self._own:
            if "context" in options:  # the host's, which lives as long as the host
                made.context = with_frame_limit(options["context"])
            if self.prefers_sockets:
                use_sockets(made)
        return made

    async def _end_failed(self, kernel_id: str) -> None:
        """End what a start that failed has launched: where jupyter_client fails after that, it keeps no kernel."""
        made = self._made.get(kernel_id)
        if kernel_id in self._manager or made is None:
            return
        getattr(self._manager, "_pending_kernels", {}).pop(kernel_id, None)
        if made.has_kernel:
            await ensure_async(made.shutdown_kernel(now=True))

    def _note_own(self, kernel_id: str) -> None:
        """Note, before it can be seen, that a kernel is a session's; forget those that are gone."""
        self._own.intersection_update(self._all())
        self._own.add(kernel_id)

    # --- kernels of others ---

    def running(self, kernel_id: str) -> KernelSpecInfo:
        """Return the kernelspec of a kernel that can be attached to; see `KernelHost`."""
        return self._others(kernel_id).spec

    async def attach(self, kernel_id: str) -> AttachedKernel:
        """Return a running kernel, to be used together with its present user; see `KernelHost`."""
        kernel = self._others(kernel_id)
        if not await kernel.alive():
            raise Conflict("the kernel is just starting, or it is dead; attach when it runs")
        kernel.begin_use()
        return kernel

    def _others(self, kernel_id: str) -> AttachedKernel:
        if kernel_id in self._own or kernel_id not in self._manager:
            raise KernelNotFound(f"no kernel {kernel_id!r} runs here that a session could attach to")
        turn = self._turns.setdefault(self._manager.get_kernel(kernel_id), asyncio.Lock())
        return AttachedKernel(self._manager, kernel_id, self._uses, turn)
