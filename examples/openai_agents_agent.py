"""An agent of the OpenAI Agents SDK that runs code, with a scripted model in the place of a real one.

pip install 'jupyter-exec-ext[openai-agents]'
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.openai_agents import CodeSession, execute_code_tool


class ScriptedModel(Model):
    """Runs two pieces of code, and then says what came of the second."""

    def __init__(self) -> None:
        self.script = iter(["squares = [n * n for n in range(1, 21)]", "sum(squares)"])

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> ModelResponse:  # noqa: A002
        """Answer with the next call of the tool, or with the result."""
        code = next(self.script, None)
        if code is not None:
            call = ResponseFunctionToolCall(
                arguments=json.dumps({"code": code}), call_id=code, name="execute_code", type="function_call"
            )
            return ModelResponse([call], Usage(), None)
        result = input[-1]["output"][0]["text"]
        text = ResponseOutputText(annotations=[], text=f"The 20 numbers add up to {result}.", type="output_text")
        message = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse([message], Usage(), None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Take no part in this example."""
        raise NotImplementedError


async def main() -> None:
    """Ask the agent one question."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        async with CodeSession(server) as session:
            agent = Agent(name="Analyst", model=ScriptedModel(), tools=[execute_code_tool(session)])
            offline = RunConfig(tracing_disabled=True)
            result = await Runner.run(agent, "What is the sum of the first 20 squares?", run_config=offline)
            print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
