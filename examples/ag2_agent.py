"""ag2 1.x: an agent with a tool that runs code. A script stands for the model, so no key is needed."""

import asyncio
import json
import tempfile
from pathlib import Path

from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig
from ag2.tools.code import SandboxCodeTool

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.ag2 import JupyterCodeEnvironment

FIBONACCI = """\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a"""


def run(code):
    """Return the event with which a model has code run."""
    return ToolCallEvent("run_code", arguments=json.dumps({"code": code, "language": "python"}))


async def main():
    """Ask the agent, and show what it did."""
    script = TestConfig(run(FIBONACCI), run("fibonacci(14)"), "The 14th Fibonacci number is 377.")
    with LocalJupyterServer(log_file=str(Path(tempfile.mkdtemp()) / "gateway.log")) as server:
        async with JupyterCodeEnvironment(server) as environment:
            agent = Agent("coder", config=script, tools=[SandboxCodeTool(environment)])
            reply = await agent.ask("What is the 14th Fibonacci number?")
            for event in await reply.history.get_events():
                print(event)
            print(reply.body)


asyncio.run(main())
