"""AutoGen 0.2's `JupyterCodeExecutor`, on our client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..client.api.idle_timeout import open_patient_session
from ..client.api.outage_retry import DEFAULT_OUTAGE_SECONDS
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from ..client.sync.client import ExecClient, ExecSession, StandardExecSession
from ..errors import KernelSpecNotFound
from ..models.plain_text import Ansi
from .function_sources import AnyFunction
from .stateful_executor import OnStateLost, StatefulCodeExecutor


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
        Where images and HTML pages are saved; must exist.
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Python functions that the code can call, by name or imported from `functions_module`. Their source is sent to
        the session before any other code, and again to a fresh kernel. What they need must be installed there.
    functions_module : str
        The name under which the code can import them.
    max_text_chars : int, optional
        How long the output of one call may be; of a longer one the head and the tail are kept, with a line between
        them that says how much was left out. Without it, all of it is there.
    ansi : {"remove", "keep"}
        Whether the output is as a terminal would show it in the end, without colours and overwritten progress bars, or
        keeps escape sequences as the code wrote them.
    on_state_lost : {"fail", "continue"}
        What follows where the kernel had ended between two calls, so that a block ran in a fresh one. The output begins
        with a line that says so. With ``"fail"``, the exit code is 1 and later blocks of the same call are not run.
    silence_pip : bool
        Whether pip, called in a line of its own, prints errors only, as with AutoGen.
    outage_seconds : float
        For how long a block waits for a server that does not answer any more, such as behind a proxy that restarts.

    Raises
    ------
    ValueError
        For a wrong argument, if the kernelspec is not installed, or if the functions cannot be loaded: then it names
        the packages that are missing.
    ExecError
        If the server cannot be reached or refuses.
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str = Path("."),
        *,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        silence_pip: bool = True,
        outage_seconds: float = DEFAULT_OUTAGE_SECONDS,
    ) -> None:
        super().__init__(
            kernel_name,
            timeout,
            output_dir,
            functions,
            functions_module,
            max_text_chars,
            ansi,
            on_state_lost,
            silence_pip,
        )
        try:
            self._connection_info = connection_to(jupyter_server)
        except TypeError:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        self._client = ExecClient(self._connection_info, outage_seconds=outage_seconds)
        self._begin()

    def _open_session(self) -> ExecSession | StandardExecSession:
        try:
            return open_patient_session(self._client, self._kernel_name, "JupyterCodeExecutor")
        except KernelSpecNotFound as error:
            raise ValueError(f"Kernel {self._kernel_name} is not installed.") from error

    def _close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection_info!r}, kernel_name={self._kernel_name!r})"
