"""Execution service: accept code into a queue, once for each idempotency key; list, read and cancel executions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import partial

from ...auth.caller import Caller
from ...auth.policy import check_code, check_env, check_stored
from ...errors import (
    ExecutionNotFound,
    InvalidRequest,
    LogExpired,
    NoInputRequested,
    OutputExpired,
    OutputNotFound,
    PayloadTooLarge,
    PolicyLimitReached,
    QueueFull,
    SessionEnded,
    StoreUnavailable,
)
from ...models import (
    Approval,
    Execution,
    ExecutionRequest,
    ExecutionState,
    FileInfo,
    IdempotencyKey,
    Session,
    SessionRequest,
    SessionState,
    SpooledOutput,
    StoredExecution,
)
from ...protocol.languages import normalize_language, source_for_kernel
from ...protocol.record_ids import new_id
from ...protocol.records_json import utc_timestamp
from ...protocol.strict_json import utf8_size
from ..access.caller_limits import Admission, EffectiveLimits
from ..change_feed import ChangeFeed
from ..executions.lifecycle import StopCause
from ..executions.live_execution import ExecutionHandle, LiveExecution, PastExecution
from ..files.file_transfer import LocalReader
from ..ports import EventLog, ExecutionStore, FileReader, Store
from ..settings import EngineSettings
from .approval_service import ApprovalService, NeededApproval, needed_approval
from .live_session import LiveSession, ended_error
from .session_registry import SessionRegistry
from .session_service import SessionService
from .session_status import follow_execution

_SESSION_FIELDS = tuple(field.name for field in fields(SessionRequest))


def idempotency_of(
    key: str | None, request: ExecutionRequest, session: SessionRequest | None = None
) -> IdempotencyKey | None:
    """Return the key and digest that identify a retry of a request; None if its caller has given no key.

    Parameters
    ----------
    session : SessionRequest, optional
        The session that is made for it.
    """
    if key is None:
        return None
    values = {field.name: getattr(request, field.name) for field in fields(request)}
    if session is not None:
        values["session"] = {name: getattr(session, name) for name in _SESSION_FIELDS}
    # `json.dumps` writes ASCII, so lone surrogates are escaped and `encode` cannot fail.
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return IdempotencyKey(key, hashlib.sha256(canonical.encode()).hexdigest(), session is not None)


_CANCEL_WAIT_SECONDS = 5.0  # for the kill after the grace period, and for writing the end


class ExecutionService:
    """Executions of one engine. A caller sees its own and those of tokens that it has created."""

    def __init__(
        self,
        settings: EngineSettings,
        store: Store,
        sessions: SessionService,
        registry: SessionRegistry,
        admission: Admission,
        approvals: ApprovalService,
        feed: ChangeFeed,
    ) -> None:
        self._settings = settings
        self._store = store
        self._executions = store.executions
        self._sessions = sessions
        self._registry = registry
        self._admission = admission
        self._approvals = approvals
        self._audit = store.audit
        self._feed = feed
        self._token_ends = sessions.token_ends

    async def execute(
        self, caller: Caller, session_id: str, request: ExecutionRequest, key: IdempotencyKey | None
    ) -> ExecutionHandle:
        """Accept code into a session's queue; see `ExecEngine.execute`."""
        session = await self._sessions.get(caller, session_id)
        try:
            accepted = await self._accept(caller, session, request, key)
        except (SessionEnded, QueueFull, PolicyLimitReached):
            # A retried request needs no room: it gets the execution that its first try started.
            earlier = await self.find_earlier(session_id, session.owner, key)
            if earlier is None:
                raise
            return earlier
        return await self._handle_of(accepted) if isinstance(accepted, StoredExecution) else accepted

    async def _accept(
        self, caller: Caller, session: Session, request: ExecutionRequest, key: IdempotencyKey | None
    ) -> LiveExecution | StoredExecution:
        """Record an execution and queue it, or return the one that was recorded with the same key."""
        live = self._registry.sessions.get(session.id)
        if live is None or session.state is SessionState.ENDED:
            raise ended_error(session)
        limits = EffectiveLimits(self._settings, caller)
        self._check_code(caller, request)
        source = source_for_kernel(request.code, request.language, live.record.language)
        needed: NeededApproval = partial(needed_approval, caller, request.code, source, not live.has_run)
        record = _new_record(limits, live.record, request, needed(live.record.approved_kinds))
        self._check_env(caller, live, request)
        self._check_stored(limits)
        with live.reserve():
            ticket = self._admission.enter(caller)
            with ExitStack() as undo:
                undo.callback(ticket.withdraw)
                log = await self._executions.accept(record, session.owner, key, caller.principal)
                if isinstance(log, StoredExecution):  # a retried request, which is not counted again
                    return log
                undo.pop_all()
            execution = LiveExecution(
                record,
                session.owner,
                log,
                self._executions,
                feed=self._feed,
                max_output_bytes=limits.output_bytes,
                max_queue_seconds=limits.queue_seconds,
                request=request,
            )
            # Nothing is awaited since `accept` returned: a retried request finds the live execution at once.
            self._registry.add_execution(live, execution)
            execution.on_end(ticket.leave)
            self._token_ends.follow_execution(caller, live, execution)
            await self._enqueue(caller, live, execution, needed)
        return execution

    async def _enqueue(
        self, caller: Caller, live: LiveSession, execution: LiveExecution, needed: NeededApproval
    ) -> None:
        """Put a registered execution in the queue, or end it if that fails: nothing else would."""
        try:
            if execution.awaits_approval:
                self._approvals.request(caller, live, execution, needed)
            await live.submit(execution)
            follow_execution(live, execution)
        except Exception as error:
            reason = f"the server failed: {type(error).__name__}"
            await live.stop(execution, StopCause(ExecutionState.CANCELLED, reason))
            raise

    def _check_env(self, caller: Caller, live: LiveSession, request: ExecutionRequest) -> None:
        """Check the environment variables of one run against the policies.

        The server's own rules for names do not apply, since code can set any variable.
        """
        if not request.env:
            return
        if normalize_language(live.record.language) != "python":
            raise InvalidRequest("'env' of one run is for Python kernels; give it to the session")
        for policy in caller.policies:
            check_env(policy, request.env)

    def _check_stored(self, limits: EffectiveLimits) -> None:
        """Refuse code whose output could not be stored: what is stored for the caller takes all of its share.

        Raises
        ------
        PolicyLimitReached
            If nothing more fits.
        """
        if limits.caller.bounds:
            self._store.set_shares(limits.stored_shares)
        for bound in limits.caller.bounds:
            check_stored(bound.policy, self._store.full_share_of(bound.principal))

    def _check_code(self, caller: Caller, request: ExecutionRequest) -> None:
        code_bytes, max_bytes = sum(map(utf8_size, request.sources)), self._settings.max_code_bytes
        if code_bytes > max_bytes:
            raise PayloadTooLarge(f"'code' may have at most {max_bytes} bytes")
        for policy in caller.policies:
            check_code(policy, code_bytes)

    async def find_earlier(self, session_id: str, owner: str, key: IdempotencyKey | None) -> ExecutionHandle | None:
        """Return the execution of an earlier request with the same key, if there was one.

        Parameters
        ----------
        session_id : str
            Empty for an execution in a fresh session.

        Raises
        ------
        IdempotencyKeyReused
            If the earlier request was another one.
        StoreUnavailable
            If the earlier request is just being recorded.
        """
        found = None if key is None else await self._executions.find(session_id, owner, key)
        return None if found is None else await self._handle_of(found)

    async def _handle_of(self, earlier: StoredExecution) -> ExecutionHandle:
        execution_id = earlier.execution.id
        if execution_id in self._registry.executions:
            return self._registry.executions[execution_id][1]
        log = await self._executions.log(execution_id)
        # The record was perhaps read before the execution ended.
        last = earlier if earlier.execution.state.finished else await self._executions.get(execution_id)
        if log is None or last is None or not last.execution.state.finished:
            # Its row is written, but the request that wrote it has not resumed and registered it yet.
            raise StoreUnavailable("an execution with this key is just being recorded", retry_after_seconds=1.0)
        return PastExecution(last.execution, log)

    async def list_ids(self, session_id: str, limit: int) -> Sequence[str]:
        """Return the ids of a session's executions, oldest first."""
        # Noted first: one that ends while the store is read is in the store as it was before.
        running = [execution.record.id for execution in self._registry.executions_of(session_id)]
        return list(dict.fromkeys([*await self._executions.list_ids(session_id, limit), *running]))

    async def get(self, caller: Caller, execution_id: str, wait_seconds: float = 0.0) -> Execution:
        """Return an execution as it is when it has ended or `wait_seconds` have passed, whichever is first."""
        _, live = self._registry.executions.get(execution_id, (None, None))
        if live is not None and caller.may_see(live.owner):
            return await live.wait(wait_seconds)
        stored = await self._executions.get(execution_id) if live is None else None
        if stored is None or not caller.may_see(stored.owner):
            self._registry.require_own(execution_id)
            raise ExecutionNotFound(f"no execution {execution_id!r}; list its session's executions to find its id")
        if not stored.execution.state.finished:
            self._registry.require_own(execution_id)  # several servers may share the store
        return stored.execution

    async def open_log(self, caller: Caller, execution_id: str) -> EventLog:
        """Return an execution's event log; see `ExecEngine.open_log`."""
        _, live = self._registry.executions.get(execution_id, (None, None))
        if live is not None and caller.may_see(live.owner):
            return live.log
        stored = await self._executions.summary(execution_id)
        if stored is None or not caller.may_see(stored.owner):
            self._registry.require_own(execution_id)
            raise ExecutionNotFound(f"no execution {execution_id!r}; list its session's executions to find its id")
        if not stored.execution.state.finished:
            self._registry.require_own(execution_id)  # its log is written elsewhere
        log = await self._executions.log(execution_id)
        if log is None:
            raise LogExpired("the event log of this execution is no longer kept")
        return log

    async def cancel(self, caller: Caller, execution_id: str) -> Execution:
        """Cancel a queued or running execution; return it, ended unless its kernel is hard to kill."""
        record = await self.get(caller, execution_id)
        session, execution = self._registry.executions.get(execution_id, (None, None))
        if session is None or execution is None:
            # It ended while the record was read, which may be from before the end.
            return record if record.state.finished else await self.get(caller, execution_id)
        self._audit.record("execution", "cancel_asked", caller.principal, execution_id, session_id=session.record.id)
        reason = f"cancelled by {caller.display_name or caller.principal}"
        await session.stop(execution, StopCause(ExecutionState.CANCELLED, reason))
        return await execution.wait(self._settings.interrupt_grace_seconds + _CANCEL_WAIT_SECONDS)

    async def answer_input(self, caller: Caller, execution_id: str, value: str) -> None:
        """Answer an execution's ``input()``; see `ExecEngine.answer_input`."""
        await self.get(caller, execution_id)
        session, execution = self._registry.executions.get(execution_id, (None, None))
        if session is None or execution is None or not session.answer_input(execution, value):
            raise NoInputRequested("the execution is not running")
        execution.note_input(wanted=False)


