"""smolagents: a CodeAgent whose code runs in a kernel. A script stands for the model, so no key is needed."""

import tempfile
from pathlib import Path

from smolagents import ChatMessage, CodeAgent, Model, tool
from smolagents.models import MessageRole

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.smolagents import JupyterPythonExecutor

STEPS = [
    """\
Thought: I will define a function first.
<code>
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
</code>""",
    """\
Thought: Now I can use it, and the tool.
<code>
final_answer(in_words(number, fibonacci(number)))
</code>""",
]


class ScriptedModel(Model):
    """Answers with one step after the other."""

    def __init__(self):
        super().__init__(model_id="script")
        self.steps = iter(STEPS)

    def generate(self, messages, **kwargs):
        """Answer with the next step."""
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.steps))


@tool
def in_words(number: int, value: int) -> str:
    """Say which Fibonacci number it is.

    Args:
        number: Which one.
        value: What it is.
    """
    return f"Fibonacci number {number} is {value}."


with (
    LocalJupyterServer(log_file=str(Path(tempfile.mkdtemp()) / "gateway.log")) as server,
    CodeAgent([in_words], ScriptedModel(), executor=JupyterPythonExecutor(server)) as agent,
):
    print(agent.run("Which is the Fibonacci number of the given number?", additional_args={"number": 14}))
