"""`JupyterCodeExecutor` of AutoGen 0.2: code blocks in a kernel of a Jupyter server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..client.api.retries import DEFAULT_OUTAGE_SECONDS
from ..client.local_servers import find_connection
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo
from ..client.sync.client import ExecClient, open_agent_session
from ..client.sync.session import ExecSession
from ..client.sync.standard_session import StandardExecSession
from ..errors import KernelSpecNotFound
from .stateful_executor import ExecutorOptions, StatefulCodeExecutor

if TYPE_CHECKING:
    from typing_extensions import Unpack


class JupyterCodeExecutor(StatefulCodeExecutor):
    """Runs code blocks in a Jupyter kernel that keeps its state between calls.

    Uses the server's ``exec/v1`` API where there is one and the standard kernels API and WebSocket where there is
    not, with the same results. May be used from several threads.

    Parameters
    ----------
    jupyter_server : JupyterConnectable or JupyterConnectionInfo
        The server to use.
    kernel_name : str
        The kernelspec to start, which must be installed on the server.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str
        Directory for images and HTML pages; must exist.
    outage_seconds : float
        Time in seconds that a block waits for a server that no longer answers, such as behind a proxy that restarts.
    env : mapping, optional
        Environment variables for the kernel, as far as the server lets callers set them.
    **options : ExecutorOptions
        Functions that the code can call, and the form of the output; see `ExecutorOptions`.

    Raises
    ------
    ValueError
        For a wrong argument, if the kernelspec is not installed, or if the functions cannot be loaded; then it names
        the missing packages.
    ExecError
        If the server cannot be reached or refuses.

    Examples
    --------
    ::

        with LocalJupyterServer() as server, JupyterCodeExecutor(server) as executor:
            print(executor.execute_code_blocks([CodeBlock("1 + 1", "python")]).output)
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str = Path("."),
        *,
        outage_seconds: float = DEFAULT_OUTAGE_SECONDS,
        env: Mapping[str, str] | None = None,
        **options: Unpack[ExecutorOptions],
    ) -> None:
        super().__init__(kernel_name, timeout, output_dir, **options)
        try:
            self._connection_info = find_connection(jupyter_server)
        # AutoGen raises this error in these words.
        except TypeError:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        self._client = ExecClient(self._connection_info, outage_seconds=outage_seconds)
        self._env = env
        self._begin()

    def _open_session(self) -> ExecSession | StandardExecSession:
        try:
            session = open_agent_session(self._client, self._kernel_name, "JupyterCodeExecutor", env=self._env)
        except KernelSpecNotFound as error:
            raise ValueError(f"Kernel {self._kernel_name} is not installed.") from error
        session.detach()  # it may end by itself, and is then replaced; `stop` ends one that lives
        return session

    def _close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection_info!r}, kernel_name={self._kernel_name!r})"
