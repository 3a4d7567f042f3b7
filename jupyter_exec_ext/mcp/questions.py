"""Questions of running code to the client's user: ``input()``, and the approval of code.

A question is open in JupyterLab at the same time, and the first answer counts. Approval is asked for in the client only
if all policies that require it have `approve_in_client`: a client could answer without its user, with the token alone.
A password is never asked for, since clients show what is typed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from ..auth.approval_patterns import NEVER
from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..engine.executions.live_execution import follow
from ..engine.ports import EventLog, LogEntry
from ..errors import InvalidRequest, NoInputRequested, NotAwaitingApproval
from ..models import ApprovalAnswer, Execution, ExecutionState, InputRequestEvent, StateEvent

APPROVAL, INPUT = "approval", "input"
_MAX_SHOWN_CHARACTERS = 2000
_ENTRIES_PER_READ = 256
_IN_CLIENT = "declined in the MCP client"


@dataclass(frozen=True)
class Question:
    """A question that an execution waits with.

    Parameters
    ----------
    kind : str
        `APPROVAL` or `INPUT`.
    seq : int
        Number of the event that asks it.
    """

    kind: str
    seq: int
    message: str

    @property
    def key(self) -> str:
        """Name of the question, unique in its execution."""
        return f"{self.kind}-{self.seq}"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer, as forms have it."""
        if self.kind == INPUT:
            return {
                "type": "object",
                "properties": {"value": {"type": "string", "title": "Answer"}},
                "required": ["value"],
            }
        return {
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": "Run this code"},
                "reason": {"type": "string", "title": "Remark for the agent"},
            },
            "required": ["approve"],
        }

    def to_request(self) -> ElicitRequest:
        """Return the question as the protocol has it."""
        return ElicitRequest(params=ElicitRequestFormParams(message=self.message, requested_schema=self.schema))


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client shows forms to its user."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def can_approve(caller: Caller) -> bool:
    """Return whether a caller's code can be approved in its client."""
    required = [policy for policy in caller.policies if policy.approval.mode != NEVER]
    return all(policy.approve_in_client for policy in required)


async def wait_for_question(caller: Caller, record: Execution, log: EventLog, after: int) -> Question | None:
    """Return the first question after an event; None if the execution ends without one."""
    async for batch in follow(log, after):
        for entry in batch:
            question = _question_of(entry, caller, record)
            if question is not None:
                return question
    return None


def _question_of(entry: LogEntry, caller: Caller, record: Execution) -> Question | None:
    if entry.type == InputRequestEvent.type:
        asked = json.loads(entry.line)
        prompt = str(asked["prompt"])[:_MAX_SHOWN_CHARACTERS] or "The code asks for input."
        return None if asked["password"] else Question(INPUT, entry.seq, prompt)
    is_approval = entry.type == StateEvent.type and json.loads(entry.line)["state"] == ExecutionState.AWAITING_APPROVAL
    if not is_approval or not can_approve(caller):
        return None
    why = record.approval.why if record.approval is not None else "the policy requires it"
    code = record.code[:_MAX_SHOWN_CHARACTERS]
    cut = "\n(cut; JupyterLab shows all of it)" if len(record.code) > len(code) else ""
    return Question(APPROVAL, entry.seq, f"This code needs your approval: {why}.\n\n{code}{cut}")


async def find_pending_question(engine: ExecEngine, caller: Caller, record: Execution) -> Question | None:
    """Return the question that an execution waits with now; None if there is none for the client."""
    session = await engine.get_session(caller, record.session_id)
    if record.state is ExecutionState.RUNNING and session.waits_for != INPUT:
        return None
    log = await engine.open_log(caller, record.id)
    found, after = None, 0
    while batch := await log.read(after, _ENTRIES_PER_READ):
        after = batch[-1].seq
        for entry in batch:
            found = _question_of(entry, caller, record) or found
    return found


async def answer_question(
    engine: ExecEngine, caller: Caller, execution_id: str, kind: str, answer: ElicitResult
) -> None:
    """Deliver an answer; one that comes too late, or leaves the question open, changes nothing.

    Raises
    ------
    InvalidRequest
        If it is not as the question's schema has it.
    """
    content: Mapping[str, Any] = answer.content or {}
    if kind == INPUT and answer.action == "accept":
        value = content.get("value")
        if not isinstance(value, str):
            raise InvalidRequest("'value' must be a string")
        with suppress(NoInputRequested):  # somebody was first
            await engine.answer_input(caller, execution_id, value)
    elif kind == INPUT and answer.action == "decline":
        await engine.cancel(caller, execution_id)
    elif kind == APPROVAL and answer.action != "cancel" and can_approve(caller):
        approve = answer.action == "accept" and content.get("approve") is True
        reason = content.get("reason")
        remark = reason[:_MAX_SHOWN_CHARACTERS] if isinstance(reason, str) else "" if approve else _IN_CLIENT
        with suppress(NotAwaitingApproval):  # somebody was first
            await engine.approvals.decide(caller, execution_id, ApprovalAnswer(approve, reason=remark))
