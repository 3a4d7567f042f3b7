"""Approval service: executions that wait for a person's approval, and the person's decisions.

The gate is here, before the queue, so that it holds for every client. The patterns that a policy looks for in code are
advice only: see `auth.approval_patterns`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...auth.approval_patterns import MAX_FINDINGS, find_reasons
from ...auth.caller import Caller
from ...errors import ExecutionNotFound, InvalidRequest, NotAwaitingApproval, PayloadTooLarge
from ...models import Approval, ApprovalAnswer, ApprovalFinding, Decision, Execution, ExecutionState
from ...protocol.records_json import seconds_of, utc_timestamp
from ...protocol.strict_json import utf8_size
from ..concurrency import BackgroundTasks
from ..executions.lifecycle import StopCause
from ..executions.live_execution import LiveExecution
from ..ports import AuditTrail, ExecutionStore
from ..settings import EngineSettings
from .live_session import LiveSession
from .session_registry import SessionRegistry

_CHANGED = "the execution does not wait for approval: somebody has decided about it, it needed none, or it has ended"
_MAX_APPROVED_KINDS = 200  # of one session


def needed_approval(
    caller: Caller, code: str, source: str, *, is_first_run: bool, approved_kinds: Collection[str]
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
        executions: ExecutionStore,
        registry: SessionRegistry,
        audit: AuditTrail,
        background: BackgroundTasks,
    ) -> None:
        self._settings = settings
        self._executions = executions
        self._registry = registry
        self._audit = audit
        self._background = background
        self._being_decided: set[str] = set()

    def request(self, caller: Caller, session: LiveSession, execution: LiveExecution) -> None:
        """Record the request for approval, and start the time that the policy allows for it."""
        approval = execution.record.approval
        assert approval is not None
        self._record("requested", caller.principal, execution.record, rule=approval.why)
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
        # A second answer must not pass while the first is being stored.
        self._being_decided.add(execution_id)
        try:
            # The approval is on record before the code runs.
            await self._executions.amend(replace(execution.record, code=code, approval=approval))
            # It was cancelled, or its time ran out, while the approval was being stored.
            if not execution.awaits_approval:
                raise NotAwaitingApproval(_CHANGED)
            session.approve(execution, approval, code)
            all_kinds = dict.fromkeys((*session.record.approved_kinds, *approval.approved_kinds))
            # The oldest go first: each change of the session is sent with all of them.
            session.note(approved_kinds=tuple(all_kinds)[-_MAX_APPROVED_KINDS:])
            decision = {"reason": answer.reason, "by": approval.decided_by}
            kinds = {"approved_kinds": list(approval.approved_kinds)} if approval.approved_kinds else {}
            self._record(str(approval.decision), caller.principal, execution.record, **decision, **kinds)
        finally:
            self._being_decided.discard(execution_id)
        return execution.record

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


def _approved_kinds(approval: Approval, answer: ApprovalAnswer, *, edited: bool) -> tuple[str, ...]:
    """Return the kinds of code that an answer approves for the whole session."""
    kinds = tuple(dict.fromkeys(finding.kind for finding in approval.findings if finding.kind))
    if answer.for_session and not kinds:
        raise InvalidRequest(f"'for_session' needs a kind of code, and this waits because {approval.why}; leave it out")
    # An import that a person has seen and approved is not new any more. Edited code may not have it.
    news = tuple(kind for kind in kinds if kind.startswith("new ")) if answer.approve and not edited else ()
    return kinds if answer.for_session else news
