"""`EmbeddedIPythonCodeExecutor` of AutoGen 0.2: code blocks in a kernel of this process, without a server."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..client.sync.standard_session import StandardExecSession
from ..errors import KernelSpecNotFound
from .stateful_executor import ExecutorOptions, StatefulCodeExecutor

if TYPE_CHECKING:
    from typing_extensions import Unpack


class EmbeddedIPythonCodeExecutor(StatefulCodeExecutor):
    """Runs code blocks in a kernel of its own on this machine, which keeps its state between calls.

    The code runs with your rights, on your machine. Results, time limit and errors are those of
    `JupyterCodeExecutor`. May be used from several threads. The kernel ends with `stop`, when the executor is garbage
    collected, and with this process, also by a crash.

    Parameters
    ----------
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    kernel_name : str
        The kernelspec to start, which must be installed on this machine.
    output_dir : Path or str
        Directory for images and HTML pages; must exist.
    env : mapping, optional
        Environment variables for the code. From this process it gets only those that a program needs to run, such as
        ``PATH`` and ``HOME``, so none of your keys.
    **options : ExecutorOptions
        Functions that the code can call, and the form of the output; see `ExecutorOptions`.

    Raises
    ------
    ValueError
        For a wrong argument, if the kernelspec is not installed, or if the functions cannot be loaded.
    KernelStartFailed, KernelStartTimeout
        If the kernel does not start.

    Examples
    --------
    ::

        with EmbeddedIPythonCodeExecutor() as executor:
            print(executor.execute_code_blocks([CodeBlock("1 + 1", "python")]).output)
    """

    def __init__(
        self,
        timeout: int = 60,
        kernel_name: str = "python3",
        output_dir: Path | str = ".",
        *,
        env: Mapping[str, str] | None = None,
        **options: Unpack[ExecutorOptions],
    ) -> None:
        super().__init__(kernel_name, timeout, output_dir, **options)
        from ..embedded.embedded_driver import EmbeddedDriver, shut_down  # loads ZeroMQ

        self._driver = EmbeddedDriver(env or {})
        # A finalizer keeps its arguments alive, and the kernels do not refer to the executor.
        weakref.finalize(self, shut_down, self._driver.kernels)
        self._begin()

    def _open_session(self) -> StandardExecSession:
        try:
            session = self._driver.open_session(self._kernel_name)
        except KernelSpecNotFound as error:
            raise ValueError(
                f"Kernel {self._kernel_name} is not installed. Please first install it with "
                f"`python -m ipykernel install --user --name {self._kernel_name}`."
            ) from error
        session.detach()  # its kernel ends with the executor, also with one that is only forgotten
        return session

    def _close(self) -> None:
        self._driver.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(timeout={self.timeout!r}, kernel_name={self._kernel_name!r})"
