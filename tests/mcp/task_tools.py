"""Extension of Jupyter Server that adds the conformance suite's tools for tasks to the MCP endpoint, as code to run.

What the suite finds then is true of the endpoint's own tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from jupyter_exec_ext.mcp import code_tools, questions, sdk_server, tasks
from jupyter_exec_ext.mcp.tools import Tools

#: Much shorter than in use, so that a tool that takes a second is a task.
_TASK_AFTER_SECONDS = 0.3
_CODE: dict[str, Callable[[dict[str, Any]], str]] = {
    "slow_compute": lambda given: f"import time\ntime.sleep({float(given.get('seconds', 1))})\nprint('computed')",
    "failing_job": lambda given: "import time\ntime.sleep(1)\nraise ValueError('failed')",
    "confirm_delete": lambda given: "import time\ntime.sleep(1)\nprint(input('Delete it?'))",
    "test_tool_with_task": lambda given: "import time\nname = input('Name?')\ntime.sleep(1)\nprint(name)",
}


class ToolsWithTasks(Tools):
    """The tools of the endpoint, and those of the suite."""

    async def list(self, context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        """List them all."""
        listed = await super().list(context, params)
        names = ["greet", *_CODE]
        more = [Tool(name=name, description=name, input_schema={"type": "object"}) for name in names]
        return ListToolsResult(tools=[*listed.tools, *more])

    async def call(self, context: Any, params: CallToolRequestParams) -> Any:
        """Run the code that stands for a tool."""
        given = params.arguments or {}
        if params.name == "greet":
            return CallToolResult(content=[TextContent(text=f"Hello, {given.get('name')}!")])
        if params.name in _CODE:
            code = {"code": _CODE[params.name](given)}
            params = params.model_copy(update={"name": "execute_code", "arguments": code})
        return await super().call(context, params)


async def _answer(engine: Any, caller: Any, execution_id: str, kind: str, answer: ElicitResult) -> None:
    """Deliver an answer of the suite, whose fields have names of its own."""
    (value,) = (answer.content or {}).values()
    fitting = ElicitResult(action=answer.action, content={"value": str(value)})
    await questions.answer_question(engine, caller, execution_id, kind, fitting)


def _load_jupyter_server_extension(app: Any) -> None:
    for module, name, value in (
        (sdk_server, "Tools", ToolsWithTasks),
        (code_tools, "TASK_AFTER_SECONDS", _TASK_AFTER_SECONDS),
        (code_tools, "answer_question", _answer),
        (tasks, "answer_question", _answer),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)
