"""LangChain: an agent with a tool that runs code. A script stands for the model, so no key is needed."""

import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.langchain import JupyterCodeTool

FIBONACCI = """\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a"""


class ScriptedModel(GenericFakeChatModel):
    """Answers with the messages that it was given, whatever tools there are."""

    def bind_tools(self, tools, **kwargs):
        """Take the tools that the script knows of."""
        return self


def run(code, call_id):
    """Return a message with which a model has code run."""
    return AIMessage("", tool_calls=[{"name": "execute_code", "args": {"code": code}, "id": call_id}])


script = [
    run(FIBONACCI, "1"),
    run("fibonacci(14)", "2"),
    AIMessage("The 14th Fibonacci number is 377."),
]

with (
    LocalJupyterServer(log_file=str(Path(tempfile.mkdtemp()) / "gateway.log")) as server,
    JupyterCodeTool(server) as tool,
):
    agent = create_agent(ScriptedModel(messages=iter(script)), [tool])
    result = agent.invoke({"messages": [("user", "What is the 14th Fibonacci number?")]})
    for message in result["messages"]:
        message.pretty_print()
