"""Approvals over HTTP."""

from __future__ import annotations

from tornado import web

from ..protocol.records_json import to_json
from ..protocol.request_parsing import approval_answer_from_json
from .base_handler import ExecHandler


class ApprovalsHandler(ExecHandler):
    """``/approvals``"""

    @web.authenticated
    async def get(self) -> None:
        """List the executions that wait for approval, with all of their code."""
        waiting = [to_json(execution) for execution in self.engine.approvals.list(self.caller)]
        await self.answer_apart({"executions": waiting})


class ApprovalHandler(ExecHandler):
    """``/approvals/{eid}``"""

    @web.authenticated
    async def post(self, execution_id: str) -> None:
        """Approve an execution, as it was sent or with other code, or reject it."""
        answer = approval_answer_from_json(self.json_body())
        self.answer(to_json(await self.engine.approvals.decide(self.caller, execution_id, answer)))
