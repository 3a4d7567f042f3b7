"""Executions that wait for a person, and what the person says.

The gate is here, before the queue, so that it holds for every client. What a policy looks for in code is advice: see
`auth.approval`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace

from ...auth.approval_patterns import why_ask
from ...auth.caller import Caller
from ...errors import ExecutionNotFound, NotAwaitingApproval, PayloadTooLarge
from ...models import Approval, ApprovalAnswer, Decision, Execution, ExecutionState
from ...protocol.records_json import seconds_of, utc_timestamp
from ...protocol.strict_json import utf8_size
from ..executions.live_execution import LiveExecution
from ..executions.verdict import StopCause
from ..ports import AuditTrail, ExecutionStore
from ..sessions.live_session import LiveSession

_CHANGED = "the execution does not wait for approval: somebody has decided about it, it needed none, or it has ended"


def needed_approval(caller: Caller, code: str, source: str, *, first_run: bool) -> Approval | None:
    """Return the approval that a caller's policies want for code, None for none.

    Parameters
    ----------
    source : str
        What the kernel is sent for it: code in another language comes to it as a magic.
    """
    for policy in caller.policies:
        for text in dict.fromkeys((code, source)):
            why = why_ask(policy.approval, text, first_run=first_run)
            if why is not None:
                return Approval(why, utc_timestamp(time.time() + policy.approval.timeout_seconds))
    return None


class ApprovalVerbs:
    """What the owner may do about executions that wait for approval.

    Parameters
    ----------
    running : mapping
        The executions that have not ended, by id, each with its session.
    """

    def __init__(
        self,
        executions: ExecutionStore,
        running: Mapping[str, tuple[LiveSession, LiveExecution]],
        audit: AuditTrail,
        max_code_bytes: int,
    ) -> None:
        self._executions = executions
        self._running = running
        self._audit = audit
        self._max_code_bytes = max_code_bytes
        self._being_decided: set[str] = set()

    def await_answer(self, caller: Caller, session: LiveSession, execution: LiveExecution) -> None:
        """Give a person the time that the policy says."""
        approval = execution.record.approval
        assert approval is not None
        self._record("requested", caller.principal, execution.record, rule=approval.why)
        seconds = max(0.0, seconds_of(approval.expires_at) - time.time())

        def time_is_up() -> StopCause:
            decided_at = utc_timestamp(time.time())
            execution.note_decision(replace(approval, decision=Decision.TIMEOUT, decided_at=decided_at))
            self._record("expired", "", execution.record)
            return StopCause(ExecutionState.TIMEOUT, f"nobody has approved it within {seconds:.0f} s")

        session.patience.limit(execution, seconds, time_is_up)

    def list(self, caller: Caller) -> list[Execution]:
        """Return the executions that wait for approval, the oldest first."""
        waiting = [execution for _, execution in self._running.values() if execution.awaits_approval]
        return [execution.record for execution in waiting if caller.may_see(execution.owner)]

    async def decide(self, caller: Caller, execution_id: str, answer: ApprovalAnswer) -> Execution:
        """Approve an execution, as it was sent or with other code, or reject it.

        Raises
        ------
        ExecutionNotFound, NotAwaitingApproval, PayloadTooLarge, StorageFull, StoreUnavailable
        """
        session, execution = await self._waiting(caller, execution_id)
        if answer.code is not None and utf8_size(answer.code) > self._max_code_bytes:
            raise PayloadTooLarge(f"'code' may have at most {self._max_code_bytes} bytes")
        approval = _decided(execution.record, answer, caller.display_name or caller.principal)
        if not answer.approve:
            self._record("rejected", caller.principal, execution.record, reason=answer.reason, by=approval.decided_by)
            await session.reject(execution, approval, f"rejected by {approval.decided_by}" + _because(answer.reason))
            return execution.record
        code = execution.record.code if answer.code is None else answer.code
        self._being_decided.add(execution_id)
        try:
            # What is approved is on record before it runs.
            await self._executions.amend(replace(execution.record, code=code, approval=approval))
            if not execution.awaits_approval:
                raise NotAwaitingApproval(_CHANGED)
            session.approve(execution, approval, code)
            told = {"reason": answer.reason, "by": approval.decided_by}
            self._record(str(approval.decision), caller.principal, execution.record, **told)
        finally:
            self._being_decided.discard(execution_id)
        return execution.record

    def _record(self, action: str, principal: str, execution: Execution, **data: str) -> None:
        digest = hashlib.sha256(execution.code.encode()).hexdigest()
        self._audit.record(
            "approval", action, principal, execution.id, session_id=execution.session_id, code_sha256=digest, **data
        )

    async def _waiting(self, caller: Caller, execution_id: str) -> tuple[LiveSession, LiveExecution]:
        session, execution = self._running.get(execution_id, (None, None))
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
    decision = Decision.EDITED if edited else Decision.APPROVED
    return replace(
        execution.approval,
        decision=decision if answer.approve else Decision.REJECTED,
        decided_by=by,
        decided_at=utc_timestamp(time.time()),
        reason=answer.reason,
        original_code=execution.code if edited else None,
    )


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
