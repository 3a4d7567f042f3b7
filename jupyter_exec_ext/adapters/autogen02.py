"""AutoGen 0.2 and ag2 0.x: our `JupyterCodeExecutor` as their `CodeExecutor`, with their records as results.

For example::

    with JupyterCodeExecutor("http://localhost:8888/?token=…") as executor:
        agent = ConversableAgent("runner", llm_config=False, code_execution_config={"executor": executor})
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autogen.coding.base import CodeBlock, IPythonCodeResult

from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from ..executors import JupyterCodeExecutor as _JupyterCodeExecutor
from ..executors.function_sources import AnyFunction
from ..executors.stateful_executor import OnStateLost
from ..models.plain_text import Ansi

__all__ = ["JupyterCodeExecutor"]


class JupyterCodeExecutor(_JupyterCodeExecutor):
    """Runs an agent's code blocks in a Jupyter kernel that keeps its state between calls.

    An agent is given it as ``code_execution_config={"executor": executor}``. `jupyter_exec_ext.JupyterCodeExecutor` is
    accepted there as well; this one takes a URL and gives AutoGen's own records.

    Parameters
    ----------
    jupyter_server : str, JupyterConnectable or JupyterConnectionInfo
        The server to use: a URL, ours or AutoGen's own server or connection info.
    kernel_name : str
        The kernelspec to start, which must be installed on the server.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str
        Where images and HTML pages are saved; must exist.
    token : str, optional
        The server's token, if `jupyter_server` does not have it.
    functions, functions_module
        As for `jupyter_exec_ext.JupyterCodeExecutor`: functions that the code can call.
    max_text_chars, ansi
        As for `jupyter_exec_ext.JupyterCodeExecutor`: how the output is given to the model.
    on_state_lost : {"fail", "continue"}
        As there: what follows where the kernel had ended between two calls.
    silence_pip : bool
        As there: whether pip prints errors only.

    Raises
    ------
    ValueError
        For a wrong argument, if the kernelspec is not installed, or if the functions cannot be loaded.
    ExecError
        If the server cannot be reached or refuses.
    """

    def __init__(
        self,
        jupyter_server: str | JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str = Path("."),
        *,
        token: str | None = None,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        silence_pip: bool = True,
    ) -> None:
        try:
            connection_info = connection_to(jupyter_server, token)
        except TypeError:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        super().__init__(
            connection_info,
            kernel_name,
            timeout,
            output_dir,
            functions=functions,
            functions_module=functions_module,
            max_text_chars=max_text_chars,
            ansi=ansi,
            on_state_lost=on_state_lost,
            silence_pip=silence_pip,
        )

    def execute_code_blocks(self, code_blocks: Sequence[CodeBlock]) -> IPythonCodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Returns
        -------
        autogen.coding.base.IPythonCodeResult
            The output of all blocks that ran, that of the failing one included.
        """
        result = super().execute_code_blocks(code_blocks)
        return IPythonCodeResult(exit_code=result.exit_code, output=result.output, output_files=result.output_files)
