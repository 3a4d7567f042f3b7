"""Base class of the executors with a kernel: AutoGen's protocol, results, functions, and replacement of sessions."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypedDict, get_args

from ..client.fork_safety import OwnerProcess, ProcessLock
from ..errors import (
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    InvalidRequest,
    LimitReached,
    PayloadTooLarge,
    PolicyDenied,
    ServerUnreachable,
    SessionEnded,
    SessionNotFound,
)
from ..models import Execution
from ..models.plain_text import Ansi
from .code_blocks import CODE_WRITER_SYSTEM_MESSAGE, CodeBlock, IPythonCodeResult, MarkdownCodeExtractor, quiet_pip
from .code_results import ResultCollector, TextOptions
from .function_loading import FUNCTION_PROMPT_TEMPLATE, FunctionsModule, LoadedFunctions
from .function_sources import AnyFunction
from .rollback import Rollback

if TYPE_CHECKING:
    from typing_extensions import Self

OnStateLost = Literal["fail", "continue"]
# AutoGen's names for the language of a block that names none.
_UNNAMED_LANGUAGES = ("", "unknown")
# Errors for one piece of code: they go into the result, since the model can write another.
REFUSALS = (InvalidRequest, PolicyDenied, LimitReached, PayloadTooLarge)
#: Note after the reason why a session was replaced.
FRESH_SESSION = "A fresh session was started: variables, imports and definitions are gone; run what is needed again."


def check_on_state_lost(choice: OnStateLost) -> OnStateLost:
    """Return `choice`; raise `ValueError` if it is not one of the values."""
    if choice not in get_args(OnStateLost):
        raise ValueError(f"on_state_lost must be 'fail' or 'continue', not {choice!r}.")
    return choice


class ExecutorOptions(TypedDict, total=False):
    """Keyword arguments that all executors with a kernel take.

    Attributes
    ----------
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Python functions that the code can call, by name or imported from `functions_module`; none by default. Their
        source is sent to the session before any other code, and again to a fresh kernel. The packages that they need
        must be installed there.
    functions_module : str
        The name under which the code can import them, by default ``"functions"``.
    max_text_chars : int or None
        Limit of the output of one call in characters. Longer output keeps its head and tail, with a line between them
        that gives the number of characters left out. By default there is no limit.
    ansi : {"remove", "keep"}
        With ``"remove"``, the default, the output is as a terminal would finally show it, without colours and
        overwritten progress bars. With ``"keep"``, it has the escape sequences as the code wrote them.
    on_state_lost : {"fail", "continue"}
        Handling of a kernel that ended between two calls, so that a block ran in a fresh one. In both cases the output
        begins with a line about it. With ``"fail"``, the default, the exit code is 1 and later blocks of the same call
        are not run.
    silence_pip : bool
        Whether pip, called in a line of its own, prints errors only, as with AutoGen. True by default.
    packages : sequence of str
        Requirements, such as ``pandas==2.2``, that are installed before anything else; none by default. On servers with
        this package they are the session's own. A token's policy has to allow that (`packages`).
    rollback_on_error : bool
        Whether the session goes back to its state before a block if that block fails, with a line in the output. False
        by default. Only servers with this package have the checkpoints that it needs. Blocks of several threads then
        run one after the other.
    """

    functions: Sequence[AnyFunction]
    functions_module: str
    max_text_chars: int | None
    ansi: Ansi
    on_state_lost: OnStateLost
    silence_pip: bool
    packages: Sequence[str]
    rollback_on_error: bool


class CodeSession(Protocol):
    """Interface of a session as an executor uses it; the client's sessions have it."""

    @property
    def id(self) -> str:
        """The session's id, or its kernel's."""

    def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code and return the finished execution."""

    def install(self, *packages: str) -> Execution:
        """Install packages."""

    def restart(self) -> None:
        """Get a fresh kernel."""

    def close(self) -> None:
        """Shut the session down."""


class StatefulCodeExecutor(ABC):
    """Runs code blocks in a kernel that keeps its state between calls. May be used from several threads.

    Parameters
    ----------
    kernel_name : str
        The kernelspec to start.
    timeout : int
        Run time of one code block in seconds, at least 1. Code that takes longer is stopped.
    output_dir : Path or str
        Directory for images and HTML pages; must exist.
    functions, functions_module, max_text_chars, ansi, on_state_lost, silence_pip, packages, rollback_on_error
        See `ExecutorOptions`.

    Raises
    ------
    ValueError
        For a wrong argument.
    """

    CODE_WRITER_SYSTEM_MESSAGE: ClassVar[str] = CODE_WRITER_SYSTEM_MESSAGE
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE

    def __init__(
        self,
        kernel_name: str,
        timeout: int,
        output_dir: Path | str,
        *,
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
        on_state_lost: OnStateLost = "fail",
        silence_pip: bool = True,
        packages: Sequence[str] = (),
        rollback_on_error: bool = False,
    ) -> None:
        if timeout < 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        output_dir = Path(output_dir)
        if not output_dir.is_dir():
            problem = "is not a directory" if output_dir.exists() else "does not exist"
            raise ValueError(f"Output directory {output_dir} {problem}; create it, or pass output_dir=… with another.")
        self._kernel_name = kernel_name
        self._timeout = timeout
        self._output_dir = output_dir
        self._text_options = TextOptions(max_text_chars, ansi)
        self._on_state_lost = check_on_state_lost(on_state_lost)
        self._silence_pip = silence_pip
        self._packages = [packages] if isinstance(packages, str) else list(packages)
        self._functions = LoadedFunctions(FunctionsModule(functions, functions_module), float(timeout))
        self._rollback = Rollback(is_enabled=rollback_on_error)
        self._replacing = ProcessLock()
        self._stopped = False

    def _begin(self) -> None:
        """Open the session and load the functions; close everything again if that fails."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._close)
            self._session = self._open_with_packages()
            self._session_owner = OwnerProcess()
            undo.callback(self._close_session_quietly)
            self._functions.ensure(self._session)
            self._rollback.require(self._session)
            undo.pop_all()

    def _open_with_packages(self) -> CodeSession:
        session = self._open_session()
        try:
            if self._packages:
                session.install(*self._packages)
        except BaseException:
            with contextlib.suppress(ExecError):  # the error of the installation is the cause
                session.close()
            raise
        return session

    def _close_session_quietly(self) -> None:
        with contextlib.suppress(ExecError):  # the error that led here is the cause
            self._session.close()

    @abstractmethod
    def _open_session(self) -> CodeSession:
        """Open a session; raise `ValueError` if the kernelspec is not installed."""

    @abstractmethod
    def _close(self) -> None:
        """Close the client or driver that opens sessions."""

    def _replace_session(self, ended: CodeSession) -> None:
        """Replace a session that has ended, unless another thread has done so."""
        # Threads that find the same session ended must open one new session, not one each.
        with self._replacing:
            if self._session is not ended or self._stopped:
                return
            self._session = self._open_with_packages()
            self._session_owner = OwnerProcess()
        with contextlib.suppress(ExecError):  # the server has ended it; this closes our connection to its kernel
            ended.close()

    def _check_running(self) -> None:
        if self._stopped:
            raise SessionEnded("the executor was stopped; make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def code_extractor(self) -> MarkdownCodeExtractor:
        """Finds the code blocks in an agent's message."""
        return MarkdownCodeExtractor()

    @property
    def timeout(self) -> int:
        """Run time of one code block in seconds."""
        return self._timeout

    @property
    def output_dir(self) -> Path:
        """Directory for images and HTML pages."""
        return self._output_dir

    @property
    def functions(self) -> list[str]:
        """The names of the functions that the code can call."""
        return list(self._functions.module.names)

    @property
    def functions_module(self) -> str:
        """The name under which the code can import them."""
        return self._functions.module.name

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Return a description of the functions for a model.

        Parameters
        ----------
        prompt_template : str
            A template with ``$functions`` for their signatures and documentation and ``$module_name`` for their module.
        """
        return self._functions.module.prompt(prompt_template)

    def execute_code_blocks(self, code_blocks: Sequence[CodeBlock]) -> IPythonCodeResult:
        """Run code blocks one after the other, up to the first that fails or finds the session's state lost.

        Parameters
        ----------
        code_blocks : sequence of CodeBlock
            The blocks to run.

        Returns
        -------
        IPythonCodeResult
            The output of all blocks that ran, that of the failing one included.

        Raises
        ------
        ExecError
            If the server cannot be reached, or the executor was stopped. If the server refuses code, the result gives
            the reason, for the model. If the server has ended the session, a fresh one is started, and the result says
            that the variables are gone.
        ValueError
            If the functions cannot be loaded into a fresh kernel.
        """
        self._check_running()
        collector = ResultCollector(self._output_dir, self._text_options)
        exit_code = 0
        for block in code_blocks:
            with self._rollback.one_block():
                may_continue = self._run_block(block, collector)
            if not may_continue:
                exit_code = 1
                break
        return IPythonCodeResult(exit_code, collector.text, collector.files)

    def _run_block(self, block: CodeBlock, collector: ResultCollector) -> bool:
        """Run one block; return whether the next may run."""
        language = None if block.language.strip().lower() in _UNNAMED_LANGUAGES else block.language
        code = quiet_pip(block.code, block.language) if self._silence_pip else block.code
        session = self._session  # another thread may replace it meanwhile
        try:
            self._functions.ensure(session)
            self._rollback.mark(session)
            execution = session.run(code, timeout_seconds=float(self._timeout), language=language)
        except REFUSALS as error:
            collector.note(f"Not run: {error.message}")
            return False
        except (SessionEnded, SessionNotFound) as error:
            self._check_running()  # `stop` in another thread ends the session, too
            self._replace_session(session)
            collector.note(f"Not run: {error.message}. {FRESH_SESSION}")
            return False
        collector.add(execution)
        note = self._functions.describe_lost_functions(session, execution)
        if note is not None:
            collector.note(note)
        if note := self._rollback.undo(execution, self._functions):
            collector.note(note)
        if execution.session_state_lost is not None and self._on_state_lost == "fail":
            return False
        return execution.ok

    def restart(self) -> None:
        """Start over with a fresh kernel; a block that runs in another thread ends as cancelled."""
        self._check_running()
        session = self._session
        self._functions.forget()  # a block that waits for the fresh kernel must not count on them
        try:
            session.restart()
        except (SessionEnded, SessionNotFound):
            self._replace_session(session)
        self._functions.reload(self._session)

    def close(self) -> None:
        """Call `stop`; this is the clients' name for it."""
        self.stop()

    def stop(self) -> None:
        """Shut the kernel down and close the connection; calling it again does nothing.

        In a forked child the parent's kernel stays. A server that cannot be reached is no error: it ends the session
        when it has been idle for long.
        """
        # A replacement under way is waited for, so that the session it opens is closed below.
        with self._replacing:
            if self._stopped:
                return
            self._stopped = True
        try:
            if self._session_owner.is_current():
                with contextlib.suppress(ConnectionFailed, ConnectionLost, ServerUnreachable):
                    self._session.close()
        finally:
            self._close()
