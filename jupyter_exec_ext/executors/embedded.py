"""AutoGen 0.2's `EmbeddedIPythonCodeExecutor`: a kernel of this process, without any server."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..client.sync.client import StandardExecSession
from ..errors import KernelSpecNotFound
from ..models.plain_text import Ansi
from .function_sources import AnyFunction
from .stateful_executor import OnStateLost, StatefulCodeExecutor


class EmbeddedIPythonCodeExecutor(StatefulCodeExecutor):
    """Runs code blocks in a kernel of its own on this machine, which keeps its state between calls.

    The code runs with your rights, on your machine. Results, time limit and errors are those of
    `JupyterCodeExecutor`. May be used from several threads. The kernel ends with `stop`, when nobody has the executor
    any more, and with this process, however it ends.

    Parameters
    ----------
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    kernel_name : str
        The kernelspec to start, which must be installed on this machine.
    output_dir : Path or str
        Where images and HTML pages are saved; must exist.
    env : mapping, optional
        Environment variables for the code. Of this process's it gets what a program needs in order to run, such as
        ``PATH`` and ``HOME``, and none of its keys.
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Functions that the code can call; see `JupyterCodeExecutor`.
    functions_module : str
        The name under which the code can import them.
    max_text_chars, ansi, on_state_lost, silence_pip
        How output is given, and what follows a lost state; see `JupyterCodeExecutor`.

    Raises
    ------
    ValueError
        For a wrong argument, if the kernelspec is not installed, or if the functions cannot be loaded.
    KernelStartFailed, KernelStartTimeout
        If the kernel does not start.
    """

    def __init__(
        self,
        timeout: int = 60,
        kernel_name: str = "python3",
        output_dir: Path | str = ".",
        *,
        env: Mapping[str, str] | None = None,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        silence_pip: bool = True,
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
        from ..embedded.embedded_driver import EmbeddedDriver, shut_down  # ZeroMQ is loaded only where it is used

        self._driver = EmbeddedDriver(env or {})
        weakref.finalize(self, shut_down, self._driver.kernels)
        self._begin()

    def _open_session(self) -> StandardExecSession:
        try:
            return self._driver.open_session(self._kernel_name)
        except KernelSpecNotFound as error:
            raise ValueError(
                f"Kernel {self._kernel_name} is not installed. Please first install it with "
                f"`python -m ipykernel install --user --name {self._kernel_name}`."
            ) from error

    def _close(self) -> None:
        self._driver.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(timeout={self.timeout!r}, kernel_name={self._kernel_name!r})"
