"""An agent of Pydantic AI that runs code, with a scripted model in the place of a real one.

pip install 'jupyter-exec-ext[pydantic-ai]'
"""

import asyncio
import tempfile

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.pydantic_ai import JupyterToolset

SCRIPT = iter(["squares = [n * n for n in range(1, 21)]", "sum(squares)"])


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Run the two pieces of code, and then say what came of the second."""
    code = next(SCRIPT, None)
    if code is not None:
        return ModelResponse(parts=[ToolCallPart("execute_code", {"code": code})])
    (result,) = (part for part in messages[-1].parts if isinstance(part, ToolReturnPart))
    return ModelResponse(parts=[TextPart(f"The 20 numbers add up to {result.content}.")])


async def main() -> None:
    """Ask the agent one question."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        agent = Agent(FunctionModel(model), toolsets=[JupyterToolset(server)])
        result = await agent.run("What is the sum of the first 20 squares?")
        print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
