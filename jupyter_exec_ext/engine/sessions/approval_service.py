"""Approval service: executions that wait for a person's approval, and the person's decisions.

The gate is here, before the queue, so that it holds for every client. The patterns that a policy looks for in code are
advice only: see `auth.approval_patterns`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...auth.approval_patterns import MAX_FINDINGS, find_reasons
from ...auth.caller import Caller
from ...errors import (
    ExecutionNotFound,
    InvalidRequest,
    NotAwaitingApproval,
    PayloadTooLarge,
    StorageFull,
    StoreUnavailable,
)
from ...models import Approval, ApprovalAnswer, ApprovalFinding, Decision, Execution, ExecutionState, Session
from ...protocol.records_json import seconds_of, utc_timestamp
from ...protocol.strict_json import utf8_size
from ..concurrency import BackgroundTasks
from ..executions.lifecycle import StopCause
from ..executions.live_execution import LiveExecution
from ..ports import Store
from ..settings import EngineSettings
from .live_session import LiveSession
from .session_registry import SessionRegistry
from .session_service import SessionService

_CHANGED = "the execution does not wait for approval: somebody has decided about it, it needed none, or it has ended"
_MAX_APPROVED_KINDS = 200  # of one session

#: Returns the approval that code still needs once some kinds of findings are approved; None for none.
NeededApproval = Callable[[Collection[str]], Approval | None]


def needed_approval(
    caller: Caller, code: str, source: str, is_first_run: bool, approved_kinds: Collection[str]
) -> Approval | None:
    """Return the approval that a caller's policies require for code, None for none.

    Parameters
    ----------
    source : str
        The code as the kernel gets it: code in another language is wrapped in a magic.
    approved_kinds : collection of str
        Kinds of findings that a person has approved for the whole session.
    """
    found: dict[ApprovalFinding, None] = {}
    seconds = 0.0
    for policy in caller.policies:
        for text in dict.fromkeys((code, source)):
            findings = find_reasons(policy.approval, text, first_run=is_first_run, approved=approved_kinds)
            if findings and not found:
                seconds = policy.approval.timeout_seconds
            if text is not code:
                # The person sees the code, which does not have the lines of the source.
                known = {each.why for each in found}
                findings = tuple(replace(each, line=None) for each in findings if each.why not in known)
            found |= dict.fromkeys(findings)
    if not found:
        return None
    shown = tuple(found)[:MAX_FINDINGS]
    return Approval(shown[0].why, utc_timestamp(time.time() + seconds), findings=shown)


class ApprovalService:
    """Approvals of one engine's executions."""

    def __init__(
        self,
        settings: EngineSettings,
        store: Store,
        sessions: SessionService,
        registry: SessionRegistry,
        background: BackgroundTasks,
    ) -> None:
        self._settings = settings
        self._executions = store.executions
        self._sessions = sessions
        self._registry = registry
        self._audit = store.audit
        self._background = background
        self._being_decided: set[str] = set()
        self._needed: dict[str, NeededApproval] = {}

    def request(self, caller: Caller, session: LiveSession, execution: LiveExecution, needed: NeededApproval) -> None:
        """Record the request for approval, and start the time that the policy allows for it.

        Parameters
        ----------
        needed : callable
            Tells later whether the kinds that were approved meanwhile cover the code.
        """
        approval, execution_id = execution.record.approval, execution.record.id
        assert approval is not None
        self._record("requested", caller.principal, execution.record, rule=approval.why)
        self._needed[execution_id] = needed
        execution.on_end(lambda: self._needed.pop(execution_id, None))
        self._background.start(self._expire(session, execution, approval))

    async def _expire(self, session: LiveSession, execution: LiveExecution, approval: Approval) -> None:
        seconds = max(0.0, seconds_of(approval.expires_at) - time.time())
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(execution.decided(), seconds)
        # `finishing`: it was cancelled or rejected, and the end is just being written.
        if execution.awaits_approval and not execution.finishing:
            expired = replace(approval, decision=Decision.TIMEOUT, decided_at=utc_timestamp(time.time()))
            cause = StopCause(ExecutionState.TIMEOUT, f"nobody has approved it within {seconds:.0f} s")
            self._record("expired", "", execution.record)
            await session.reject(execution, expired, cause)

    def list(self, caller: Caller) -> list[Execution]:
        """Return the executions that wait for approval, the oldest first."""
        waiting = [execution for _, execution in self._registry.executions.values() if execution.awaits_approval]
        return [execution.record for execution in waiting if caller.may_see(execution.owner)]

    async def decide(self, caller: Caller, execution_id: str, answer: ApprovalAnswer) -> Execution:
        """Approve an execution, as it was sent or with other code, or reject it.

        Raises
        ------
        ExecutionNotFound
            If there is none that the caller may see.
        NotAwaitingApproval
            If it was decided meanwhile, or has ended.
        InvalidRequest
            If the approval is to cover later code, and there is no kind that later code could share.
        PayloadTooLarge
            If the other code exceeds `max_code_bytes`.
        StorageFull, StoreUnavailable
            If the decision cannot be recorded; the execution still waits.
        """
        session, execution = await self._find_waiting(caller, execution_id)
        max_bytes = self._settings.max_code_bytes
        if answer.code is not None and utf8_size(answer.code) > max_bytes:
            raise PayloadTooLarge(f"'code' may have at most {max_bytes} bytes")
        approval = _decided(execution.record, answer, caller.display_name or caller.principal)
        if not answer.approve:
            self._record("rejected", caller.principal, execution.record, reason=answer.reason, by=approval.decided_by)
            because = f": {answer.reason}" if answer.reason else ""
            cause = StopCause(ExecutionState.REJECTED, f"rejected by {approval.decided_by}{because}")
            await session.reject(execution, approval, cause)
            return execution.record
        code = execution.record.code if answer.code is None else answer.code
        await self._approve(caller, session, execution, approval, code)
        if approval.approved_kinds:
            all_kinds = dict.fromkeys((*session.record.approved_kinds, *approval.approved_kinds))
            # The oldest go first: each change of the session is sent with all of them.
            session.note(approved_kinds=tuple(all_kinds)[-_MAX_APPROVED_KINDS:])
            await self._release_covered(caller, session, approval, covered_by=execution_id)
        return execution.record

    async def _approve(
        self, caller: Caller, session: LiveSession, execution: LiveExecution, approval: Approval, code: str, **more: Any
    ) -> None:
        """Record an approval, and let the code run; `more` is for the audit trail."""
        execution_id = execution.record.id
        # A second answer must not pass while the first is being stored.
        self._being_decided.add(execution_id)
        try:
            # The approval is on record before the code runs.
            await self._executions.amend(replace(execution.record, code=code, approval=approval))
            # It was cancelled, or its time ran out, while the approval was being stored.
            if not execution.awaits_approval:
                raise NotAwaitingApproval(_CHANGED)
            session.approve(execution, approval, code)
            if approval.approved_kinds:
                more["approved_kinds"] = list(approval.approved_kinds)
            by = {"reason": approval.reason, "by": approval.decided_by}
            self._record(str(approval.decision), caller.principal, execution.record, **by, **more)
        finally:
            self._being_decided.discard(execution_id)

    async def _release_covered(
        self, caller: Caller, session: LiveSession, approval: Approval, *, covered_by: str
    ) -> None:
        """Approve the code that waits in a session if the session's approved kinds are all that it needs."""
        for execution in self._registry.executions_of(session.record.id):
            # Asked anew for each: the person may withdraw a kind meanwhile.
            needed = self._needed.get(execution.record.id)
            if (
                needed is not None
                and execution.awaits_approval
                and execution.record.id not in self._being_decided
                and needed(session.record.approved_kinds) is None
            ):
                released = _released(execution.record, approval)
                try:
                    code = execution.record.code
                    await self._approve(caller, session, execution, released, code, covered_by=covered_by)
                except (NotAwaitingApproval, StorageFull, StoreUnavailable) as error:
                    # It has ended meanwhile, or waits on for a decision of its own. The person's decision stands.
                    self._settings.log.warning("execution %s was not released: %s", execution.record.id, error.message)

    async def withdraw(self, caller: Caller, session_id: str, kind: str | None = None) -> Session:
        """Ask again about a kind of code that was approved for a session, or about all kinds.

        Code that runs or is in the queue already is not stopped. A kind that is not approved is no error.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session that the caller may see.
        """
        session = await self._sessions.get_live(caller, session_id)
        before = session.record.approved_kinds
        kept = tuple(each for each in before if kind is not None and each != kind)
        if kept != tuple(before):
            session.note(approved_kinds=kept)
            withdrawn = [each for each in before if each not in kept]
            by = caller.display_name or caller.principal
            self._audit.record("approval", "withdrawn", caller.principal, session_id, approved_kinds=withdrawn, by=by)
        return session.record

    def _record(self, action: str, principal: str, execution: Execution, **data: Any) -> None:
        digest = hashlib.sha256(execution.code.encode("utf-8", "surrogatepass")).hexdigest()
        self._audit.record(
            "approval", action, principal, execution.id, session_id=execution.session_id, code_sha256=digest, **data
        )

    async def _find_waiting(self, caller: Caller, execution_id: str) -> tuple[LiveSession, LiveExecution]:
        session, execution = self._registry.executions.get(execution_id, (None, None))
        if session is None or execution is None:
            ended = await self._executions.summary(execution_id)
            if ended is not None and caller.may_see(ended.owner):
                raise NotAwaitingApproval(_CHANGED)
        if session is None or execution is None or not caller.may_see(execution.owner):
            self._registry.require_own(execution_id)
            raise ExecutionNotFound(f"no execution {execution_id!r}")
        if not execution.awaits_approval or execution_id in self._being_decided:
            raise NotAwaitingApproval(_CHANGED)
        return session, execution


