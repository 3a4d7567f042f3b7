"""Automatic checkpoints of one session: one before each run. If one cannot be made, the run goes on without it.

`CheckpointQuota` deletes the oldest of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import ExecError
from ..executions.live_execution import LiveExecution
from .live_session import LiveSession

#: Bound on the delay of a run.
MAX_DELAY_SECONDS = 3.0
# After a failure that took longer, no more are tried for a while: each would delay its run.
_QUICK_SECONDS = 0.5
_PAUSE_SECONDS = 60.0


class AutomaticCheckpoints:
    """Makes the checkpoints of one session, and notes in its record why there is none.

    Parameters
    ----------
    live : LiveSession
        The session.
    make : callable
        Makes a checkpoint, given its name.
    """

    def __init__(
        self,
        live: LiveSession,
        make: Callable[[str], Awaitable[object]],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._live = live
        self._make = make
        self._log = log
        self._paused_until = 0.0

    async def before_run(self, execution: LiveExecution) -> None:
        """Make a checkpoint before an execution runs, if there can be one now."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        if began_at < self._paused_until:
            return
        self._live.queue.stop_timer(execution)  # its turn has come
        try:
            await asyncio.wait_for(self._make(f"before {execution.record.id}"), MAX_DELAY_SECONDS)
        except asyncio.TimeoutError:
            self._note(f"it was not ready within {MAX_DELAY_SECONDS:g} s")
        except ExecError as error:
            self._note(error.message)
        except Exception:  # a defect of ours, for which no run may fail
            self._log.exception("session %s: no automatic checkpoint", self._live.record.id)
            self._note("the server failed; its log has the details")
        else:
            self._note(None)
            return
        if loop.time() - began_at > _QUICK_SECONDS:
            self._paused_until = loop.time() + _PAUSE_SECONDS

    def _note(self, problem: str | None) -> None:
        if problem is not None and self._live.record.auto_checkpoint_problem is None:
            self._log.info("session %s has no automatic checkpoint: %s", self._live.record.id, problem)
        self._live.note(auto_checkpoint_problem=problem)
