"""Execution handles of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from ...models import Execution, OutputEvent
from ..api.execution_operations import seconds_left
from ..api.file_transfers import FilesApi
from ..api.operations import ExecApi
from ..local_files import FileTarget, Progress, download_path
from .driver import AioDriver, AnswerInput


class AsyncExecutionHandle:
    """Handle of an execution on the server, which any client may have started."""

    def __init__(self, driver: AioDriver, api: ExecApi, record: Execution) -> None:
        self.record = record
        self._driver = driver
        self._api = api
        self._files = FilesApi(api.retry)

    @property
    def id(self) -> str:
        """The execution's id."""
        return self.record.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, state={self.record.state.value!r})"

    async def refresh(self) -> Execution:
        """Read the record again and return it."""
        self.record = await self._driver.perform(self._api.get_execution(self.id))
        return self.record

    async def result(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record once the execution has ended or `timeout_seconds` have passed."""
        self.record = await self._driver.perform(self._api.result(self.id, seconds_left(timeout_seconds)))
        return self.record

    async def events(self, after: int = 0, *, on_input: AnswerInput | None = None) -> AsyncIterator[OutputEvent]:
        """Yield the output events after number `after`, past and future ones, to the end.

        Parameters
        ----------
        after : int
            Number of the last event that is known already.
        on_input : callable, optional
            Answers ``input()``, if the execution allows input.
        """
        operation = self._api.events(self.id, after, answer=on_input is not None)
        async for event in self._driver.stream(operation, on_input):
            yield event

    async def cancel(self) -> Execution:
        """Cancel the execution, queued or running, and return its record."""
        self.record = await self._driver.perform(self._api.cancel(self.id))
        return self.record

    async def answer_input(self, value: str) -> None:
        """Answer a pending ``input()``."""
        await self._driver.perform(self._api.answer_input(self.id, value))

    async def download_output(
        self, name: str, local_path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Path:
        """Download an output beyond the cap and return its local path; it appears complete or not at all.

        Parameters
        ----------
        name : str
            One of the names in `Execution.spooled`, such as ``"stdout"``.
        local_path : str or path
            A file, or a directory in which the output gets its own name.
        progress : callable, optional
            Called with the number of bytes received and the total (None if it is unknown).
        """
        target = FileTarget(download_path(local_path, name))
        await self._driver.perform(self._files.download_output(self.id, name, target, progress))
        return target.path
