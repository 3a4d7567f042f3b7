"""Registry of live sessions, by id and by name, and of the executions that run or wait in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

from ...auth.caller import Caller
from ...errors import SessionEnded, WrongServer
from ...models import ExecutionState, Session, SessionState
from ...protocol.record_ids import parse_id
from ..executions.live_execution import LiveExecution
from ..ports import KernelFiles
from .live_session import LiveSession
from .session_checkpoints import SessionCheckpoints

_TOUCH_SECONDS = 1.0  # cullers count in seconds

Name = tuple[str, ...]
Create = Callable[[], Coroutine[Any, Any, Session]]
T = TypeVar("T")


class SessionRegistry:
    """Live sessions and executions of one engine.

    While anything runs, the host is notified once a second that the kernel is in use, or it might cull it.

    Parameters
    ----------
    server_name : str
        Name of this server in the ids that it makes; empty without one.

    Attributes
    ----------
    sessions : dict
        Live sessions by id. One that has ended stays until another is created, so that its record is at hand.
    checkpoints : dict
        Checkpoints of live sessions that have or had some, by the ids of the sessions.
    executions : dict
        Executions that have not ended, by id, each with its session.
    stopping : bool
        Set when the engine shuts down: no session is created any more.
    draining : bool
        Set while the server is drained: no session is created, and those that there are go on.
    policy_problem : str
        Mistake in the policies, because of which no session is created; empty without one.
    """

    def __init__(self, server_name: str = "") -> None:
        self._server_name = server_name
        self.sessions: dict[str, LiveSession] = {}
        self.checkpoints: dict[str, SessionCheckpoints] = {}
        self.executions: dict[str, tuple[LiveSession, LiveExecution]] = {}
        self.stopping = self.draining = False
        self.policy_problem = ""
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
        live.watchers.on_execution(execution)
        self._schedule_touch()

    def require_own(self, record_id: str) -> None:
        """Refuse the id of a session or execution that another server has made.

        Call it for a record that is not here, or that the store has as one that is not over: then it lives elsewhere.

        Raises
        ------
        WrongServer
            If the id has another server's name.
        """
        parsed = parse_id(record_id)
        if parsed is not None and parsed.server_name not in ("", self._server_name):
            raise WrongServer(
                f"{record_id!r} is on the server {parsed.server_name!r}, and this one is {self._server_name!r}; send "
                "the request to that server, or to the pool that it belongs to"
            )

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

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of sessions, of running executions and of waiting ones."""
        sessions = sum(live.record.state is not SessionState.ENDED for live in self.sessions.values())
        running = sum(execution.record.state is ExecutionState.RUNNING for _, execution in self.executions.values())
        return sessions, running, len(self.executions) - running

    def pids(self) -> dict[str, int]:
        """Return the processes of the sessions' kernels, by the ids of their sessions."""
        found = {session_id: live.kernel.pid for session_id, live in self.sessions.items()}
        return {session_id: pid for session_id, pid in found.items() if pid is not None}

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

    def renew(self, session_ids: Collection[str]) -> list[str]:
        """Start the idle time of those sessions anew that are live, and return them."""
        live = [session_id for session_id in session_ids if session_id in self.sessions]
        for session_id in live:
            self.sessions[session_id].renew_idle_timeout()
        return live

    def close(self) -> None:
        """Stop the timer."""
        if self._touch_timer is not None:
            self._touch_timer.cancel()


class NamedSessions:
    """Sessions by a caller's own names for them; each principal has names of its own.

    A name is remembered until its session ends. Concurrent requests for a missing session create a single one.
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._ids: dict[tuple[str, Name], str] = {}
        self._starting: dict[tuple[str, Name], asyncio.Task[Session]] = {}

    async def find(self, caller: Caller, name: Name) -> Session | None:
        """Return the caller's session of this name, once it has started; None if there is none.

        The session's idle time starts anew.
        """
        starting = self._starting.get((caller.principal, name))
        if starting is not None:
            # The start is shared: a caller that is cancelled must not cancel it for the others.
            return await asyncio.shield(starting)
        live = self._living((caller.principal, name))
        return live.record if live is not None and live.renew_idle_timeout() else None

    async def use(self, caller: Caller, name: Name, create: Create, verb: Callable[[str], Awaitable[T]]) -> T:
        """Call `verb` with the id of the caller's session of this name, which is created if there is none.

        A session that ends before `verb` could use it is replaced.
        """
        session = await self._find_or_create(caller, name, create)
        try:
            return await verb(session.id)
        except SessionEnded:
            session = await self._find_or_create(caller, name, create)
            return await verb(session.id)

    def list(self, caller: Caller) -> dict[Name, Session]:
        """Return the caller's sessions that have names, oldest first."""
        found = {}
        for principal, name in self._ids:
            live = self._living((principal, name))
            if principal == caller.principal and live is not None and not live.is_closing:
                found[name] = live.record
        return found

    async def _find_or_create(self, caller: Caller, name: Name, create: Create) -> Session:
        # Nothing is awaited between the lookup and the entry in `_starting`, so no second session is created.
        session = await self.find(caller, name)
        if session is not None:
            return session
        key = (caller.principal, name)
        starting = self._starting.get(key)
        if starting is None:
            starting = asyncio.get_running_loop().create_task(self._create(key, create))
            self._starting[key] = starting
        return await asyncio.shield(starting)

    async def _create(self, key: tuple[str, Name], create: Create) -> Session:
        try:
            session = await create()
            # Callers choose the names, so those of ended sessions would add up.
            self._ids = {known: at for known, at in self._ids.items() if self._living(known) is not None}
            self._ids[key] = session.id
            return session
        finally:
            del self._starting[key]

    def _living(self, key: tuple[str, Name]) -> LiveSession | None:
        return self._registry.sessions.get(self._ids.get(key, ""))
