"""Handles of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from ...models import Execution, OutputEvent
from ..api.file_transfers import FilesApi
from ..api.operations import ExecApi, seconds_left
from ..api.steps import Result
from ..local_files import FileTarget, Progress, download_path
from .driver import AioDriver, AnswerInput


class AsyncExecutionHandle:
    """An execution on the server, from any client."""

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
        """Return the record as it is now."""
        self.record = await self._driver.perform(self._api.get_execution(self.id))
        return self.record

    async def result(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record once the execution has ended, or as it is when `timeout_seconds` have passed."""
        self.record = await self._driver.perform(self._api.result(self.id, seconds_left(timeout_seconds)))
        return self.record

    async def events(self, after: int = 0, *, on_input: AnswerInput | None = None) -> AsyncIterator[OutputEvent]:
        """Yield the output events that follow number `after`, those to come included, to the end.

        Parameters
        ----------
        on_input : callable, optional
            Answers ``input()``, if the code was allowed to ask.
        """
        operation = self._api.events(self.id, after, answer=on_input is not None)
        async for event in self._driver.stream(operation, Result(), on_input):
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
        """Download an output beyond the cap and return where it is; it is there as a whole or not at all.

        Parameters
        ----------
        name : str
            One of those in `Execution.spooled`, such as ``"stdout"``.
        local_path : str or path
            Where to; into a directory, it goes under its own name.
        progress : callable, optional
            Gets the bytes received and the bytes in all as it goes on.
        """
        target = FileTarget(download_path(local_path, name))
        await self._driver.perform(self._files.download_output(self.id, name, target, progress))
        return target.path
