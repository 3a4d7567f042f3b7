"""Code execution for AutoGen 0.4 and later: its executors, as components that can be dumped and loaded."""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor

from ..client.access_tokens import TokenProvider
from ..client.server_connection import connection_to
from ..errors import KernelSpecNotFound
from ..executors.cancellation import cancel_with
from ..executors.code_results import ResultCollector, TextOptions
from ..executors.function_loading import FunctionsModule
from ..executors.function_sources import AnyFunction
from ..executors.prompts import FUNCTION_PROMPT_TEMPLATE
from ..executors.quiet_pip import quiet_pip
from ..executors.stateful_executor import OnStateLost, check_on_state_lost
from ..models import Execution, ExecutionState
from ..models.plain_text import Ansi
from ._autogen_aca import ACADynamicSessionsCodeExecutor, ACADynamicSessionsCodeExecutorConfig
from ._autogen_config import JupyterCodeExecutorConfig, check_token_variable, server_of
from ._autogen_docker import DockerJupyterServer
from ._autogen_results import AutoGenResultCollector, JupyterCodeResult
from ._autogen_session import SessionWithFunctions, run_own_server
from ._code_session import Server, Session

if TYPE_CHECKING:
    from typing_extensions import Self

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

# What AutoGen calls a block whose language nobody named.
_UNNAMED_LANGUAGES = ("", "unknown")
#: Where our command line looks for a server's token, too.
TOKEN_VARIABLE = "JUPYTER_TOKEN"


#: The same, by AutoGen's other name.
DockerJupyterCodeResult = JupyterCodeResult


