"""AutoGen 0.4 and later: its code executors on Jupyter kernels, as components that can be dumped and loaded."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor

from ..client.access_tokens import TokenProvider
from ..client.local_servers import TOKEN_VARIABLE, find_connection
from ..errors import KernelSpecNotFound
from ..executors.cancellation import cancelled_by
from ..executors.code_blocks import quiet_pip
from ..executors.code_results import ResultCollector, TextOptions
from ..executors.function_loading import FUNCTION_PROMPT_TEMPLATE, FunctionsModule
from ..executors.function_sources import AnyFunction
from ..executors.stateful_executor import OnStateLost, check_on_state_lost
from ..models import Execution, ExecutionState
from ..models.plain_text import Ansi
from ._autogen_aca import ACADynamicSessionsCodeExecutor, ACADynamicSessionsCodeExecutorConfig
from ._autogen_config import AutoGenOptions, JupyterCodeExecutorConfig, check_token_variable, server_of
from ._autogen_docker import DockerJupyterServer
from ._autogen_resources import ExecutorResources, SessionWithFunctions
from ._autogen_results import AutoGenResultCollector, JupyterCodeResult
from ._code_session import Server, Session

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = [
    "ACADynamicSessionsCodeExecutor",
    "ACADynamicSessionsCodeExecutorConfig",
    "DockerJupyterCodeExecutor",
    "DockerJupyterCodeResult",
    "DockerJupyterServer",
    "JupyterCodeExecutor",
    "JupyterCodeExecutorConfig",
    "JupyterCodeResult",
    "TokenProvider",
]

# AutoGen's languages of a block that has none.
_UNNAMED_LANGUAGES = ("", "unknown")
#: AutoGen's other name of the class.
DockerJupyterCodeResult = JupyterCodeResult


class JupyterCodeExecutor(CodeExecutor, Component[JupyterCodeExecutorConfig]):
    """Runs code blocks in a Jupyter kernel that keeps its state between calls.

    It starts with `start`, or as a context manager, and can be started again after `stop`. Cancelling a block's
    `CancellationToken` stops its code on the server, and raises `asyncio.CancelledError`.

    Parameters
    ----------
    kernel_name : str
        Kernelspec to start. The server must have it.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str, optional
        Directory for images and HTML pages. Without it, one that `stop` removes.
    jupyter_server : str, JupyterConnectionInfo or JupyterConnectable, optional
        The server. Without it, a Kernel Gateway on this machine is started, and stopped by `stop`.
    token : str, optional
        The server's token.
    token_variable : str
        Environment variable of the token, for an executor that is loaded from its dump: ``JUPYTER_TOKEN`` or
        ``JUPYTER_…_TOKEN``. The dump has this name instead of the token.
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Python functions that the code can call, by name or imported from `functions_module`; also AutoGen's own
        records. Their source is sent to the session before any other code, and again to a fresh kernel. Packages that
        they need must be installed there.
    functions_module : str
        Module name from which the code can import them.
    session_id, session
        A session to be used instead of a new one, as for `CodeSession`.
    packages, max_text_chars, ansi, on_state_lost
        Packages to install first, format of the output, and the outcome after a lost state, as for
        `jupyter_exec_ext.JupyterCodeExecutor`.
    like_autogen : bool
        Whether to behave as AutoGen's own class: code that takes too long raises `asyncio.TimeoutError`, a run before
        `start` raises `RuntimeError`, pip prints errors only, and outputs are joined as there. With False, code that
        takes too long is a result, the first run starts the kernel, and the output names the files.

    Raises
    ------
    ValueError
        If an argument is invalid, or arguments contradict each other.

    Examples
    --------
    >>> async with JupyterCodeExecutor(jupyter_server=url, token=token) as executor:  # doctest: +SKIP
    ...     blocks = [CodeBlock(code="print(6 * 7)", language="python")]
    ...     result = await executor.execute_code_blocks(blocks, CancellationToken())
    """

    _RAISES_TIMEOUT = True  # as AutoGen's class; its class for Docker differs in these three
    _STARTS_ITSELF = False
    _NAMES_FILES = False

    component_config_schema = JupyterCodeExecutorConfig

    def __init__(
        self,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str | None = None,
        *,
        jupyter_server: Server | None = None,
        token: str | None = None,
        token_variable: str = TOKEN_VARIABLE,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        packages: Sequence[str] = (),
        session_id: str | None = None,
        session: Session | None = None,
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        like_autogen: bool = True,
    ) -> None:
        if timeout < 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        if session is not None and jupyter_server is not None:
            raise ValueError("give a server, or a session that is open already")
        if token is not None and jupyter_server is None:
            raise ValueError("a token needs the server that it is for")
        if session_id is not None and jupyter_server is None:
            raise ValueError("the id of a session needs the server that it is on")
        try:
            self._connection_info = None if jupyter_server is None else find_connection(jupyter_server, token)
        except TypeError:  # AutoGen raises ValueError
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        self._kernel_name = kernel_name
        self._timeout = timeout
        self._on_state_lost = check_on_state_lost(on_state_lost)
        self._like_autogen = like_autogen
        self._output_dir = None if output_dir is None else Path(output_dir)
        self._text_options = TextOptions(max_text_chars, ansi)
        self._functions = FunctionsModule(functions, functions_module)
        self._packages = [packages] if isinstance(packages, str) else list(packages)
        self._token_variable = check_token_variable(token_variable)
        self._session_id, self._given = session_id, session
        place: dict[str, Any] = {"server": self._connection_info, "session": session, "session_id": session_id}
        if session is None and session_id is None:
            place["kernel_name"] = kernel_name
        place["timeout_seconds"] = float(timeout)
        self._resources = ExecutorResources(self._functions, self._packages, self._output_dir, **place)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._given or self._connection_info!r}, kernel_name={self._kernel_name!r})"

    @property
    def timeout(self) -> int:
        """Run time of one code block in seconds."""
        return self._timeout

    @property
    def output_dir(self) -> Path | None:
        """Directory for images and HTML pages; None until `start` has chosen one."""
        if self._output_dir == Path(".") and self._like_autogen:
            warnings.warn("Using the current directory as output_dir is deprecated", DeprecationWarning, stacklevel=2)
        return self._resources.running[1] if self._resources.running is not None else self._output_dir

    @property
    def functions(self) -> list[str]:
        """The names of the functions that the code can call."""
        return list(self._functions.names)

    @property
    def functions_module(self) -> str:
        """Module name from which the code can import them."""
        return self._functions.name

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Return a description of the functions for a model.

        Parameters
        ----------
        prompt_template : str
            Text in which ``$functions`` stands for their signatures and documentation, ``$module_name`` for their
            module.

        Returns
        -------
        str
            The filled template.
        """
        return self._functions.prompt(prompt_template)

    async def start(self) -> None:
        """Start the kernel; calling it again does nothing.

        Raises
        ------
        ValueError
            If the kernelspec is not installed, if the functions cannot be loaded (the message names missing packages),
            or if the server on this machine does not start.
        ExecError
            If the server cannot be reached or refuses, or the packages cannot be installed.
        """
        await self._started()

    async def _started(self) -> tuple[SessionWithFunctions, Path]:
        try:
            return await self._resources.start()
        except KernelSpecNotFound as error:
            raise ValueError(f"Kernel {self._kernel_name} is not installed.") from error

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> JupyterCodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Parameters
        ----------
        code_blocks : sequence of CodeBlock
            The blocks.
        cancellation_token : CancellationToken
            Cancelling it stops the running block on the server.

        Returns
        -------
        JupyterCodeResult
            The output of all blocks that ran, that of the failing one included.

        Raises
        ------
        asyncio.CancelledError
            If the token is cancelled. The code is stopped by then.
        asyncio.TimeoutError
            If code takes too long, as in AutoGen. The code is stopped by then.
        RuntimeError
            If the executor is not started, as in AutoGen.
        ExecError
            If the server cannot be reached or refuses. After a session that the server has ended, the result reports
            that the variables are gone, and the next block gets a fresh session.
        """
        return await cancelled_by(cancellation_token, self._execute(code_blocks))

    async def _execute(self, code_blocks: Sequence[CodeBlock]) -> JupyterCodeResult:
        if self._resources.running is None and self._like_autogen and not self._STARTS_ITSELF:
            raise RuntimeError("Executor must be started before executing cells")
        session, output_dir = await self._started()
        collector = self._new_collector(output_dir)
        exit_code = 0
        for block in code_blocks:
            if not await self._run(session, block, collector):
                exit_code = 1
                break
        return JupyterCodeResult(exit_code, collector.text, [Path(file) for file in collector.files])

    def _new_collector(self, output_dir: Path) -> ResultCollector:
        if self._like_autogen:
            return AutoGenResultCollector(output_dir, self._text_options, names_files=self._NAMES_FILES)
        return ResultCollector(output_dir, self._text_options)

    async def _run(self, session: SessionWithFunctions, block: CodeBlock, collector: ResultCollector) -> bool:
        """Run a block, and return whether the next one may follow."""
        language = None if block.language.strip().lower() in _UNNAMED_LANGUAGES else block.language
        code = quiet_pip(block.code, block.language) if self._like_autogen else block.code
        outcome = await session.run(code, language)  # `NotRun` goes to the model, as in all adapters
        if not isinstance(outcome, Execution):
            collector.note(outcome.to_text())
            return False
        if outcome.state is ExecutionState.TIMEOUT and self._like_autogen and self._RAISES_TIMEOUT:
            raise asyncio.TimeoutError(f"the code was stopped: {outcome.reason}")
        collector.add(outcome)
        note = session.pop_note(outcome)
        if note is not None:
            collector.note(note)
        lost = outcome.session_state_lost is not None and self._on_state_lost == "fail"
        return outcome.ok and not lost

    async def restart(self) -> None:
        """Start over with a fresh kernel; a running block ends as cancelled."""
        if self._resources.running is not None:
            await self._resources.running[0].restart()

    async def stop(self) -> None:
        """Shut down the kernel and a server of its own; calling it again does nothing."""
        await self._resources.stop()

    async def close(self) -> None:
        """Call `stop`; all adapters have this name."""
        await self.stop()

    def _to_config(self) -> JupyterCodeExecutorConfig:
        if self._given is not None or self._session_id is not None:
            raise ValueError("an executor that uses somebody else's session cannot be dumped")
        if self._functions:
            raise ValueError("an executor with functions cannot be dumped: whoever loads it could not see what they do")
        server: dict[str, Any] = {}
        if (info := self._connection_info) is not None:
            server = {"jupyter_server": info.url, "verify": info.verify, "client_cert": info.client_cert}
            server["token_variable"] = None if info.token is None else self._token_variable
        return self.component_config_schema(
            kernel_name=self._kernel_name,
            timeout=self._timeout,
            output_dir=None if self._output_dir is None else str(self._output_dir),
            packages=self._packages or None,
            on_state_lost=self._on_state_lost,
            like_autogen=self._like_autogen,
            **asdict(self._text_options),
            **server,
        )

    @classmethod
    def _from_config(cls, config: JupyterCodeExecutorConfig) -> Self:
        options = config.model_dump(exclude={"jupyter_server", "token_variable", "verify", "client_cert"})
        options |= {"packages": config.packages or [], "token_variable": config.token_variable or TOKEN_VARIABLE}
        return cls(jupyter_server=server_of(config), **options)


class DockerJupyterCodeExecutor(JupyterCodeExecutor):
    """A `JupyterCodeExecutor` with AutoGen's other signature: the server comes first, and must be given.

    As AutoGen's class of this name, it starts when it is first used, and code that takes too long is a result.

    Parameters
    ----------
    jupyter_server : str, JupyterConnectionInfo or JupyterConnectable
        The server, such as a `DockerJupyterServer`.
    kernel_name, timeout, output_dir
        As for `JupyterCodeExecutor`.
    **options
        Keyword options of `JupyterCodeExecutor`, but for ``session``.
    """

    _RAISES_TIMEOUT = False
    _STARTS_ITSELF = True
    _NAMES_FILES = True

    def __init__(
        self,
        jupyter_server: Server,
        kernel_name: str = "python3",
        timeout: int = 60,
        output_dir: Path | str | None = None,
        **options: Unpack[AutoGenOptions],
    ) -> None:
        if jupyter_server is None:  # the base class would start a server
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.")
        super().__init__(kernel_name, timeout, output_dir, jupyter_server=jupyter_server, **options)
