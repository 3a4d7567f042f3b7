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