class JupyterCodeExecutor(CodeExecutor, Component[JupyterCodeExecutorConfig]):
    """Runs code blocks in a Jupyter kernel that keeps its state between calls.

    It starts with `start`, or as a context manager, and can be started again after `stop`. Cancelling a block's
    `CancellationToken` stops its code on the server, and raises `asyncio.CancelledError`.

    Parameters
    ----------
    kernel_name : str
        The kernelspec to start, which must be installed on the server.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str, optional
        Where images and HTML pages are saved. Without it, a directory that is there until `stop`.
    jupyter_server : str, JupyterConnectionInfo or JupyterConnectable, optional
        Where the server is. Without it, a Kernel Gateway on this machine is started, and stopped by `stop`.
    token : str, optional
        The server's token.
    token_variable : str
        The environment variable from which the token is read where the executor was loaded from its dump, which holds
        this name in the token's place: ``JUPYTER_TOKEN`` or ``JUPYTER_…_TOKEN``.
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Python functions that the code can call, by name or imported from `functions_module`; AutoGen's own records are
        taken as well. Their source is sent to the session before any other code, and again to a fresh kernel. What they
        need must be installed there.
    functions_module : str
        The name under which the code can import them.
    session_id : str, optional
        A session of the server, whose kernel is then used instead of a new one. It is neither replaced nor ended.
    session : AsyncExecSession, ExecSession or AsyncStandardExecSession, optional
        The same, as an object, which knows its server.
    max_text_chars, ansi, on_state_lost
        How output is given, and what follows a lost state; see `jupyter_exec_ext.JupyterCodeExecutor`.
    like_autogen : bool
        Whether to do as AutoGen's own class does: code that takes too long raises `asyncio.TimeoutError`, a run before
        `start` raises `RuntimeError`, pip prints errors only, and outputs are put together as there. With False, code
        that takes too long is a result, the first run starts the kernel, and the output names the files.

    Raises
    ------
    ValueError
        For a wrong argument.
    """

    # What AutoGen's class does; that of its class for Docker differs.
    _RAISES_TIMEOUT = True
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
            self._connection_info = None if jupyter_server is None else connection_to(jupyter_server, token)
        except TypeError:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.") from None
        self._kernel_name = kernel_name
        self._timeout = timeout
        self._on_state_lost = check_on_state_lost(on_state_lost)
        self._like_autogen = like_autogen
        self._output_dir = None if output_dir is None else Path(output_dir)
        self._text_options = TextOptions(max_text_chars, ansi)
        self._functions = FunctionsModule(functions, functions_module)
        self._token_variable = check_token_variable(token_variable)
        self._session_id, self._given = session_id, session
        self._starting = asyncio.Lock()
        self._running: tuple[SessionWithFunctions, Path] | None = None
        self._resources = AsyncExitStack()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._given or self._connection_info!r}, kernel_name={self._kernel_name!r})"

    @property
    def timeout(self) -> int:
        """Run time of one code block in seconds."""
        return self._timeout

    @property
    def output_dir(self) -> Path | None:
        """Where images and HTML pages are saved; None while that is still to be chosen."""
        if self._output_dir == Path(".") and self._like_autogen:
            message = "Using the current directory as output_dir is deprecated"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self._running[1] if self._running is not None else self._output_dir

    @property
    def functions(self) -> list[str]:
        """The names of the functions that the code can call."""
        return list(self._functions.names)

    @property
    def functions_module(self) -> str:
        """The name under which the code can import them."""
        return self._functions.name

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Return what a model has to be told of the functions.

        Parameters
        ----------
        prompt_template : str
            In which ``$functions`` stands for their signatures and documentation, ``$module_name`` for their module.
        """
        return self._functions.prompt(prompt_template)

    async def start(self) -> None:
        """Start the kernel; calling it again does nothing.

        Raises
        ------
        ValueError
            If the kernelspec is not installed, if the functions cannot be loaded (then it names the packages that are
            missing), or if the server of this machine does not start.
        ExecError
            If the server cannot be reached or refuses.
        """
        await self._started()

    async def _started(self) -> tuple[SessionWithFunctions, Path]:
        async with self._starting:
            if self._running is None:
                async with AsyncExitStack() as stack:  # which undoes all if it is left by an exception
                    session = await stack.enter_async_context(await self._new_session(stack))
                    try:
                        await session.open()
                    except KernelSpecNotFound as error:
                        raise ValueError(f"Kernel {self._kernel_name} is not installed.") from error
                    output_dir = self._output_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    await asyncio.to_thread(output_dir.mkdir, parents=True, exist_ok=True)
                    self._resources = stack.pop_all()
                self._running = session, output_dir
            return self._running

    async def _new_session(self, stack: AsyncExitStack) -> SessionWithFunctions:
        options: dict[str, Any] = {"timeout_seconds": float(self._timeout), "name": "JupyterCodeExecutor"}
        if self._given is not None:
            return SessionWithFunctions(self._functions, session=self._given, **options)
        server: Server | None = self._connection_info
        if self._session_id is not None:
            return SessionWithFunctions(self._functions, server=server, session_id=self._session_id, **options)
        if server is None:
            server = await stack.enter_async_context(run_own_server())
        return SessionWithFunctions(self._functions, server=server, kernel_name=self._kernel_name, **options)

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> JupyterCodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Returns
        -------
        JupyterCodeResult
            The output of all blocks that ran, that of the failing one included.

        Raises
        ------
        asyncio.CancelledError
            If the token is cancelled. The code has been stopped then.
        asyncio.TimeoutError
            If code takes too long, as in AutoGen. It has been stopped then.
        RuntimeError
            If it was not started, as in AutoGen.
        ExecError
            If the server cannot be reached or refuses. A session that the server has ended is no error: the result
            says that the variables are gone, and the next block gets a fresh one.
        """
        if cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        running = asyncio.create_task(self._execute(code_blocks))
        cancel_with(cancellation_token, running)
        return await running

    async def _execute(self, code_blocks: Sequence[CodeBlock]) -> JupyterCodeResult:
        if self._running is None and self._like_autogen and not self._STARTS_ITSELF:
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
        outcome = await session.run(code, language)
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
        """Start over with a fresh kernel; a block that runs meanwhile ends as cancelled."""
        if self._running is not None:
            await self._running[0].restart()

    async def stop(self) -> None:
        """Shut down the kernel and what was started for it; calling it again does nothing."""
        async with self._starting:
            resources, self._resources, self._running = self._resources, AsyncExitStack(), None
        self._starting = asyncio.Lock()  # a lock that tasks have waited for belongs to their event loop
        await resources.aclose()

    async def close(self) -> None:
        """Do the same as `stop`, by the name that all adapters have."""
        await self.stop()

    def _to_config(self) -> JupyterCodeExecutorConfig:
        if self._given is not None or self._session_id is not None:
            raise ValueError("an executor that uses somebody else's session cannot be dumped")
        if self._functions:
            raise ValueError("an executor with functions cannot be dumped: whoever loads it could not see what they do")
        config: dict[str, Any] = {
            "kernel_name": self._kernel_name,
            "timeout": self._timeout,
            "on_state_lost": self._on_state_lost,
            "like_autogen": self._like_autogen,
            **asdict(self._text_options),
        }
        if self._output_dir is not None:
            config["output_dir"] = str(self._output_dir)
        info = self._connection_info
        if info is not None:
            config.update(jupyter_server=info.url, verify=info.verify, client_cert=info.client_cert)
            config["token_variable"] = None if info.token is None else self._token_variable
        return self.component_config_schema(**config)

    @classmethod
    def _from_config(cls, config: JupyterCodeExecutorConfig) -> Self:
        arguments: dict[str, Any] = {
            "jupyter_server": server_of(config),
            "max_text_chars": config.max_text_chars,
            "ansi": config.ansi,
            "on_state_lost": config.on_state_lost,
            "like_autogen": config.like_autogen,
        }
        if config.token_variable is not None:
            arguments["token_variable"] = config.token_variable
        return cls(kernel_name=config.kernel_name, timeout=config.timeout, output_dir=config.output_dir, **arguments)


class DockerJupyterCodeExecutor(JupyterCodeExecutor):
    """The same with AutoGen's other signature: the server comes first, and must be given.

    As AutoGen's class of this name, it starts when it is first used, and code that takes too long is a result.

    Parameters
    ----------
    jupyter_server : str, JupyterConnectionInfo or JupyterConnectable
        Where the server is, such as a `DockerJupyterServer`.
    kernel_name, timeout, output_dir, token, token_variable, functions, functions_module, session_id, on_state_lost
        As for `JupyterCodeExecutor`.
    max_text_chars, ansi, like_autogen
        As for `JupyterCodeExecutor`.
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
        *,
        token: str | None = None,
        token_variable: str = TOKEN_VARIABLE,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        session_id: str | None = None,
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        like_autogen: bool = True,
    ) -> None:
        if jupyter_server is None:
            raise ValueError("jupyter_server must be a JupyterConnectable or JupyterConnectionInfo.")
        super().__init__(
            kernel_name,
            timeout,
            output_dir,
            jupyter_server=jupyter_server,
            token=token,
            token_variable=token_variable,
            functions=functions,
            functions_module=functions_module,
            session_id=session_id,
            max_text_chars=max_text_chars,
            ansi=ansi,
            on_state_lost=on_state_lost,
            like_autogen=like_autogen,
        )
