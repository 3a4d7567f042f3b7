"""State of the whole server: its readiness and its load for those who watch it, and draining it before its end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ...errors import ShuttingDown
from ...models import Readiness, ServerLoad
from ..kernels.kernel_processes import MemoryMeter
from ..kernels.process_limits import descriptor_limit, opened_descriptors
from ..kernels.warm_pool import KernelPool
from ..ports import AuditTrail
from ..settings import EngineSettings
from .session_registry import SessionRegistry

_LOOK_SECONDS = 0.2
# A client between two requests, for the next run or for the result of the last one, has a second.
_QUIET_LOOKS = 5


class ServerStatus:
    """Readiness and load of one engine, which can be drained.

    Parameters
    ----------
    memory : MemoryMeter
        Shared with the lists of sessions, so that no kernel is measured twice at a time.
    """

    def __init__(
        self,
        settings: EngineSettings,
        registry: SessionRegistry,
        pool: KernelPool,
        memory: MemoryMeter,
        audit: AuditTrail,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._pool = pool
        self._memory = memory
        self._audit = audit
        self._log = log
        self._is_ending = False

    def readiness(self) -> Readiness:
        """Return whether the server takes new sessions."""
        registry = self._registry
        is_ready = not (registry.draining or registry.stopping or registry.policy_problem)
        return Readiness(is_ready, registry.draining)

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of sessions, of running executions and of waiting ones."""
        return self._registry.counts()

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

    def drain(self, principal: str) -> Readiness:
        """Take no new sessions from now on; those that there are go on, with new executions, too."""
        if not self._registry.draining:
            self._registry.draining = True
            self._audit.record("server", "drain_started", principal, self._settings.server_name)
        self._log.warning("the server is drained, for %s: it takes no new sessions", principal)
        return self.readiness()

    def end_drain(self, principal: str) -> Readiness:
        """Take new sessions again.

        Raises
        ------
        ShuttingDown
            If the server is drained because it ends.
        """
        if self._is_ending:
            raise ShuttingDown("the server was asked to end, so its drain cannot be undone")
        if self._registry.draining:
            self._registry.draining = False
            self._audit.record("server", "drain_ended", principal, self._settings.server_name)
        self._log.warning("the server takes new sessions again, for %s", principal)
        return self.readiness()

    async def drain_to_end(self, seconds: float) -> bool:
        """Drain for good, and wait until nothing has run for a moment, or `seconds` have passed.

        Returns
        -------
        bool
            Whether the server is still to be stopped; False if it stops already.
        """
        self._is_ending = self._registry.draining = True
        loop = asyncio.get_running_loop()
        give_up_at, quiet_looks = loop.time() + seconds, 0
        while quiet_looks < _QUIET_LOOKS and loop.time() < give_up_at and not self._registry.stopping:
            await asyncio.sleep(_LOOK_SECONDS)
            quiet_looks = 0 if self._registry.is_busy() else quiet_looks + 1
        return not self._registry.stopping
