"""Tasks extension: a call that runs long is answered by a task, which another client with the token can read.

The task is the execution, with its id, so it survives a client that is cut off. After a restart of the server its
record is still there.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, ElicitResult, RequestParams
from pydantic import Field

from ..engine.engine import ExecEngine
from ..errors import ExecError
from ..models import Execution
from ..server.gate import Access
from ..server.rights import CONTROL_EXECUTIONS, READ_EXECUTIONS
from .code_tools import cancel_in_background, make_run_result
from .mcp_handler import McpRequest
from .questions import Question, answer_question, can_ask, find_pending_question
from .task_records import TASKS, task_of
from .tool_call import has_extension

Context = ServerRequestContext[Any, McpRequest]


class TaskParams(RequestParams):
    """Parameters of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str = Field(alias="taskId", pattern=r"^[A-Za-z0-9_-]{1,64}$")


class UpdateParams(TaskParams):
    """Parameters of ``tasks/update``."""

    input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")


class Tasks:
    """Handlers of the extension's methods."""

    def __init__(self, engine: ExecEngine) -> None:
        self._engine = engine

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Return a task, with its result once it has ended."""
        record = await self._record(context, params.task_id, READ_EXECUTIONS)
        task = {"resultType": "complete", **task_of(record)}
        question = await self._question(context, record)
        if question is not None:
            task["status"] = "input_required"
            request = question.to_request().model_dump(by_alias=True, mode="json", exclude_none=True)
            task["inputRequests"] = {question.key: request}
        if task["status"] == "completed":
            task["result"] = make_run_result(record).model_dump(by_alias=True, mode="json", exclude_none=True)
        return task

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Stop a task's code; one that has ended stays as it is."""
        record = await self._record(context, params.task_id, CONTROL_EXECUTIONS)
        if not record.state.finished:
            cancel_in_background(self._engine, _caller(context), params.task_id)
        return {"resultType": "complete"}

    async def update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        """Deliver the answer to a task's question; others are ignored."""
        record = await self._record(context, params.task_id, CONTROL_EXECUTIONS)
        question = await self._question(context, record)
        if question is not None and question.key in params.input_responses:
            answer = ElicitResult.model_validate(params.input_responses[question.key])
            try:
                await answer_question(self._engine, _caller(context), record.id, question.kind, answer)
            except ExecError as error:
                raise MCPError(INVALID_PARAMS, error.message, {"code": error.code}) from None
        return {"resultType": "complete"}

    async def _question(self, context: Context, record: Execution) -> Question | None:
        if record.state.finished or not can_ask(context):
            return None
        return await find_pending_question(self._engine, _caller(context), record)

    async def _record(self, context: Context, task_id: str, access: Access) -> Execution:
        if not has_extension(context, TASKS):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
        assert context.request is not None
        try:
            await context.request.check(access)
            return await self._engine.get_execution(_caller(context), task_id)
        except ExecError as error:
            context.request.handler.record_if_denied(error)
            raise MCPError(INVALID_PARAMS, error.message, {"code": error.code}) from None


def _caller(context: Context) -> Any:
    assert context.request is not None
    return context.request.caller
