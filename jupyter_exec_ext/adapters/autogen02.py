"""AutoGen 0.2 and ag2 0.x: our `JupyterCodeExecutor` as their `CodeExecutor`, with their records as results.

For example::

    with JupyterCodeExecutor("http://localhost:8888/?token=…") as executor:
        agent = ConversableAgent("runner", llm_config=False, code_execution_config={"executor": executor})
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autogen.coding.base import CodeBlock, IPythonCodeResult

from ..client.api.retries import DEFAULT_OUTAGE_SECONDS
from ..client.local_servers import find_connection
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo
from ..executors import JupyterCodeExecutor as _JupyterCodeExecutor
from ..executors.stateful_executor import ExecutorOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["JupyterCodeExecutor"]


class JupyterCodeExecutor(_JupyterCodeExecutor):
    """Runs an agent's code blocks in a Jupyter kernel that keeps its state between calls.

    Give it to an agent as ``code_execution_config={"executor": executor}``. AutoGen accepts
    `jupyter_exec_ext.JupyterCodeExecutor`, too; this class takes a URL and returns AutoGen's own records.

    Parameters
    ----------
    jupyter_server : str, JupyterConnectable or JupyterConnectionInfo
        The server to use: a URL, ours or AutoGen's own server or connection info.
    kernel_name : str
        Kernelspec to start. The server must have it.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str
        Directory for images and HTML pages; must exist.
    token : str, optional
        The server's token, if `jupyter_server` does not have it.
    outage_seconds, **options
        As for `jupyter_exec_ext.JupyterCodeExecutor`.

    Raises
    ------
    ValueError
        If an argument is invalid, the kernelspec is not installed, or the functions cannot be loaded.
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
        outage_seconds: float = DEFAULT_OUTAGE_SECONDS,
        **options: Unpack[ExecutorOptions],
    ) -> None:
        try:
            connection_info = find_connection(jupyter_server, token)
        except TypeError:  # AutoGen raises ValueError
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        super().__init__(connection_info, kernel_name, timeout, output_dir, outage_seconds=outage_seconds, **options)

    def execute_code_blocks(self, code_blocks: Sequence[CodeBlock]) -> IPythonCodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Parameters
        ----------
        code_blocks : sequence of CodeBlock
            The blocks.

        Returns
        -------
        autogen.coding.base.IPythonCodeResult
            The output of all blocks that ran, that of the failing one included.
        """
        result = super().execute_code_blocks(code_blocks)
        return IPythonCodeResult(exit_code=result.exit_code, output=result.output, output_files=result.output_files)
