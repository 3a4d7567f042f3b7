"""AutoGen 0.2: one agent writes code and another runs it. A script stands for the model, so no key is needed."""

import pprint
import tempfile
from pathlib import Path
from types import SimpleNamespace

from autogen import ConversableAgent

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.autogen02 import JupyterCodeExecutor

REPLIES = [
    """\
Sure. The Fibonacci sequence is a series of numbers where the next number is found by adding up the two numbers
before it. So, let's define a Python function to calculate the nth Fibonacci number.""",
    """\
Here is the Python function to calculate the nth Fibonacci number:

```python
def fibonacci(n):
    if n <= 1:
        return n
    else:
        a, b = 0, 1
        for _ in range(2, n+1):
            a, b = b, a+b
        return b
```

Now, let's use this function to calculate the 14th Fibonacci number.

```python
fibonacci(14)
```""",
]


class ScriptedModel:
    """What AutoGen asks of a model client."""

    def __init__(self, config, **kwargs):
        self.replies = iter(REPLIES)

    def create(self, params):
        """Answer with the next reply."""
        message = SimpleNamespace(content=next(self.replies), function_call=None, tool_calls=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], model="script", cost=0)

    def message_retrieval(self, response):
        """Return the texts of an answer."""
        return [choice.message.content for choice in response.choices]

    def cost(self, response):
        """Return what an answer costs."""
        return 0

    @staticmethod
    def get_usage(response):
        """Return the tokens that an answer took."""
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0, "model": "script"}


server = LocalJupyterServer(log_file=str(Path(tempfile.mkdtemp()) / "gateway.log"))

output_dir = Path(tempfile.mkdtemp())

code_executor_agent = ConversableAgent(
    name="code_executor_agent",
    llm_config=False,
    code_execution_config={
        "executor": JupyterCodeExecutor(server, output_dir=output_dir),
    },
    human_input_mode="NEVER",
)

# The code writer agent's system message is to instruct the LLM on how to
# use the Jupyter code executor with IPython kernel.
code_writer_system_message = """
You have been given coding capability to solve tasks using Python code in a stateful IPython kernel.
You are responsible for writing the code, and the user is responsible for executing the code."""

code_writer_agent = ConversableAgent(
    "code_writer",
    system_message=code_writer_system_message,
    llm_config={"config_list": [{"model": "script", "model_client_cls": "ScriptedModel"}], "cache_seed": None},
    code_execution_config=False,  # Turn off code execution for this agent.
    max_consecutive_auto_reply=2,
    human_input_mode="NEVER",
)
code_writer_agent.register_model_client(ScriptedModel)

chat_result = code_executor_agent.initiate_chat(
    code_writer_agent, message="Write Python code to calculate the 14th Fibonacci number."
)

pprint.pprint(chat_result)

server.stop()
