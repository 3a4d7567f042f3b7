"""State of the whole server for those who watch it: its readiness and its load."""

from __future__ import annotations

import asyncio

from ...models import Readiness, ServerLoad
from ..kernels.kernel_processes import MemoryMeter
from ..kernels.process_limits import descriptor_limit, opened_descriptors
from ..kernels.warm_pool import KernelPool
from ..settings import EngineSettings
from .session_registry import SessionRegistry


class ServerStatus:
    """Readiness and load of one engine.

    Parameters
    ----------
    memory : MemoryMeter
        Shared with the lists of sessions, so that no kernel is measured twice at a time.
    """

    def __init__(
        self, settings: EngineSettings, registry: SessionRegistry, pool: KernelPool, memory: MemoryMeter
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._pool = pool
        self._memory = memory

    def readiness(self) -> Readiness:
        """Return whether the server takes new sessions."""
        registry = self._registry
        is_ready = not (registry.draining or registry.stopping or registry.policy_problem)
        return Readiness(is_ready, registry.draining)

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of sessions, of running executions and of waiting ones."""
        return self._registry.load()

    def pooled(self) -> int:
        """Return the number of pooled kernels that are ready."""
        return self._pool.ready

    async def load(self) -> ServerLoad:
        """Return how loaded the server is; the kernels' memory is measured anew every few seconds only."""
        measured = await self._memory.measure({**self._registry.pids(), **self._pool.pids()})
        used = await asyncio.to_thread(opened_descriptors)
        # Counted last, in one step: a watcher compares these numbers.
        sessions, running, queued = self.counts()
        most = self._settings.max_sessions
        free = 0 if self._registry.draining else max(0, most - sessions) if most else None
        return ServerLoad(
            server_name=self._settings.server_name,
            draining=self._registry.draining,
            sessions=sessions,
            running=running,
            queued=queued,
            free_places=free,
            pooled_kernels=self.pooled(),
            descriptors_used=used,
            descriptors_allowed=descriptor_limit(),
            kernels_pss_bytes=sum(filter(None, measured.values())),
        )
