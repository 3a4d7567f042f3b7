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

FOUNDATION = "quay.io/jupyter/docker-stacks-foundation"

# The document has lost the indentation, and the ends of the first three lines of the RUN.
CUSTOM_DOCKERFILE = """\
FROM quay.io/jupyter/docker-stacks-foundation
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
USER ${NB_UID}
RUN mamba install --yes jupyter_kernel_gateway ipykernel matplotlib numpy && \\
    mamba clean --all -f -y && \\
    fix-permissions "${CONDA_DIR}" && \\
    fix-permissions "/home/${NB_USER}"
ENV TOKEN="UNSET"
CMD python -m jupyter kernelgateway \\
    --KernelGatewayApp.ip=0.0.0.0 \\
    --KernelGatewayApp.port=8888 \\
    --KernelGatewayApp.auth_token="${TOKEN}" \\
    --JupyterApp.answer_yes=true \\
    --JupyterWebsocketPersonality.list_kernels=true
EXPOSE 8888
WORKDIR "${HOME}"
"""

# As `seed_chat` has it, for whatever agent gets the executor; it leaves stopping the server to the end of the program.
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
