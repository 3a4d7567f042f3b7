"""OpenAI Agents SDK: the function tool `execute_code`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from agents import FunctionTool, RunContextWrapper, default_tool_error_function, function_tool
from agents.tool import FunctionToolCustomDataContext, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from ..errors import ExecError
from ..models import Content, Execution, ImageContent
from ._code_session import CodeSession
from ._tool_text import TOOL_DESCRIPTION, TOOL_NAME

__all__ = ["CodeSession", "execute_code_tool"]

NeedsApproval = bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]


def execute_code_tool(session: CodeSession, *, needs_approval: NeedsApproval = False) -> FunctionTool:
    """Return a tool for ``Agent(tools=[…])`` that runs code in a session.

    The model gets text and pictures. The application finds the whole execution, as JSON-native data, as ``execution``
    in the ``custom_data`` of the tool's output item. Cancelling a run stops its code on the server.

    Parameters
    ----------
    session : CodeSession
        The session of one conversation; variables are kept until it is closed.
    needs_approval : bool or callable
        Whether a call needs approval, which interrupts the run; as for ``function_tool``.
    """
    finished: dict[str, Execution] = {}  # from the call until the SDK asks for its data

    async def execute_code(context: ToolContext[Any], code: str) -> list[ToolOutputText | ToolOutputImage]:
        outcome = await session.run(code)
        if isinstance(outcome, Execution):
            finished[context.tool_call_id] = outcome
        return [_tool_output(part) for part in outcome.to_content()]

    def data(context: FunctionToolCustomDataContext) -> dict[str, Any] | None:
        execution = finished.pop(context.tool_context.tool_call_id, None)
        return None if execution is None else {"execution": asdict(execution)}  # the SDK requires JSON-compatible data

    return function_tool(
        execute_code,
        name_override=TOOL_NAME,
        description_override=TOOL_DESCRIPTION,
        needs_approval=needs_approval,
        failure_error_function=_failure,
        custom_data_extractor=data,
    )


def _tool_output(part: Content) -> ToolOutputText | ToolOutputImage:
    if isinstance(part, ImageContent):
        return ToolOutputImage(image_url=part.data_url)
    return ToolOutputText(text=part.text)


def _failure(context: RunContextWrapper[Any], error: Exception) -> str:
    """Raise an error of the server, which ends the run; return any other to the model."""
    if isinstance(error, ExecError):
        raise error
    message: str = default_tool_error_function(context, error)
    return message
