"""smolagents: a `PythonExecutor` that runs a `CodeAgent`'s code in a Jupyter kernel.

For example::

    with CodeAgent([], model, executor=JupyterPythonExecutor("http://localhost:8888/?token=…")) as agent:
        agent.run("What is the 14th Fibonacci number?")
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import PIL.Image
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.serialization import SerializationError
from smolagents.tools import Tool
from smolagents.utils import AgentError

from ..models import Execution, ImageContent
from ._code_session import Server, SessionOptions
from ._session_portal import SessionPortal
from ._tool_text import NotRun

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["JupyterPythonExecutor"]

_INSTALL = """\
import subprocess, sys
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--", *{}], check=True)
"""


class JupyterPythonExecutor(RemotePythonExecutor):
    """Runs an agent's code in a kernel that keeps its state between steps. The agent's `cleanup` closes it.

    Tools are sent as source and run in the kernel. Variables and final answers are sent as JSON with
    smolagents' extensions for further types. Nothing is unpickled.

    Parameters
    ----------
    server, token
        The Jupyter server, as for `CodeSession`.
    additional_imports : sequence of str
        Packages to install in the kernel's environment before the first step.
    logger : AgentLogger, optional
        Logger for errors; the agent logs them anyway.
    **session_options
        ``kernel_name``, ``timeout_seconds``, ``session_id`` and ``session``, as for `CodeSession`.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        **session_options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(LogLevel.OFF), allow_pickle=False)
        self._is_session_given = bool(session_options.get("session") or session_options.get("session_id"))
        self._session = SessionPortal(server, token, name="smolagents", **session_options)
        self._variables: dict[str, Any] = {}
        self._tools: dict[str, Any] = {}
        self._kernel_is_fresh = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, unless it was given; calling it again does nothing. Code that follows gets a new one."""
        self._session.close()
        if not self._is_session_given:
            self._note_end_of_session()

    def cleanup(self) -> None:
        """Call `close`; smolagents' name for it, which the agent's own `cleanup` calls."""
        self.close()

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Set variables in the kernel, and again in every fresh one."""
        super().send_variables(variables)
        self._variables.update(variables)  # not earlier: what cannot be sent would fail in every fresh kernel

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Install requirements and define tools in the kernel, and again in every fresh one.

        Raises
        ------
        ValueError
            If there are managed agents, which cannot run in the kernel.
        """
        if agents := [name for name, tool in tools.items() if not isinstance(tool, Tool)]:
            raise ValueError(f"managed agents cannot be sent to a kernel: {', '.join(agents)}")
        if self._kernel_is_fresh:
            self._send_again()
        # Here and not in the constructor, because the session opens at its first use.
        self._install_additional_imports()
        super().send_tools(tools)
        self._tools.update(tools)

    def _install_additional_imports(self) -> None:
        missing = [name for name in self.additional_imports if name not in self.installed_packages]
        self.installed_packages += self.install_packages(missing)

    def _patch_final_answer_with_exception(self, final_answer_tool: Any) -> None:
        # An agent sends its tools in each run, and a tool that is patched twice would call itself.
        if type(final_answer_tool).__name__ != "_FinalAnswerTool":
            super()._patch_final_answer_with_exception(final_answer_tool)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Install packages in the kernel's environment; raise `AgentError` if that fails."""
        if additional_imports:
            self.run_code_raise_errors(_INSTALL.format(additional_imports))
        return additional_imports

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run code and return its logs, and the value of its last expression, its last picture or the final answer.

        Raises
        ------
        AgentError
            If the code fails or is stopped, with its output; or if the server does not run it.
        """
        if self._kernel_is_fresh:
            self._send_again()
        execution = self._session.run(code)
        if isinstance(execution, NotRun):
            if execution.session_lost:
                self._note_end_of_session()
            raise AgentError(execution.to_text(), self.logger)
        lost = execution.session_state_lost is not None
        self._kernel_is_fresh = lost or execution.session_state_preserved is False
        if execution.error is not None and execution.error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(output=self._final_answer(execution), logs=_logs(execution), is_final_answer=True)
        if not execution.ok:
            raise AgentError(execution.to_text(), self.logger)
        return CodeOutput(output=_value(execution), logs=_logs(execution), is_final_answer=False)

    def _note_end_of_session(self) -> None:
        """Note that the next code runs in another session, which has nothing of this one, its packages included."""
        self.installed_packages.clear()
        self._kernel_is_fresh = True

    def _send_again(self) -> None:
        """Send packages, variables and tools to a fresh kernel; if that fails, they are sent before the next code."""
        # Reset first: the calls below run code, and so come back here.
        self._kernel_is_fresh = False
        with contextlib.ExitStack() as undo:
            undo.callback(setattr, self, "_kernel_is_fresh", True)
            self._install_additional_imports()
            super().send_variables(self._variables)
            super().send_tools(self._tools)
            undo.pop_all()

    def _final_answer(self, execution: Execution) -> Any:
        assert execution.error is not None
        if execution.truncated is not None and execution.truncated.error_bytes:
            raise AgentError("The final answer is too large; write it to a file, or make it smaller.", self.logger)
        try:
            return self._deserialize_final_answer(execution.error.value, allow_pickle=False)
        except (SerializationError, ValueError) as error:
            raise AgentError(f"The final answer cannot be read: {error}", self.logger) from error


def _logs(execution: Execution) -> str:
    """Return printed and displayed output, without the value of the last expression and the error."""
    shown = [output for output in execution.outputs if output["output_type"] in ("stream", "display_data")]
    text = replace(execution, outputs=shown).to_text()
    says_more = execution.files or execution.session_state_lost is not None
    return text if shown or says_more else ""


def _value(execution: Execution) -> Any:
    """Return the value of the last expression, or else the last displayed picture; pictures as Pillow's images."""
    for kind in ("execute_result", "display_data"):
        outputs = [output for output in execution.outputs if output["output_type"] == kind]
        if outputs:
            # The logs have the notes on files, lost output and a lost state.
            bare = replace(execution, files=(), truncated=None, session_state_lost=None, late_from=())
            shown = replace(bare, outputs=outputs[-1:])
            picture = next((item for item in shown.to_content() if isinstance(item, ImageContent)), None)
            if picture is not None:
                with contextlib.suppress(OSError, PIL.Image.DecompressionBombError):  # its bytes are no such picture
                    return PIL.Image.open(BytesIO(picture.data))
            if kind == "execute_result":
                return shown.to_text()
    return None
