"""The asynchronous client. Its twin in `sync/` is generated; change this one.

For example::

    async with AsyncExecClient("http://localhost:8888/?token=…") as client, await client.session() as session:
        print((await session.run("1 + 1")).outputs)
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...errors import ExecError
from ...models import Change, Execution, FileInfo, KernelSpecInfo, OutputEvent, Session
from ...protocol.strict_json import dump_bytes
from ..api.change_stream import ChangeFollower
from ..api.file_transfers import FileListing, FilesApi, save_locally
from ..api.operations import FRESH_SESSION, ExecApi, execution_request, executions_of, new_key, session_request
from ..api.outage_retry import DEFAULT_OUTAGE_SECONDS, RetryPolicy
from ..api.steps import Result
from ..jupyter.standard_session import StandardSession, open_standard_session
from ..local_files import FileSource, FileTarget, MemoryTarget, Progress, Uploadable, download_path, upload_path
from ..server_connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from .driver import AioDriver, AnswerInput, RunLock
from .execution_handle import AsyncExecutionHandle as AsyncExecutionHandle
from .tokens import AsyncExecApprovals, AsyncExecTokens

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncExecClient:
    """Client of a server's ``exec/v1`` API.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        A URL (a ``?token=`` in it is taken out and sent as a header), where a server is, or something that knows.
    token : str, optional
        The server's token, if `server` is a URL without one.
    max_retries : int
        How often a request that is safe to repeat is repeated, with growing pauses.
    outage_seconds : float
        For how long runs and streams wait for a server that has answered before and does not now, such as behind a
        proxy that restarts. They end as if nothing had happened, or with `ConnectionLost`.

    Attributes
    ----------
    tokens : AsyncExecTokens
        The server's scoped tokens and policies.
    approvals : AsyncExecApprovals
        The executions that wait for a person's approval.

    Notes
    -----
    Every call may raise the errors of `jupyter_exec_ext.errors`: the server's refusals by their code, and
    `ConnectionFailed` or `ConnectionLost` where the network fails. Concurrent calls are fine.
    """

    def __init__(
        self,
        server: str | JupyterConnectionInfo | JupyterConnectable,
        token: str | None = None,
        *,
        max_retries: int = 4,
        outage_seconds: float = DEFAULT_OUTAGE_SECONDS,
    ) -> None:
        self.connection_info = connection_to(server, token)
        self._retry = RetryPolicy(max_retries, outage_seconds=outage_seconds, why_lost=self.connection_info.why_lost)
        self._api = ExecApi(self._retry)
        self._driver = AioDriver(self.connection_info)
        self.tokens = AsyncExecTokens(self._driver, self._retry)
        self.approvals = AsyncExecApprovals(self._driver, self._retry)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection_info.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Sessions go on living on the server."""
        await self._driver.close()

    async def info(self) -> dict[str, Any]:
        """Return what the server is and what the caller may do there."""
        return await self._driver.perform(self._api.info())

    async def kernelspecs(self) -> list[KernelSpecInfo]:
        """Return the kernelspecs a session may use."""
        return await self._driver.perform(self._api.kernelspecs())

    async def events(self, after: str = "") -> AsyncIterator[Change]:
        """Yield what happens to the sessions, executions and tokens that the caller may see, without end.

        The first is a reset (`Change.is_reset`): list what there is; what follows changes it. A cut connection is
        resumed without a gap or, if too much has happened meanwhile, with another reset.

        Parameters
        ----------
        after : str
            The `Change.id` to go on after, without a reset if none is missing.
        """
        async for change in self._driver.stream(ChangeFollower(self._retry, after).follow(), Result()):
            yield change

    async def session(
        self,
        kernel_name: str | None = None,
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idle_timeout_seconds: float | None = None,
        kernel_id: str | None = None,
        isolation: str | None = None,
    ) -> AsyncExecSession:
        """Start a session; as a context manager it is deleted at the end.

        Parameters
        ----------
        kernel_name : str, optional
            A kernelspec; without it, the server's default.
        env : mapping, optional
            Environment variables for the kernel.
        idle_timeout_seconds : float, optional
            After how much idle time the server ends the session; 0 for never, None for the server's default.
        kernel_id : str, optional
            A kernel that runs already, such as a notebook's, to share with its user instead of starting one. It goes
            on when the session ends.
        isolation : str, optional
            The least isolation that the kernel must have: ``"landlock"``, ``"sandbox"`` or ``"remote"``. Without it,
            what the server and the token's policy say.
        """
        request = session_request(kernel_name, name, env, metadata, idle_timeout_seconds, kernel_id, isolation)
        record = await self._driver.perform(self._api.open_session(request))
        return AsyncExecSession(self._driver, self._api, record)

    async def run(
        self,
        code: str,
        *,
        kernel_name: str | None = None,
        env: Mapping[str, str] | None = None,
        isolation: str | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
        idempotency_key: str | None = None,
    ) -> Execution:
        """Run code in a fresh session, which ends with it, and return the finished execution.

        It is one request, and so faster than to start a session for one run. What is true of a session's `run` is true
        of this one: the code runs once, and whoever leaves early cancels it.

        Parameters
        ----------
        kernel_name, env, isolation
            As for `session`.
        timeout_seconds, language, metadata, on_event, on_input, idempotency_key
            As for the `run` of a session.
        """
        session = session_request(kernel_name, "", env, None, None, None, isolation)
        request = execution_request(code, timeout_seconds, language, metadata, on_input is not None)
        request |= {"session": session} if session else {}
        key = idempotency_key or new_key()
        if on_event is None and on_input is None:
            operation = self._api.run(FRESH_SESSION, request, key)
        else:
            operation = self._api.stream(FRESH_SESSION, request, key)
        return await self._driver.perform(self._api.in_fresh_session(operation), on_event, on_input)

    async def get_session(self, session_id: str) -> AsyncExecSession:
        """Return a session that exists, whoever of the same caller started it."""
        record = await self._driver.perform(self._api.get_session(session_id))
        return AsyncExecSession(self._driver, self._api, record)

    async def list_sessions(self, *, ended: bool = False, memory: bool = False) -> list[Session]:
        """Return the caller's sessions; with `ended`, those that have ended too; with `memory`, what kernels use."""
        return await self._driver.perform(self._api.list_sessions(ended=ended, memory=memory))

    async def get_execution(self, execution_id: str) -> AsyncExecutionHandle:
        """Return an execution that exists, to read, follow or cancel it."""
        record = await self._driver.perform(self._api.get_execution(execution_id))
        return AsyncExecutionHandle(self._driver, self._api, record)

    async def standard_session(
        self,
        kernel_name: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int = 32 * 1024 * 1024,
    ) -> AsyncStandardExecSession:
        """Start a kernel through the standard Jupyter API, on any Jupyter server, and use it as a session.

        Parameters
        ----------
        env : mapping, optional
            Environment variables for the kernel, as far as the server takes them; Jupyter Server takes none.
        max_output_bytes : int
            The output of an execution that is kept.
        """
        operation = open_standard_session(kernel_name, env, self._retry, max_output_bytes)
        return AsyncStandardExecSession(self._driver, await self._driver.perform(operation))


