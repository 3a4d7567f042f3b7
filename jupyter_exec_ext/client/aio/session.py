"""Sessions of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models import Checkpoint, Execution, FileChange, FileInfo, OutputEvent, RecordList, Session, SessionUsage
from ...protocol.strict_json import dump_bytes
from ..api.checkpoint_operations import CheckpointsApi, id_of
from ..api.execution_operations import execution_request, executions_of, new_key, one_timeout
from ..api.file_transfers import FileListing, FilesApi, save_locally
from ..api.operations import ExecApi
from ..api.port_operations import PortsApi
from ..api.steps import Operation
from ..local_files import (
    FileSource,
    FileTarget,
    MemoryTarget,
    Progress,
    Uploadable,
    download_path,
    source_of_bytes,
    upload_path,
)
from .checkpoints import AsyncExecCheckpoints
from .driver import AioDriver, AnswerInput
from .execution_handle import AsyncExecutionHandle
from .session_base import AsyncExecSessionBase

if TYPE_CHECKING:
    pass


class AsyncExecSession(AsyncExecCheckpoints, AsyncExecSessionBase):
    """A session on the server. As a context manager it is deleted at the end.

    Parameters
    ----------
    is_own : bool
        Whether this program has started it. One that is never closed gives a `ResourceWarning` then.
    """

    def __init__(self, driver: AioDriver, api: ExecApi, record: Session, *, is_own: bool = False) -> None:
        super().__init__(driver, is_own=is_own)
        self.record = record
        self._api = api
        self._files, self._ports = FilesApi(api.retry), PortsApi(driver.connection.url, record.id, api.retry)
        self._place, self._checkpoints = executions_of(record.id), CheckpointsApi(record.id, api.retry)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, kernel_name={self.record.kernel_name!r})"

    def _closing(self, *, is_hurried: bool) -> Operation[None]:
        return (self._api.without_retries if is_hurried else self._api).delete_session(self.id)

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
        idempotency_key: str | None = None,
        check: bool = False,
    ) -> Execution:
        """Run code and return the finished execution, also if the code fails.

        After a lost connection or answer the client asks again, and the code still runs once. Ctrl-C, or cancelling the
        task, cancels the execution as well.

        Parameters
        ----------
        code : str
            The source.
        timeout, timeout_seconds : float, optional
            Run time in seconds after which the code is stopped; None for the server's default. Two names for one value.
        language : str, optional
            The code's language; None for the kernel's own.
        metadata : mapping, optional
            Data to keep with the execution.
        env : mapping, optional
            Environment variables for this run alone, of a Python kernel. They are not recorded.
        on_event : callable, optional
            Called with every output event as it arrives.
        on_input : callable, optional
            Answers ``input()``; without it, ``input()`` raises in the code.
        idempotency_key : str, optional
            A further run of the same code with the same key, by any client, returns the same execution.
        check : bool
            Whether code that fails raises `CodeError`.

        Returns
        -------
        Execution
            The record with state and output.

        Raises
        ------
        CodeError
            If the code fails or is stopped, with `check`.
        ConnectionLost
            If the answer was lost for good; the code may have run.
        ExecError
            If the server refuses.
        """
        seconds = one_timeout(timeout, timeout_seconds)
        request = execution_request(code, seconds, language, metadata, env, on_input is not None)
        # Without callbacks no event is needed before the end, so requests that wait for it are enough.
        start = self._api.run if on_event is None and on_input is None else self._api.stream
        operation = start(self._place, request, idempotency_key or new_key())
        execution = await self._driver.perform(operation, on_event, on_input)
        return execution.raise_for_error() if check else execution

    async def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        on_input: AnswerInput | None = None,
    ) -> AsyncIterator[OutputEvent]:
        """Run code and yield its output events as they arrive; the last is an `EndEvent` with the finished execution.

        A cut connection is resumed without a gap. If the loop is left early, the code goes on. Ctrl-C, or cancelling
        the task while it waits for an event, stops the code.

        Parameters
        ----------
        code, timeout, timeout_seconds, language, metadata, env, on_input
            As for `run`.
        """
        seconds = one_timeout(timeout, timeout_seconds)
        request = execution_request(code, seconds, language, metadata, env, on_input is not None)
        async for event in self._driver.stream(self._api.stream(self._place, request, new_key()), on_input):
            yield event

    async def submit(
        self,
        code: str,
        *,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        allow_input: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncExecutionHandle:
        """Queue code and return at once, with a handle on the execution.

        Parameters
        ----------
        code, timeout, timeout_seconds, language, metadata, env, idempotency_key
            As for `run`.
        allow_input : bool
            Whether the code may call ``input()``; `AsyncExecutionHandle.answer_input` answers it.
        """
        seconds = one_timeout(timeout, timeout_seconds)
        request = execution_request(code, seconds, language, metadata, env, allow_input)
        record = await self._driver.perform(self._api.submit(self._place, request, idempotency_key or new_key()))
        return AsyncExecutionHandle(self._driver, self._api, record)

    async def list_executions(
        self, limit: int = 100, *, before: str | None = None, after: str | None = None
    ) -> RecordList[Execution]:
        """Return the newest executions, oldest first, without their outputs.

        Parameters
        ----------
        limit : int
            The greatest number of executions, up to 1,000.
        before : str, optional
            The id of an execution: only those that came before it.
        after : str, optional
            The id of an execution: the oldest of those that came after it.
        """
        return await self._driver.perform(self._api.list_executions(self.id, limit, before, after))

    async def notebook(self) -> dict[str, Any]:
        """Return the session as a notebook (nbformat 4.5), with a code cell for each execution."""
        return await self._driver.perform(self._api.notebook(self.id))

    async def save_notebook(self, path: str | os.PathLike[str]) -> None:
        """Write the session as a notebook to a local file."""
        content = dump_bytes(await self.notebook())
        await self._driver.perform(save_locally(Path(path), content))

    async def save_notebook_on_server(self, path: str) -> str:
        """Save the session as a notebook on the server, below its root directory; return its path there.

        Raises
        ------
        Conflict
            If the file exists, or the host keeps no notebooks (a Kernel Gateway).
        """
        return await self._driver.perform(self._api.save_notebook(self.id, path))

    async def list_files(self, path: str = "", *, sha256: bool = False) -> FileListing:
        """Return the files in the session's working directory, by path.

        Parameters
        ----------
        path : str
            The directory to list; by default all.
        sha256 : bool
            Whether the server reads all files and adds their digests.
        """
        return await self._driver.perform(self._files.list_files(self.id, path, sha256=sha256))

    async def upload(
        self, source: Uploadable, remote_path: str | None = None, *, progress: Progress | None = None
    ) -> FileInfo:
        """Upload a file; it appears complete or not at all.

        Parameters
        ----------
        source : str, path or binary file
            The file to upload.
        remote_path : str, optional
            Path in the session's working directory; by default the local file's name.
        progress : callable, optional
            Called with the number of bytes sent and the total (None if it is unknown).
        """
        target = upload_path(source, remote_path)
        return await self._driver.perform(self._files.upload(self.id, target, FileSource(source, progress)))

    async def download(
        self, remote_path: str, local_path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Path:
        """Download a file and return its local path; it appears complete or not at all.

        Parameters
        ----------
        remote_path : str
            Path in the session's working directory.
        local_path : str or path
            A file, or a directory in which the file keeps its name.
        progress : callable, optional
            Called with the number of bytes received and the total (None if it is unknown).
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
        return await self._driver.perform(self._files.upload(self.id, path, source_of_bytes(data)))

    async def file_change(self, path: str, mtime: str = "") -> FileChange:
        """Return the text of a small file before and after a run changed it.

        Parameters
        ----------
        mtime : str
            The file's time in the execution's `files`; by default the last change.

        Raises
        ------
        FileNotFound
            If the texts are not kept: the file is large or no text, or it was changed too long ago.
        """
        return await self._driver.perform(self._files.change(self.id, path, mtime))

    async def delete_file(self, path: str) -> None:
        """Delete a file."""
        await self._driver.perform(self._files.delete(self.id, path))

    async def refresh(self, *, memory: bool = False) -> Session:
        """Read the session's record again and return it; with `memory`, with the memory that its kernel uses."""
        self.record = await self._driver.perform(self._api.get_session(self.id, memory=memory))
        return self.record

    async def usage(self) -> SessionUsage:
        """Return what the session's kernel has used over the last hour, and its limits."""
        return await self._driver.perform(self._api.session_usage(self.id))

    async def branch(
        self, count: int = 1, checkpoint: Checkpoint | str | None = None, *, same_random: bool = False
    ) -> list[AsyncExecSession]:
        """Make new sessions with this one's state, each with a kernel and files of its own.

        Parameters
        ----------
        count : int
            How many, at most 16.
        checkpoint : Checkpoint or str, optional
            The state that they begin with; by default the session as it is now.
        same_random : bool
            Whether they draw the random numbers that this session would have drawn, instead of others.

        Returns
        -------
        list
            The branches, which are to be closed as other sessions.

        Raises
        ------
        TooManySessions, PolicyLimitReached
            If there is no room for all of them; then there are none.
        CheckpointHindered, CheckpointUnsupported, CheckpointFailed, Conflict
            As for `checkpoint`.
        """
        checkpoint_id = None if checkpoint is None else id_of(checkpoint)
        operation = self._checkpoints.branch(checkpoint_id, count, same_random=same_random)
        records = await self._driver.perform(operation)
        return [AsyncExecSession(self._driver, self._api, record, is_own=True) for record in records]

    async def interrupt(self) -> None:
        """Interrupt the running code, as Ctrl-C would."""
        self.record = await self._driver.perform(self._api.interrupt_session(self.id))

    async def restart(self) -> None:
        """Start a fresh kernel; running and queued executions end as cancelled."""
        self.record = await self._driver.perform(self._api.restart_session(self.id))
