"""The examples of the document that the executors follow, with their indentation, and only their imports changed."""

LOCAL = """\
from jupyter_exec_ext import CodeBlock
from jupyter_exec_ext import JupyterCodeExecutor, LocalJupyterServer
with LocalJupyterServer() as server:
    executor = JupyterCodeExecutor(server)
    print(
        executor.execute_code_blocks(
            code_blocks=[
                CodeBlock(language="python", code="print('Hello, World!')"),
            ]
        )
    )
"""

LOCAL_PRINTS = "exit_code=0 output='Hello, World!\\n' output_files=[]\n"

REMOTE = """\
from jupyter_exec_ext import JupyterCodeExecutor, JupyterConnectionInfo
executor = JupyterCodeExecutor(
    jupyter_server=JupyterConnectionInfo(host='example.com', use_https=True, port=7893, token='mytoken')
)
"""

SEVERAL_AGENTS = """\
from pathlib import Path
from jupyter_exec_ext import JupyterCodeExecutor, LocalJupyterServer
server = LocalJupyterServer()
output_dir = Path("coding")
output_dir.mkdir(exist_ok=True)
executor = JupyterCodeExecutor(server, output_dir=output_dir)
another = JupyterCodeExecutor(server, output_dir=output_dir)
"""

STOP = """\
server.stop()
"""

# Whole but for blank lines, which the document has lost.
CODE_WRITER_SYSTEM_MESSAGE = """
You have been given coding capability to solve tasks using Python code in a stateful IPython kernel.
You are responsible for writing the code, and the user is responsible for executing the code.
When you write Python code, put the code in a markdown code block with the language set to Python.
For example:
```python
x = 3
```
You can use the variable `x` in subsequent code blocks.
```python
print(x)
```
Write code incrementally and leverage the statefulness of the kernel to avoid repeating code.
Import libraries in a separate code block.
Define a function or a class in a separate code block.
Run code that produces output in a separate code block.
Run code that involves expensive operations like download, upload, and call external APIs in a separate code block.
When your code produces an output, the output will be returned to you.
Because you have limited conversation memory, if your code creates an image,
the output will be a path to the image instead of the image itself."""

# What the model answers in the document's chat.
FIBONACCI = """\
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
```
"""

FIBONACCI_GIVES = "377"
DOCKER = """\
from jupyter_exec_ext import CodeBlock
from jupyter_exec_ext import DockerJupyterServer, JupyterCodeExecutor
with DockerJupyterServer() as server:
    executor = JupyterCodeExecutor(server)
    print(
        executor.execute_code_blocks(
            code_blocks=[
                CodeBlock(language="python", code="print('Hello, World!')"),
            ]
        )
    )
"""

DOCKERFILE = """\
print(DockerJupyterServer.DEFAULT_DOCKERFILE)
"""

# The document builds FROM another base, with that one's package manager.
CUSTOM_DOCKERFILE = """\
FROM {base}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN python -m pip install --no-cache-dir jupyter_kernel_gateway ipykernel
ENV TOKEN="UNSET"
CMD python -m jupyter kernelgateway \\
    --KernelGatewayApp.ip=0.0.0.0 \\
    --KernelGatewayApp.port=8888 \\
    --KernelGatewayApp.auth_token="${{TOKEN}}" \\
    --JupyterApp.answer_yes=true \\
    --JupyterWebsocketPersonality.list_kernels=true
EXPOSE 8888
WORKDIR "${{HOME}}"
"""

# Whatever agent gets the executor; it leaves stopping the server to the end of the program.
AGENT = """\
from pathlib import Path
from jupyter_exec_ext import DockerJupyterServer, JupyterCodeExecutor
server = DockerJupyterServer()
output_dir = Path("coding")
output_dir.mkdir(exist_ok=True)
code_execution_config={
    "executor": JupyterCodeExecutor(server, output_dir=output_dir),
}
"""
