"""An agent of Microsoft Agent Framework that runs code, with a scripted model in the place of a real one.

pip install 'jupyter-exec-ext[agent-framework]'
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.agent_framework import JupyterCodeActProvider


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Runs two pieces of code, and then says what came of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.script = iter(["squares = [n * n for n in range(1, 21)]", "sum(squares)"])

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> ChatResponse[Any]:
        code = next(self.script, None)
        if code is not None:
            answer = Content.from_function_call(code, "execute_code", arguments=json.dumps({"code": code}))
        else:
            answer = Content.from_text(f"The 20 numbers add up to {messages[-1].contents[0].result}.")
        return ChatResponse(messages=[Message("assistant", [answer])])


async def main() -> None:
    """Ask the agent one question."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        async with JupyterCodeActProvider(server) as jupyter:
            agent = Agent(ScriptedClient(), context_providers=[jupyter])
            print(await agent.run("What is the sum of the first 20 squares?"))


if __name__ == "__main__":
    asyncio.run(main())
