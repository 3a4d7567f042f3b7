"""How much memory the kernels of sessions use, for whoever asks.

The system adds it up page by page, which takes a millisecond for a small process and much longer for a large one. So
nothing is measured that nobody asked for; it is done in a thread, for all sessions of a question together and for one
question at a time; and for a few seconds what was found answers the next one, however many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from .process_state import memory_below

FRESH_SECONDS = 3.0


class MemoryMeter:
    """Measures the kernels of sessions."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        #: By session and process: when it was measured, and what was found.
        self._found: dict[tuple[str, int], tuple[float, int | None]] = {}

    async def measure(self, pids: Mapping[str, int]) -> dict[str, int | None]:
        """Return what kernels use, with the processes below them, by the ids of their sessions; None if unknown.

        Parameters
        ----------
        pids : mapping
            The kernels' processes, by the ids of their sessions.
        """
        async with self._turn:
            oldest = time.monotonic() - FRESH_SECONDS
            self._found = {key: found for key, found in self._found.items() if found[0] > oldest}
            wanted = {pid for session_id, pid in pids.items() if (session_id, pid) not in self._found}
            if wanted:
                now = await asyncio.to_thread(memory_below, wanted)
                moment = time.monotonic()
                self._found |= {(sid, pid): (moment, now[pid]) for sid, pid in pids.items() if pid in wanted}
            return {session_id: self._found[session_id, pid][1] for session_id, pid in pids.items()}
