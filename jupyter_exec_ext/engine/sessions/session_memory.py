"""Memory of sessions: that of their kernels, and of their checkpoints, which share most of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...models import Session
from ..kernels.kernel_processes import MemoryMeter, memory_bytes, sum_memory_bytes
from .session_registry import SessionRegistry


class SessionMemory:
    """Memory of one engine's sessions.

    Parameters
    ----------
    registry : SessionRegistry
        The sessions, and their checkpoints.

    Attributes
    ----------
    meter : MemoryMeter
        Measures their kernels.
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self.meter = MemoryMeter()

    def _checkpoint_pids(self, session_id: str) -> Sequence[int]:
        checkpoints = self._registry.checkpoints.get(session_id)
        return () if checkpoints is None else checkpoints.pids()

    async def measured(self, sessions: Sequence[Session]) -> Sequence[Session]:
        """Return the records of sessions with the memory that each takes, as it was some seconds ago at most."""
        pids = self._registry.pids()
        kept = {session.id: self._checkpoint_pids(session.id) for session in sessions}
        # What is measured is kept for seconds. With each checkpoint more, all of them share their memory otherwise.
        keys = {session.id: f"{session.id} {len(kept[session.id])}" for session in sessions if session.id in pids}
        found = await self.meter.measure({key: pids[session_id] for session_id, key in keys.items()})
        of_checkpoints = await asyncio.to_thread(lambda: {key: sum(map(memory_bytes, kept[key])) for key in kept})

        def total(session_id: str) -> int | None:
            own = found.get(keys.get(session_id, ""))
            return None if own is None else own + of_checkpoints[session_id]

        return [replace(session, memory_bytes=total(session.id)) for session in sessions]

    async def measure_now(self, is_wanted_owner: Callable[[str], bool]) -> Sequence[tuple[str, int]]:
        """Measure sessions with their checkpoints; attached kernels are their users' and not measured.

        Parameters
        ----------
        is_wanted_owner : callable
            Returns whether the sessions of a principal are to be measured.

        Returns
        -------
        sequence of (str, int)
            The owner of each session, and the bytes that it takes.
        """
        sessions = [live for live in self._registry.sessions.values() if not live.record.attached]
        found = [(live.record.owner, live.kernel.pid, self._checkpoint_pids(live.record.id)) for live in sessions]
        wanted = [one for one in found if is_wanted_owner(one[0])]
        return await asyncio.to_thread(lambda: [(owner, sum_memory_bytes(pid, kept)) for owner, pid, kept in wanted])
