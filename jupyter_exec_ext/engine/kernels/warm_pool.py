"""Warm pool: kernels started in advance, so that a session need not wait for a start.

Each has a session's id, its mark and its working directory. Its connection is checked, and it has run our own set-up
code to the end. Until a session takes it, it is hidden from the host's list: no client can list, use or cull it, and an
idle server can stop. A kernel that runs anything else meanwhile, or ends, is discarded.

`warm_pool_plan` decides which kernels to hold. They are started one at a time, and not while another start waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ...errors import ExecError, TooManyKernels
from ...system.marked_processes import MARK
from ..ports import KernelHost, SessionFiles, Store
from .kernel_processes import memory_bytes
from .kernel_start import KernelStarter
from .secret_placeholders import placeholders
from .session_kernel import SessionKernel
from .shared_resources import EngineResources
from .warm_pool_plan import Demand, KernelKind, Plan, PoolBounds, PooledKernel, plan

# Delay of a start after its cause: by then the answer is out, and mostly the first run is over.
_DELAY_SECONDS = 0.1
# For a second it goes on waiting while others are at work.
_LOOK_SECONDS = 0.05
_LOOKS = 20


class ServerActivity(Protocol):
    """Sessions and executions of the server."""

    def is_busy(self) -> bool:
        """Return whether a start or an execution is waiting."""


class KernelPool:
    """Keeps kernels ready for sessions that are yet to come.

    Parameters
    ----------
    bounds : PoolBounds
        How much it may hold.
    store : Store
        Keeps the ids of sessions to come and of their kernels, for the next server should this one be killed.
    activity : ServerActivity
        Shows whether a start or an execution is waiting.
    server_name : str
        Name in the ids of sessions.

    Attributes
    ----------
    on_event : callable
        Told of each kernel that was ``taken`` or ``discarded``, and of each request that ``missed``.
    """

    def __init__(
        self,
        bounds: PoolBounds,
        host: KernelHost,
        files: SessionFiles,
        resources: EngineResources,
        store: Store,
        activity: ServerActivity,
        *,
        server_name: str,
        start_timeout_seconds: float,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.on_event: Callable[[str], None] = _ignore
        self.bounds = bounds
        self._host = host
        self._files = files
        self._resources = resources
        self._store = store
        self._written: dict[str, str] = {}
        self._write_lock = asyncio.Lock()
        self._activity = activity
        self._server_name = server_name
        self._start_timeout = start_timeout_seconds
        self._log = log
        self._demands: dict[KernelKind, Demand] = {}
        self._kernels: list[PooledKernel] = []
        self._discarded: list[PooledKernel] = []  # that have not ended yet
        self._ending: set[asyncio.Task[None]] = set()
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._can_start_aside = host.use_pool(self)

    @property
    def ready(self) -> int:
        """How many kernels are ready."""
        return sum(pooled.ready for pooled in self._kernels)

    def pids(self) -> dict[str, int]:
        """Return the processes of the kernels that are ready, by the ids of their sessions to come."""
        kernels = {pooled.session_id: pooled.kernel for pooled in self._kernels if pooled.ready}
        return {session_id: kernel.pid for session_id, kernel in kernels.items() if kernel and kernel.pid is not None}

    @property
    def _on(self) -> bool:
        return not self._closed and self.bounds.size > 0 and self._can_start_aside

    # --- for sessions ---

    def take(self, kind: KernelKind) -> PooledKernel | None:
        """Return a kernel for a session that begins now, if there is one.

        Raises
        ------
        TooManyKernels
        """
        pooled = self._first(kind) if self._on else None
        if pooled is None:
            return None
        assert pooled.kernel is not None and pooled.kernel.kernel is not None
        # First: where the host is full it raises, and the kernel stays in the pool.
        self._host.enlist(pooled.kernel.kernel)
        self._kernels.remove(pooled)
        pooled.detach()
        self._note(kind, found=True)
        return pooled

    def note_miss(self, kind: KernelKind) -> None:
        """Take note that a session had to start its kernel, and could."""
        if self._on:
            self._note(kind, found=False)

    def _note(self, kind: KernelKind, *, found: bool) -> None:
        now = asyncio.get_running_loop().time()
        for old in [old for old in self._demands if kind.is_newer_than(old)]:
            del self._demands[old]
        if kind in self._demands:
            self._demands[kind].ask(now, found=found, most=self.bounds.max_kernels)
        else:  # a first request cannot be foreseen
            self._demands[kind] = Demand(now)
        self.on_event("taken" if found else "missed")
        self.refill_soon()

    def _first(self, kind: KernelKind) -> PooledKernel | None:
        while True:
            pooled = next((pooled for pooled in self._kernels if pooled.ready and pooled.kind == kind), None)
            if pooled is None:
                return None
            assert pooled.kernel is not None
            if pooled.kernel.connection is not None:
                pooled.kernel.connection.catch_up()  # what it has done meanwhile, unseen
            if pooled.ready:  # else that has discarded it, and the next one is tried
                return pooled

    def keep(self, kinds: Iterable[KernelKind]) -> None:
        """Hold kernels of these kinds from now on, with or without requests."""
        for kind in kinds:
            self._demands.setdefault(kind, Demand(asyncio.get_running_loop().time())).always = True
        self.refill_soon()

    # --- what to do next ---

    def refill_soon(self) -> None:
        """Start or end kernels soon, so that the pool holds what it should."""
        if self._on and self._demands:
            self._refill_at(asyncio.get_running_loop().time() + _DELAY_SECONDS)

    def _refill_at(self, moment: float | None) -> None:
        if moment is None or self._closed or (self._timer is not None and self._timer.when() <= moment):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(moment, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._worker is None and not self._closed:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            await self._write_down()
            while not self._closed:
                next_step = self._plan()
                self._end_surplus(next_step)
                if next_step.start is None:
                    self._refill_at(next_step.look_again_at)
                    break
                await self._until_quiet()
                if not self._closed and not await self._start(next_step.start):
                    break
        finally:
            self._worker = None

    def _plan(self) -> Plan[KernelKind]:
        now, bounds = asyncio.get_running_loop().time(), self.bounds
        for kind in [kind for kind, demand in self._demands.items() if demand.is_forgotten(now, bounds)]:
            del self._demands[kind]
        return plan(now, bounds, self._demands, [pooled.kind for pooled in self._kernels if pooled.ready])

    def _end_surplus(self, next_step: Plan[KernelKind]) -> None:
        for kind in next_step.end:
            self._end(next(pooled for pooled in self._kernels if pooled.ready and pooled.kind == kind), "not needed")

    async def _until_quiet(self) -> None:
        for _ in range(_LOOKS):
            if self._closed or not self._activity.is_busy():
                return
            await asyncio.sleep(_LOOK_SECONDS)

    # --- a kernel's life here ---

    async def _start(self, kind: KernelKind) -> bool:
        """Start a kernel; return False if the host has no room for it, until a session ends or a request comes."""
        pooled = PooledKernel(kind, self, self._server_name)
        starter = KernelStarter(
            kind.name,
            {**dict(kind.env), **placeholders(pooled.session_id, kind.secrets), MARK: pooled.session_id},
            session_id=pooled.session_id,
            language=kind.language,
            attach_to=None,
            isolate=kind.isolate,
            host=self._host,
            files=self._files,
            resources=self._resources,
            start_timeout_seconds=self._start_timeout,
            process_limits=kind.limits,
            aside=pooled.kernel_id,
        )
        pooled.kernel = SessionKernel(starter, self._log)
        pooled.kernel.receiver = pooled.kernel.owner = pooled
        self._kernels.append(pooled)
        try:
            await self._write_down()
            await pooled.kernel.ensure()
            pooled.kernel.warm_up()
            await pooled.set_up(self._start_timeout)
            # The kernelspec may have changed while the kernel started: `kind` stands for its old content.
            await self._host.find(kind.name)
            if self._host.version_of(kind.name) != kind.version:
                raise ExecError("its kernelspec has changed")
            await self._measure(pooled)
        except TooManyKernels as error:
            if pooled in self._kernels:
                self._end(pooled, error.message)
            return False
        except ExecError as error:
            pooled.discard(error.message)
        except Exception:  # of any host or provisioner; the pool goes on with other kernels
            self._log.exception("a kernel for the pool could not be started")
            pooled.discard("it could not be started")
        else:
            pooled.ready = pooled in self._kernels and not self._closed  # it may have been discarded by now
            self._log.debug("pool: kernel %s (%s) is ready, as %s", pooled.kernel_id, kind.name, pooled.session_id)
        return True

    async def _measure(self, pooled: PooledKernel) -> None:
        assert pooled.kernel is not None and pooled.kernel.kernel is not None
        measured = await asyncio.to_thread(memory_bytes, pooled.kernel.kernel.pid)
        demand = self._demands.get(pooled.kind)
        if demand is not None:
            demand.kernel_bytes = max(measured, demand.kernel_bytes)

    def note_spoiled(self, pooled: PooledKernel, reason: str) -> None:
        """End a kernel that no session may have, and start another one in its place."""
        demand = self._demands.get(pooled.kind)
        if demand is not None:
            demand.lost += 1
        self._end(pooled, reason)
        self.refill_soon()

    def _end(self, pooled: PooledKernel, reason: str) -> asyncio.Task[None]:
        """Throw a kernel away."""
        if pooled.ready:
            self.on_event("discarded")
        self._kernels.remove(pooled)
        self._discarded.append(pooled)
        pooled.detach()
        self._log.debug("pool: kernel %s (%s) is thrown away: %s", pooled.kernel_id, pooled.kind.name, reason)
        task = asyncio.get_running_loop().create_task(self._clear_away(pooled))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _clear_away(self, pooled: PooledKernel) -> None:
        assert pooled.kernel is not None
        try:
            await pooled.kernel.shutdown(now=True)
        except Exception:  # of any host or provisioner; its files and its record have to go all the same
            self._log.exception("pool: kernel %s could not be shut down", pooled.kernel_id)
        # The directory was made for the start, and no session will use it.
        await self._files.session_ended(pooled.session_id)
        await self._files.remove(pooled.session_id)
        self._discarded.remove(pooled)  # only now: until here the next server would have to clear it away
        await self._write_down()

    async def _write_down(self) -> None:
        """Keep what there is where the next server finds it."""
        # Two threads could otherwise write an older list over a newer one.
        async with self._write_lock:
            present = {pooled.session_id: pooled.kernel_id for pooled in (*self._kernels, *self._discarded)}
            if present != self._written:
                await asyncio.to_thread(self._store.note_prepared, present)
                self._written = present

    async def make_room(self) -> None:
        """End a kernel, since the host has no room for a start that waits."""
        pooled = next((pooled for pooled in self._kernels if pooled.ready), None)
        if pooled is not None:
            # Its end goes on if the request that waits for the room is cancelled.
            await asyncio.shield(self._end(pooled, "another kernel needs the room"))
            return
        for pooled in list(self._kernels):
            pooled.discard("another kernel needs the room")  # it is still starting, and a request goes first

    async def close(self) -> None:
        """End all kernels. The pool cannot be used again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for pooled in list(self._kernels):
            self._end(pooled, "the server is shutting down")
        if self._worker is not None:
            await asyncio.wait([self._worker])
        if self._ending:
            await asyncio.wait(list(self._ending))


def _ignore(event: str) -> None:
    pass
