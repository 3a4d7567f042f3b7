"""Session service: create, list, read, interrupt, restart and end sessions for their callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...auth.caller import Caller
from ...errors import Conflict, SessionNotFound, ShuttingDown
from ...models import AUTO_CHECKPOINT_OFF, ExecutionState, Session, SessionRequest, SessionState, SessionUsage
from ..kernels.warm_pool import KernelPool
from ..ports import AuditTrail, SessionStore
from .checkpoint_maker import CheckpointMaker
from .live_session import LiveSession, ended_error
from .session_factory import Branch, SessionFactory
from .session_memory import SessionMemory
from .session_registry import SessionRegistry
from .usage_sampler import UsageSampler

_MAX_ENDED_SESSIONS = 1000


class SessionService:
    """Sessions of one engine. A caller sees its own and those of tokens that it has created."""

    def __init__(
        self,
        factory: SessionFactory,
        registry: SessionRegistry,
        pool: KernelPool,
        store: SessionStore,
        audit: AuditTrail,
        memory: SessionMemory,
        checkpoints: CheckpointMaker,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._factory = factory
        self.token_ends = factory.token_ends
        self._registry = registry
        self._pool = pool
        self._store = store
        self._audit = audit
        #: The engine's.
        self.log = log
        self._memory = memory
        self._checkpoints = checkpoints
        self._usage = UsageSampler(registry)

    async def create(
        self, caller: Caller, request: SessionRequest, setup_code: str | None = None, branch: Branch | None = None
    ) -> Session:
        """Start a session and wait until its kernel answers; see `ExecEngine.create_session`."""
        if is_automatic := request.auto_checkpoint != AUTO_CHECKPOINT_OFF:
            self._checkpoints.check_automatic(caller)
        visible = () if request.kernel_id is None else await self.list(caller)
        plan = await self._factory.plan(caller, request, visible, branch)
        live = self._factory.build(caller, request, plan, setup_code, branch)
        if is_automatic:
            self._checkpoints.enable_automatic(caller, live)
        is_pooled = live.record.kernel_starts > 0
        self._usage.start()
        try:
            await live.start()
        except BaseException as error:  # also if cancelled: executions sent to it meanwhile end with the reason
            await live.close(f"it did not start: {error}")
            self._registry.remove_session(live.record.id)
            raise
        if branch is not None:
            live.runner.note_renewed(has_state=True)
        if self._registry.stopping:
            await live.close("the server is shutting down")
            raise ShuttingDown("the server is shutting down")
        if plan.kind is not None and not is_pooled:
            self._pool.note_miss(plan.kind)
        self.log.info("session %s: kernel %s (%s)", live.record.id, live.record.kernel_id, plan.spec.name)
        return live.record

    async def list(self, caller: Caller, *, ended: bool = False, memory: bool = False) -> Sequence[Session]:
        """Return the caller's sessions, oldest first; see `ExecEngine.list_sessions`."""
        past = await self._store.list_ended(_MAX_ENDED_SESSIONS) if ended else ()
        live = (live.record for live in self._registry.sessions.values())
        # Live ones last: their records replace those of the store, which may be older.
        known = {session.id: session for session in [*past, *live]}
        found = [
            session
            for session in sorted(known.values(), key=lambda session: session.created_at)
            if caller.may_see(session.owner) and (ended or session.state is not SessionState.ENDED)
        ]
        return await self._memory.measured(found) if memory else found

    async def get(self, caller: Caller, session_id: str, *, memory: bool = False) -> Session:
        """Return a session, ended or not.

        Raises
        ------
        SessionNotFound
            If there is none that the caller may see.
        WrongServer
            If it is on another server.
        """
        live = self._registry.sessions.get(session_id)
        record = live.record if live is not None else await self._store.get(session_id)
        if record is None or not caller.may_see(record.owner):
            self._registry.require_own(session_id)
            raise SessionNotFound(f"no session {session_id!r}; list the sessions to find its id")
        if live is None and record.state is not SessionState.ENDED:
            self._registry.require_own(session_id)  # several servers may share the store
        return (await self._memory.measured([record]))[0] if memory else record

    async def usage(self, caller: Caller, session_id: str) -> SessionUsage:
        """Return what a session's kernel has used over the last hour, and its limits."""
        await self.get(caller, session_id)
        return await self._usage.usage(session_id)

    async def get_live(self, caller: Caller, session_id: str) -> LiveSession:
        """Return a session that has not ended; raise `SessionNotFound` or `SessionEnded` if there is none."""
        record = await self.get(caller, session_id)
        live = self._registry.sessions.get(session_id)
        if live is None or record.state is SessionState.ENDED:
            raise ended_error(record)
        return live

    async def delete(self, caller: Caller, session_id: str) -> None:
        """Shut a session down; its executions end as cancelled."""
        live = await self.get_live(caller, session_id)
        self._audit.record("session", "delete_asked", caller.principal, session_id)
        await self.end(live.record.id, "deleted")

    async def end(self, session_id: str, reason: str) -> None:
        """Shut a session down, if it is live, and forget it."""
        live = self._registry.sessions.get(session_id)
        if live is not None:
            await live.close(reason)
            self._registry.remove_session(session_id)

    def renew(self, session_ids: Collection[str]) -> Collection[str]:
        """Start the idle time of sessions anew, because their client is there; return those that are live."""
        return self._registry.renew(session_ids)

    async def interrupt(self, caller: Caller, session_id: str) -> Session:
        """Interrupt the running code, as Ctrl-C would."""
        live = await self.get_live(caller, session_id)
        self._audit.record("session", "interrupt_asked", caller.principal, session_id)
        await live.interrupt()
        return live.record

    async def restart(self, caller: Caller, session_id: str) -> Session:
        """Give the session a fresh kernel; running and queued executions end as cancelled.

        Raises
        ------
        Conflict
            If the session is attached to its user's kernel.
        """
        live = await self.get_live(caller, session_id)
        if live.record.attached:
            raise Conflict("the kernel is its user's, with whom the session shares it; restart it in the notebook")
        self._audit.record("session", "restart_asked", caller.principal, session_id)
        await live.restart()
        return live.record

    async def rename(self, caller: Caller, session_id: str, *, name: str, metadata: Mapping[str, Any]) -> Session:
        """Change a session's name and metadata.

        Parameters
        ----------
        caller : Caller
            Author of the request.
        session_id : str
            Id of the session.
        name : str
            New name.
        metadata : mapping
            New metadata, all of it.

        Returns
        -------
        Session
            The changed record.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        live = await self.get_live(caller, session_id)
        self._audit.record("session", "rename_asked", caller.principal, session_id, name=name)
        live.note(name=name, metadata=dict(metadata))
        await self._store.save(live.record)
        return live.record

    async def close_all(self) -> None:
        """End every session because the server stops."""
        self._usage.close()
        await asyncio.gather(*map(self._close_at_shutdown, list(self._registry.sessions.values())))

    async def _close_at_shutdown(self, live: LiveSession) -> None:
        try:
            await live.close("the server was shut down", cut=ExecutionState.SERVER_RESTARTED)
        except Exception:  # the other sessions still have to be closed
            self.log.exception("session %s did not shut down cleanly", live.record.id)
