"""A team of AutoGen's that runs code, with a scripted model in the place of a real one.

pip install 'jupyter-exec-ext[autogen]' autogen-agentchat autogen-ext
"""

import asyncio
import tempfile

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.autogen import DockerJupyterCodeExecutor

SCRIPT = """\
```python
squares = [n * n for n in range(1, 21)]
```
```python
print(f"The 20 numbers add up to {sum(squares)}.")
```"""


def approve(request: ApprovalRequest) -> ApprovalResponse:
    """Let the code of this example run; a real application asks a person."""
    return ApprovalResponse(approved=True, reason="it is our own")


async def main() -> None:
    """Let one agent write code and the other run it."""
    with tempfile.TemporaryDirectory() as logs, LocalJupyterServer(log_file=f"{logs}/gateway.log") as server:
        async with DockerJupyterCodeExecutor(server) as executor:
            coder = AssistantAgent("coder", ReplayChatCompletionClient([SCRIPT]))
            terminal = CodeExecutorAgent("terminal", executor, approval_func=approve)
            team = RoundRobinGroupChat([coder, terminal], termination_condition=TextMessageTermination("terminal"))
            result = await team.run(task="What is the sum of the first 20 squares?")
            last = result.messages[-1]
            assert isinstance(last, TextMessage)
            print(last.content, end="")


if __name__ == "__main__":
    asyncio.run(main())
