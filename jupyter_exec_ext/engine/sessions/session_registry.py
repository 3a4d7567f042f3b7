"""Registry of live sessions and of the executions that run or wait in them."""

from __future__ import annotations

import asyncio

from ...models import ExecutionState, SessionState
from ..executions.live_execution import LiveExecution
from ..ports import KernelFiles
from .live_session import LiveSession

_TOUCH_SECONDS = 1.0


class SessionRegistry:
    """What is live in one engine; while anything runs, the host is told so once a second, or it might cull a kernel.

    Attributes
    ----------
    sessions : dict
        Live sessions by id. One that has ended stays until another is created, so that its record is at hand.
    executions : dict
        Executions that have not ended, by id, each with its session.
    stopping : bool
        Set when the engine shuts down: no session is created any more.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, LiveSession] = {}
        self.executions: dict[str, tuple[LiveSession, LiveExecution]] = {}
        self.stopping = False
        self._touch_timer: asyncio.TimerHandle | None = None

    def add_session(self, live: LiveSession) -> None:
        """Register a session that starts."""
        self.sessions[live.record.id] = live
        self._schedule_touch()

    def remove_session(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self.sessions.pop(session_id, None)

    def remove_ended(self) -> None:
        """Forget all sessions that have ended."""
        for live in [live for live in self.sessions.values() if live.record.state is SessionState.ENDED]:
            del self.sessions[live.record.id]

    def add_execution(self, live: LiveSession, execution: LiveExecution) -> None:
        """Register an execution until it ends."""
        execution_id = execution.record.id
        self.executions[execution_id] = live, execution
        execution.on_end(lambda: self.executions.pop(execution_id))
        self._schedule_touch()

    def executions_of(self, session_id: str) -> list[LiveExecution]:
        """Return the executions of one session that have not ended."""
        return [execution for _, execution in self.executions.values() if execution.record.session_id == session_id]

    def kernel_files(self, session_id: str) -> KernelFiles | None:
        """Return the files of a session's kernel on another machine, if its provisioner offers them."""
        live = self.sessions.get(session_id)
        kernel = None if live is None else live.kernel.kernel
        return None if kernel is None else kernel.traits.files

    def is_busy(self) -> bool:
        """Return whether an execution or the start of a session is under way."""
        return bool(self.executions) or any(
            live.record.state is SessionState.STARTING for live in self.sessions.values()
        )

    def load(self) -> tuple[int, int, int]:
        """Return the numbers of sessions, of running executions and of waiting ones."""
        sessions = sum(live.record.state is not SessionState.ENDED for live in self.sessions.values())
        running = sum(execution.record.state is ExecutionState.RUNNING for _, execution in self.executions.values())
        return sessions, running, len(self.executions) - running

    def _schedule_touch(self) -> None:
        if self._touch_timer is None:
            self._touch_timer = asyncio.get_running_loop().call_later(_TOUCH_SECONDS, self._touch)

    def _touch(self) -> None:
        self._touch_timer = None
        in_use = [live for live in self.sessions.values() if live.record.state is SessionState.STARTING]
        in_use += [live for live, _ in self.executions.values()]
        for live in in_use:
            live.kernel.touch()
        if in_use:
            self._schedule_touch()

    def close(self) -> None:
        """Stop the timer."""
        if self._touch_timer is not None:
            self._touch_timer.cancel()