def _new_record(
    limits: EffectiveLimits, session: Session, request: ExecutionRequest, approval: Approval | None
) -> Execution:
    return Execution(
        id=new_id("exe", limits.settings.server_name),
        session_id=session.id,
        state=ExecutionState.QUEUED if approval is None else ExecutionState.AWAITING_APPROVAL,
        code=request.code,
        created_at=utc_timestamp(time.time()),
        language=request.language,
        metadata=request.metadata,
        timeout_seconds=limits.run_seconds(request.timeout_seconds),
        allow_input=request.allow_input,
        isolation=session.isolation,
        approval=approval,
    )


class OutputVerbs:
    """The spooled outputs of finished executions, for callers."""

    def __init__(self, executions: ExecutionStore, registry: SessionRegistry) -> None:
        self._executions = executions
        self._registry = registry

    async def open(self, caller: Caller, execution_id: str, name: str) -> FileReader:
        """Open an output that `truncated.spooled` names.

        Raises
        ------
        ExecutionNotFound, WrongServer, OutputNotFound, OutputExpired
        """
        stored = await self._executions.summary(execution_id)
        if stored is None or not caller.may_see(stored.owner):
            self._registry.require_own(execution_id)
            raise ExecutionNotFound(f"no execution {execution_id!r}; list its session's executions to find its id")
        output = _named(stored.execution, name)
        descriptor = await self._executions.open_spooled(stored.execution, output)
        if descriptor is None:
            raise OutputExpired(f"{name!r} is no longer kept as it was written")
        written_at = stored.execution.finished_at or ""
        info = FileInfo(output.name, output.size_bytes, written_at, output.mime_type, output.sha256)
        return LocalReader(descriptor, info, partial(asyncio.get_running_loop().run_in_executor, None))


def _named(execution: Execution, name: str) -> SpooledOutput:
    """Return the spooled output of this name; a name that the record does not have is never looked for on disk."""
    for output in execution.spooled:
        if output.name == name:
            return output
    if not execution.state.finished:
        raise OutputNotFound("outputs can be downloaded once the execution has ended")
    # A spool has up to a hundred files, too many for a message.
    known = ", ".join(output.name for output in execution.spooled[:10]) or "none; its record has all that is kept"
    raise OutputNotFound(f"the execution has no output {name!r} beyond its record; there are: {known}")