def _decided(execution: Execution, answer: ApprovalAnswer, by: str) -> Approval:
    assert execution.approval is not None
    edited = answer.code is not None and answer.code != execution.code
    kinds = _approved_kinds(execution.approval, answer, edited=edited)
    decision = Decision.EDITED if edited else Decision.APPROVED
    return replace(
        execution.approval,
        decision=decision if answer.approve else Decision.REJECTED,
        decided_by=by,
        decided_at=utc_timestamp(time.time()),
        reason=answer.reason,
        original_code=execution.code if edited else None,
        approved_kinds=kinds,
    )


def _released(execution: Execution, decided: Approval) -> Approval:
    """Return the approval of code by a decision about other code, which covers it."""
    assert execution.approval is not None
    by, at = decided.decided_by, decided.decided_at
    return replace(execution.approval, decision=Decision.APPROVED, decided_by=by, decided_at=at)


def _approved_kinds(approval: Approval, answer: ApprovalAnswer, *, edited: bool) -> tuple[str, ...]:
    """Return the kinds of code that an answer approves for the whole session."""
    kinds = tuple(dict.fromkeys(finding.kind for finding in approval.findings if finding.kind))
    if answer.for_session and not kinds:
        raise InvalidRequest(f"'for_session' needs a kind of code, and this waits because {approval.why}; leave it out")
    # An import that a person has seen and approved is not new any more. Edited code may not have it.
    news = tuple(kind for kind in kinds if kind.startswith("new ")) if answer.approve and not edited else ()
    return kinds if answer.for_session else news
