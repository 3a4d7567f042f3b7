"""AutoGen 0.2's `JupyterCodeExecutor`, on our client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from ..client.sync import ExecClient, ExecSession, StandardExecSession
from ..errors import (
    ApiNotFound,
    ConnectionFailed,
    ConnectionLost,
    KernelSpecNotFound,
    LanguageNotSupported,
    SessionEnded,
    SessionNotFound,
)
from .code_blocks import CodeBlock, IPythonCodeResult, MarkdownCodeExtractor
from .results import ResultCollector

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE_TIMEOUT_SECONDS = 24 * 3600.0
# What AutoGen calls a block whose language nobody named.
_UNNAMED_LANGUAGES = ("", "unknown")


class JupyterCodeExecutor:
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

    Raises
    ------
    ValueError
        For a wrong argument, or if the kernelspec is not installed.
    ExecError
        If the server cannot be reached or refuses.
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str = Path("."),
    ) -> None:
        if timeout < 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        output_dir = Path(output_dir)
        if not output_dir.exists():
            raise ValueError(f"Output directory {output_dir} does not exist.")
        try:
            self._connection_info = connection_to(jupyter_server)
        except TypeError:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        self._kernel_name = kernel_name
        self._timeout = timeout
        self._output_dir = output_dir
        self._client = ExecClient(self._connection_info)
        self._replacing = threading.Lock()
        self._stopped = False
        try:
            self._session = self._open_session()
        except BaseException:
            self._client.close()
            raise

    def _open_session(self) -> ExecSession | StandardExecSession:
        try:
            try:
                return self._client.session(
                    self._kernel_name, name="JupyterCodeExecutor", idle_timeout_seconds=_IDLE_TIMEOUT_SECONDS
                )
            except ApiNotFound:
                return self._client.standard_session(self._kernel_name)
        except KernelSpecNotFound as error:
            raise ValueError(f"Kernel {self._kernel_name} is not installed.") from error

    def _replace_session(self, ended: ExecSession | StandardExecSession) -> None:
        """Open a fresh session in the place of one that has ended, unless another thread has done so."""
        with self._replacing:
            if self._session is ended and not self._stopped:
                self._session = self._open_session()

    def _check_running(self) -> None:
        if self._stopped:
            raise SessionEnded("the executor was stopped; make a new one")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection_info!r}, kernel_name={self._kernel_name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def code_extractor(self) -> MarkdownCodeExtractor:
        """What finds the code blocks in an agent's message."""
        return MarkdownCodeExtractor()

    @property
    def timeout(self) -> int:
        """Run time of one code block in seconds."""
        return self._timeout

    @property
    def output_dir(self) -> Path:
        """Where images and HTML pages are saved."""
        return self._output_dir

    def execute_code_blocks(self, code_blocks: Sequence[CodeBlock]) -> IPythonCodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Returns
        -------
        IPythonCodeResult
            The output of all blocks that ran, that of the failing one included.

        Raises
        ------
        ExecError
            If the server cannot be reached, or the executor was stopped. A session that the server has ended is not
            an error: a fresh one is started and the result says that the variables are gone.
        """
        self._check_running()
        collector = ResultCollector(self._output_dir)
        exit_code = 0
        for block in code_blocks:
            if not self._run(block, collector):
                exit_code = 1
                break
        return IPythonCodeResult(exit_code, collector.text, collector.files)

    def _run(self, block: CodeBlock, collector: ResultCollector) -> bool:
        language = None if block.language.strip().lower() in _UNNAMED_LANGUAGES else block.language
        session = self._session
        try:
            execution = session.run(block.code, timeout_seconds=float(self._timeout), language=language)
        except LanguageNotSupported as error:
            collector.note(f"Not run: {error.message}")
            return False
        except (SessionEnded, SessionNotFound) as error:
            self._check_running()
            self._replace_session(session)
            collector.note(
                f"Not run: {error.message}. A fresh session was started: variables, imports and definitions are gone; "
                "run what is needed again."
            )
            return False
        collector.add(execution)
        return execution.ok

    def restart(self) -> None:
        """Start over with a fresh kernel; a block that runs in another thread ends as cancelled."""
        self._check_running()
        session = self._session
        try:
            session.restart()
        except (SessionEnded, SessionNotFound):
            self._replace_session(session)

    def stop(self) -> None:
        """Shut the kernel down and close the connection; calling it again does nothing.

        A server that is gone is no error: so is the kernel, or it will be when the session has been idle for long.
        """
        with self._replacing:
            if self._stopped:
                return
            self._stopped = True
        try:
            with contextlib.suppress(ConnectionFailed, ConnectionLost):
                self._session.close()
        finally:
            self._client.close()
