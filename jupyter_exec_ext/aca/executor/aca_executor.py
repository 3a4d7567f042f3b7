"""AutoGen's executor for Azure Container Apps (ACA) dynamic sessions; it works with and without AutoGen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import ConnectionLost, PropertiesMissing, SessionEnded
from ...executors.cancellation import CancellationToken, cancelled_by
from ...executors.code_blocks import CodeBlock, CodeResult, IPythonCodeResult
from ...executors.code_results import ResultCollector, TextOptions
from ...executors.function_loading import FunctionsModule
from ...executors.function_sources import AnyFunction
from ...executors.stateful_executor import FRESH_SESSION, REFUSALS
from ...models import ExecutionState
from ...models.plain_text import Ansi
from ...protocol.languages import normalize_language
from ..protocol.addresses import ALLOWED_HOSTS, DEFAULT_API_VERSION, SCOPE
from .pool_session import PoolSessions

if TYPE_CHECKING:
    from typing_extensions import Self

    from ...client.access_tokens import AsyncTokenProvider, TokenProvider

EXIT_ERROR, EXIT_TIMEOUT = 1, 124  # as coreutils' `timeout` ends
_UNNAMED_LANGUAGES = ("", "unknown")  # AutoGen's words for a block without a language


class ACADynamicSessionsCodeExecutor:
    """Executor of code blocks in a session of an ACA session pool, which keeps its state between calls.

    The session starts with the first call that needs it. Use it from one event loop at a time.

    Parameters
    ----------
    pool_management_endpoint : str
        The pool's management endpoint.
    credential : TokenProvider or AsyncTokenProvider
        Source of access tokens, such as a credential of ``azure.identity`` or ``azure.identity.aio``; never closed.
    timeout : int
        Time limit of one code block in seconds, at least 1. Azure stops a block after 220 s in any case.
    work_dir : Path, str or None
        Directory of uploads and downloads; created if missing. None is the current directory.
    functions : sequence of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        Python functions that the code can call, by name or imported from `functions_module`; AutoGen's own records
        work as well. Their source runs in a session before any other code. Their packages must be installed there.
    functions_module : str
        Name of the module from which the code can import them.
    suppress_result_output : bool
        Leave out the value of a block's last expression.
    session_id : str, optional
        Identifier of the session to use, 4 to 128 characters. All users of the pool who know it share the session.
        `stop` keeps it until its idle time is over; `restart` and cancelling code in it delete it. By default it is
        random, and `stop` deletes the session.
    api_version : str
        Version of the protocol.
    output_dir : Path or str, optional
        Directory of pictures, pages and saved files, under unused names; `work_dir` by default.
    save_files : bool
        Save the files that code has written to ``/mnt/data``, too, after each call. This costs one more request.
    allowed_hosts, scope, verify
        As for `AsyncACAClient`.
    max_text_chars : int, optional
        Highest length of one call's output in characters; a longer one keeps its head and tail. No limit by default.
    ansi : {"remove", "keep"}
        "remove" gives the output as a terminal shows it in the end, without colours and overwritten progress bars.
        "keep" leaves escape sequences as the code wrote them.

    Raises
    ------
    ValueError
        If an argument is wrong. The endpoint, the identifier and the version are checked at their first use, by
        `start` at the latest, which raises `InvalidRequest`.

    Examples
    --------
    >>> async with ACADynamicSessionsCodeExecutor(endpoint, DefaultAzureCredential()) as executor:
    ...     result = await executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")])
    >>> print(result.output)
    42
    """

    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = "You have access to the following user defined functions.\n\n$functions"
    SUPPORTED_LANGUAGES: ClassVar[list[str]] = ["python"]

    def __init__(
        self,
        pool_management_endpoint: str,
        credential: TokenProvider | AsyncTokenProvider,
        timeout: int = 60,
        work_dir: Path | str | None = ".",
        functions: Sequence[AnyFunction] = (),
        functions_module: str = "functions",
        suppress_result_output: bool = False,
        session_id: str | None = None,
        *,
        api_version: str = DEFAULT_API_VERSION,
        output_dir: Path | str | None = None,
        save_files: bool = False,
        allowed_hosts: Sequence[str] = ALLOWED_HOSTS,
        scope: str = SCOPE,
        verify: bool | str = True,
        max_text_chars: int | None = None,
        ansi: Ansi = "remove",
    ) -> None:
        if timeout < 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        self._pool_management_endpoint = pool_management_endpoint
        self._credential = credential
        self._timeout = timeout
        self._work_dir = Path("." if work_dir is None else work_dir)
        self._output_dir = self._work_dir if output_dir is None else Path(output_dir)
        for directory in (self._work_dir, self._output_dir):
            directory.mkdir(parents=True, exist_ok=True)
        self._functions = FunctionsModule(functions, functions_module)
        self._suppress_result_output = suppress_result_output
        self._save_files = save_files
        self._text_options = TextOptions(max_text_chars, ansi)
        self._named_session_id = session_id
        self._client_options: dict[str, Any] = {
            "api_version": api_version,
            "allowed_hosts": tuple(allowed_hosts),
            "scope": scope,
            "verify": verify,
        }
        self._sessions = PoolSessions(
            pool_management_endpoint, credential, self._client_options, session_id, self._functions, timeout
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._pool_management_endpoint!r})"

    @property
    def _session_id(self) -> str:
        """The id of the session that the next block runs in, by AutoGen's name; its own test (0.7.5) assigns it."""
        return self._sessions.identifier

    @_session_id.setter
    def _session_id(self, identifier: str) -> None:
        self._sessions.identifier = identifier

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def timeout(self) -> int:
        """Time limit of one code block in seconds."""
        return self._timeout

    @property
    def work_dir(self) -> Path:
        """Directory of uploads and downloads."""
        return self._work_dir

    @property
    def output_dir(self) -> Path:
        """Directory of pictures, pages and saved files."""
        return self._output_dir

    @property
    def functions(self) -> list[str]:
        """Names of the functions that the code can call."""
        return list(self._functions.names)

    @property
    def functions_module(self) -> str:
        """Name of the module from which the code can import the functions."""
        return self._functions.name

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Return the part of a prompt that describes the functions.

        Parameters
        ----------
        prompt_template : str
            Text in which ``$functions`` stands for signatures and documentation, ``$module_name`` for the module.
        """
        return self._functions.prompt(prompt_template)

    async def start(self) -> None:
        """Check the endpoint and the version; send nothing, since a session starts at its first use.

        Raises
        ------
        InvalidRequest
            If the endpoint is not valid or may not get access tokens, or the api-version is unknown.
        """
        self._sessions.open()

    async def restart(self) -> None:
        """Delete the session; the next call starts a fresh one under a random identifier.

        A block that runs meanwhile ends as cancelled.
        """
        await self._sessions.restart()

    async def stop(self) -> None:
        """Delete the session, unless `session_id` named it, and close the connections. The next call opens them again.

        An unreachable service is not an error: the session ends after its idle time.
        """
        await self._sessions.stop()

    async def close(self) -> None:
        """Do the same as `stop`."""
        await self.stop()

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken | None = None
    ) -> CodeResult:
        """Run code blocks one after the other, up to the first that fails.

        Returns
        -------
        IPythonCodeResult
            Output of all blocks that ran, including the failing one. The exit code is 124 if a block ran longer than
            `timeout`, otherwise 1 if one failed.

        Raises
        ------
        asyncio.CancelledError
            If the token is cancelled. The session is deleted then, since ACA has no other way to stop code.
        ValueError
            If the functions cannot be loaded; the message names missing packages.
        ExecError
            If the service cannot be reached or refuses the call. Refused code and an ended session are results, not
            errors; the next call has a fresh session.
        """
        return await cancelled_by(cancellation_token, self._execute(code_blocks))

    async def _execute(self, code_blocks: Sequence[CodeBlock]) -> CodeResult:
        collector = ResultCollector(self._output_dir, self._text_options)
        if self._save_files:
            session = await self._sessions.current()
            try:
                await session.check()
            except SessionEnded as error:
                collector.note(f"Not run: {error.message}. {FRESH_SESSION}")
                return self._result(EXIT_ERROR, collector.text, [])
            finally:
                self._sessions.release(session)
            await session.files.remember()
        exit_code = 0
        for block in code_blocks:
            exit_code = await self._run(block, collector)
            if exit_code:
                break
        saved: list[str] = []
        if self._save_files:
            saved, note = await (await self._sessions.current()).files.save_new(self._output_dir)
            collector.note(note)
        return self._result(exit_code, collector.text, [*collector.files, *saved])

    def _result(self, exit_code: int, output: str, output_files: list[str]) -> CodeResult:  # overridden for AutoGen
        return IPythonCodeResult(exit_code, output, output_files)

    async def _run(self, block: CodeBlock, collector: ResultCollector) -> int:
        language = block.language.strip()
        if language.lower() not in _UNNAMED_LANGUAGES and normalize_language(language) not in self.SUPPORTED_LANGUAGES:
            collector.note(f"Not run: unknown language {language}; this runs {', '.join(self.SUPPORTED_LANGUAGES)}")
            return EXIT_ERROR
        session = await self._sessions.current()
        note, self._sessions.note = self._sessions.note, ""
        collector.note(note)
        try:
            execution = await session.run(block.code, with_value=not self._suppress_result_output)
        except PropertiesMissing:  # the model cannot help: the caller has to choose another api-version
            raise
        except REFUSALS as error:
            collector.note(f"Not run: {error.message}")
            return EXIT_ERROR
        except (SessionEnded, ConnectionLost) as error:
            word = "Lost" if isinstance(error, ConnectionLost) else "Not run"
            collector.note(f"{word}: {error.message}. {FRESH_SESSION}")
            return EXIT_ERROR
        except asyncio.CancelledError:
            if session.over is not None:
                self._sessions.note = f"Lost: {session.over}. {FRESH_SESSION}"
            raise
        finally:
            self._sessions.release(session)
        collector.add(execution)
        if execution.state is ExecutionState.ERROR and execution.session_state_preserved is False:
            collector.note(f"Lost: {execution.reason}. {FRESH_SESSION}")
        return EXIT_TIMEOUT if execution.state is ExecutionState.TIMEOUT else 0 if execution.ok else EXIT_ERROR

    async def get_available_packages(self, cancellation_token: CancellationToken | None = None) -> set[str]:
        """Return the names of the packages that are installed in the session.

        Raises
        ------
        ValueError
            If the question fails in the session, or the functions cannot be loaded.
        """
        return await cancelled_by(cancellation_token, self._sessions.use(lambda session: session.packages()))

    async def get_file_list(self, cancellation_token: CancellationToken | None = None) -> list[str]:
        """Return the paths of files in ``/mnt/data``; before api-version 2025-10-02 without those in directories."""
        return await cancelled_by(cancellation_token, self._sessions.use(lambda session: session.files.names()))

    async def upload_files(
        self, files: Sequence[Path | str], cancellation_token: CancellationToken | None = None
    ) -> None:
        """Upload files to ``/mnt/data`` of the session, each under its own name without directories.

        Parameters
        ----------
        files : sequence of Path or str
            Relative to `work_dir`.

        Raises
        ------
        FileNotFoundError
            If one does not exist; then none is uploaded.
        ValueError
            If two have the same name.
        """
        uploading = self._sessions.use(lambda session: session.files.upload(self._work_dir, files))
        await cancelled_by(cancellation_token, uploading)

    async def download_files(
        self, files: Sequence[Path | str], cancellation_token: CancellationToken | None = None
    ) -> list[str]:
        """Download files of the session to `work_dir`, and replace files of the same names.

        Parameters
        ----------
        files : sequence of Path or str
            Relative to ``/mnt/data``.

        Returns
        -------
        list of str
            Their local paths.

        Raises
        ------
        FileNotFoundError
            If the session has no such file.
        """
        downloading = self._sessions.use(lambda session: session.files.download(self._work_dir, files))
        return await cancelled_by(cancellation_token, downloading)