class AsyncExecSession:
    """A session on the server. As a context manager it is deleted at the end."""

    def __init__(self, driver: AioDriver, api: ExecApi, record: Session) -> None:
        self.record = record
        self._driver = driver
        self._api = api
        self._files = FilesApi(api.retry)
        self._place = executions_of(record.id)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where its server is."""
        return self._driver.connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, kernel_name={self.record.kernel_name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc_type is None:
            await self.close()
            return
        with contextlib.suppress(ExecError):  # the exception under way says more than that this fails, too
            await self._driver.perform_to_the_end(self._api.hurried.delete_session(self.id))

    async def run(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
        idempotency_key: str | None = None,
    ) -> Execution:
        """Run code and return the finished execution, whether it went well or not.

        Lost connections and answers are made up for: the code runs once. Whoever leaves early, by Ctrl-C or by
        cancelling the task, cancels the execution as well.

        Parameters
        ----------
        timeout_seconds : float, optional
            The code's run time, after which it is stopped; None for the server's default.
        language : str, optional
            The code's language; None for the kernel's own.
        on_event : callable, optional
            Gets every output event as it comes.
        idempotency_key : str, optional
            Whoever runs the same code with the same key again, from wherever, gets the same execution.
        on_input : callable, optional
            Answers ``input()``; without it, ``input()`` raises in the code.
        """
        request = execution_request(code, timeout_seconds, language, metadata, on_input is not None)
        if on_event is None and on_input is None:
            return await self._driver.perform(self._api.run(self._place, request, idempotency_key or new_key()))
        operation = self._api.stream(self._place, request, idempotency_key or new_key())
        return await self._driver.perform(operation, on_event, on_input)

    async def stream(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_input: AnswerInput | None = None,
    ) -> AsyncIterator[OutputEvent]:
        """Run code and yield its output events as they come; the last is an `EndEvent` with the finished execution.

        A cut connection is resumed without a gap. Leaving the loop early leaves the code running; Ctrl-C, or a task
        that is cancelled while it waits here, stops it.
        """
        request = execution_request(code, timeout_seconds, language, metadata, on_input is not None)
        async for event in self._driver.stream(self._api.stream(self._place, request, new_key()), Result(), on_input):
            yield event

    async def submit(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        allow_input: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncExecutionHandle:
        """Queue code and return at once, with a handle on the execution.

        Parameters
        ----------
        idempotency_key : str, optional
            Whoever submits the same code with the same key again, from wherever, gets the same execution.
        """
        request = execution_request(code, timeout_seconds, language, metadata, allow_input)
        record = await self._driver.perform(self._api.submit(self._place, request, idempotency_key or new_key()))
        return AsyncExecutionHandle(self._driver, self._api, record)

    async def list_executions(self, limit: int = 100) -> list[Execution]:
        """Return the newest executions, oldest first, without their outputs."""
        return await self._driver.perform(self._api.list_executions(self.id, limit))

    async def notebook(self) -> dict[str, Any]:
        """Return the session as a notebook (nbformat 4.5), with a code cell for each execution."""
        return await self._driver.perform(self._api.notebook(self.id))

    async def save_notebook(self, path: str | os.PathLike[str]) -> None:
        """Write the session as a notebook to a local file."""
        content = dump_bytes(await self.notebook())
        await self._driver.perform(save_locally(FileTarget(Path(path)), content))

    async def save_notebook_on_server(self, path: str) -> str:
        """Save the session as a notebook on the server, below its root directory; return its path there.

        Raises
        ------
        Conflict
            If there is such a file already, or the host keeps no notebooks (a Kernel Gateway).
        """
        return await self._driver.perform(self._api.save_notebook(self.id, path))

    async def list_files(self, path: str = "", *, sha256: bool = False) -> FileListing:
        """Return the files in the session's working directory, by path.

        Parameters
        ----------
        path : str
            Only those below this directory.
        sha256 : bool
            Let the server read and hash them all.
        """
        return await self._driver.perform(self._files.list_files(self.id, path, sha256=sha256))

    async def upload(
        self, source: Uploadable, remote_path: str | None = None, *, progress: Progress | None = None
    ) -> FileInfo:
        """Upload a file; it is there as a whole or not at all.

        Parameters
        ----------
        source : str, path or binary file
            What to upload.
        remote_path : str, optional
            Where to, in the session's working directory; without it, the local file's name.
        progress : callable, optional
            Gets the bytes sent and the bytes in all (None if that is not known) as it goes on.
        """
        target = upload_path(source, remote_path)
        return await self._driver.perform(self._files.upload(self.id, target, FileSource(source, progress)))

    async def download(
        self, remote_path: str, local_path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Path:
        """Download a file and return where it is; it is there as a whole or not at all.

        Parameters
        ----------
        local_path : str or path
            Where to; into a directory, it goes under its own name.
        progress : callable, optional
            Gets the bytes received and the bytes in all as it goes on.
        """
        target = FileTarget(download_path(local_path, remote_path))
        await self._driver.perform(self._files.download(self.id, remote_path, target, progress))
        return target.path

    async def read_file(self, path: str) -> bytes:
        """Return the content of a file."""
        target = MemoryTarget()
        await self._driver.perform(self._files.download(self.id, path, target, None))
        return target.data()

    async def write_file(self, path: str, data: bytes) -> FileInfo:
        """Write a file."""
        return await self._driver.perform(self._files.upload(self.id, path, FileSource(io.BytesIO(data))))

    async def delete_file(self, path: str) -> None:
        """Delete a file."""
        await self._driver.perform(self._files.delete(self.id, path))

    async def refresh(self, *, memory: bool = False) -> Session:
        """Return the session's record as it is now; with `memory`, what its kernel uses is measured for it."""
        self.record = await self._driver.perform(self._api.get_session(self.id, memory=memory))
        return self.record

    async def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C would."""
        self.record = await self._driver.perform(self._api.interrupt_session(self.id))

    async def restart(self) -> None:
        """Get a fresh kernel; what runs and what is queued ends as cancelled."""
        self.record = await self._driver.perform(self._api.restart_session(self.id))

    async def close(self) -> None:
        """Shut the session down on the server."""
        await self._driver.perform_to_the_end(self._api.delete_session(self.id))


class AsyncStandardExecSession:
    """A kernel of a server without ``exec/v1``, with the methods of a session. Runs are made one after the other."""

    def __init__(self, driver: AioDriver, session: StandardSession) -> None:
        self._driver = driver
        self._session = session
        self._lock = RunLock()

    @property
    def id(self) -> str:
        """The kernel's id."""
        return self._session.kernel_id

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where its server is."""
        return self._driver.connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, kernel_name={self._session.spec.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc_type is None:
            await self.close()
            return
        with contextlib.suppress(ExecError):  # the exception under way says more than that this fails, too
            await self._driver.perform_to_the_end(self._session.close(hurried=True))

    async def run(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
    ) -> Execution:
        """Run code and return the finished execution; see `AsyncExecSession.run`."""
        async with self._lock:
            await self._driver.tidied()  # a run that was cancelled reads the same WebSocket until then
            operation = self._session.run(
                code,
                timeout_seconds=timeout_seconds,
                language=language,
                metadata=metadata,
                allow_input=on_input is not None,
            )
            return await self._driver.perform(operation, on_event, on_input)

    async def stream(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_input: AnswerInput | None = None,
    ) -> AsyncIterator[OutputEvent]:
        """Run code and yield its output events as they come; see `AsyncExecSession.stream`."""
        async with self._lock:
            await self._driver.tidied()  # a run that was cancelled reads the same WebSocket until then
            operation = self._session.run(
                code,
                timeout_seconds=timeout_seconds,
                language=language,
                metadata=metadata,
                allow_input=on_input is not None,
            )
            async for event in self._driver.stream(operation, Result(), on_input):
                yield event

    async def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C would."""
        await self._driver.perform(self._session.interrupt())

    async def restart(self) -> None:
        """Get a fresh kernel; what runs ends as cancelled."""
        await self._driver.perform(self._session.restart())

    async def close(self) -> None:
        """Shut the kernel down on the server; what runs ends as cancelled."""
        await self._driver.perform_to_the_end(self._session.close())
