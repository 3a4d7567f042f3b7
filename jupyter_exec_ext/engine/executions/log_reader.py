"""Readers of an execution's output: its event log from a cursor on, and the outputs beyond the cap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from ...auth.caller import Caller
from ...errors import ExecutionNotFound, OutputExpired, OutputNotFound
from ...models import Execution, FileInfo, SpooledOutput
from ..files.file_transfer import LocalReader
from ..ports import EventLog, ExecutionStore, FileReader, LogEntry

_ENTRIES_PER_READ = 256


async def follow(
    log: EventLog, after: int = 0, *, heartbeat_seconds: float | None = None
) -> AsyncIterator[Sequence[LogEntry]]:
    """Yield the entries that follow number `after`, in batches, until the log's last.

    Parameters
    ----------
    heartbeat_seconds : float, optional
        Yield an empty batch when nothing came for this long, so that the reader can say that it is alive.
    """
    while True:
        batch = await log.read(after, _ENTRIES_PER_READ)
        if batch:
            after = batch[-1].seq
            yield batch
        elif log.closed:
            return
        elif not await _changed(log, after, heartbeat_seconds):
            yield ()


async def _changed(log: EventLog, after: int, timeout_seconds: float | None) -> bool:
    """Wait for news; return False when the time is up first."""
    if timeout_seconds is None:
        await log.changed(after)
        return True
    try:
        await asyncio.wait_for(log.changed(after), timeout_seconds)
    except asyncio.TimeoutError:
        return False
    return True


class OutputVerbs:
    """The spooled outputs of finished executions, for callers."""

    def __init__(self, executions: ExecutionStore) -> None:
        self._executions = executions

    async def open(self, caller: Caller, execution_id: str, name: str) -> FileReader:
        """Open an output that `truncated.spooled` names.

        Raises
        ------
        ExecutionNotFound, OutputNotFound, OutputExpired
        """
        stored = await self._executions.summary(execution_id)
        if stored is None or not caller.may_see(stored.owner):
            raise ExecutionNotFound(f"no execution {execution_id!r}")
        output = _named(stored.execution, name)
        descriptor = await self._executions.open_spooled(stored.execution, output)
        if descriptor is None:
            raise OutputExpired(f"{name!r} is no longer kept as it was written")
        written_at = stored.execution.finished_at or ""
        info = FileInfo(output.name, output.size_bytes, written_at, output.mime_type, output.sha256)
        return LocalReader(descriptor, info, partial(asyncio.get_running_loop().run_in_executor, None))


def _named(execution: Execution, name: str) -> SpooledOutput:
    """Return the spooled output of this name; a name that the record does not have is never looked for on disk."""
    for output in execution.spooled:
        if output.name == name:
            return output
    if not execution.state.finished:
        raise OutputNotFound("outputs can be downloaded once the execution has ended")
    known = ", ".join(output.name for output in execution.spooled[:10]) or "none; its record has all that is kept"
    raise OutputNotFound(f"the execution has no output {name!r} beyond its record; there are: {known}")
