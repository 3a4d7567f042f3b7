"""Late output of one session: kept for its next execution, counted in the store, and told to the change feed.

`protocol.late_output` recognises and bounds the output. This module makes the counts known, a moment
after they change and at most once in a while, since code can write late output without end.
"""

from __future__ import annotations

import asyncio

from ...models import LateOutput
from ...protocol.kernel_messages import KernelMessage
from ...protocol.late_output import LateCount, LateEvent, LateOutputBuffer
from ...protocol.output_sizes import cost_of
from ..change_feed import ChangeFeed
from ..executions.live_execution import LiveExecution
from ..ports import ExecutionStore

# Between the first late output and its being told, and between two times.
_TELL_SECONDS = 0.25
_MAX_TOLD_COUNTS = 16
# Of the output that waits for an execution, so much is told at a time.
_MAX_TOLD_EVENTS, _MAX_TOLD_BYTES = 32, 64 * 1024


class SessionLateOutput:
    """Receiver of a session's messages that belong to no execution that runs.

    Parameters
    ----------
    session_id, owner : str
        The session, and the principal it belongs to.
    store : ExecutionStore
        Has the records of the executions that have ended.
    feed : ChangeFeed
        Is told, with the output itself where no execution runs that takes it.
    """

    def __init__(self, session_id: str, owner: str, store: ExecutionStore, feed: ChangeFeed) -> None:
        self._session_id = session_id
        self._owner = owner
        self._store = store
        self._feed = feed
        self._buffer = LateOutputBuffer()
        self._running: LiveExecution | None = None
        self._ending: str | None = None
        self._untold: list[LateEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    def pass_to(self, execution: LiveExecution) -> None:
        """Put what was kept into an execution that begins, and then what comes while it runs."""
        for event in self._buffer.take():
            execution.emit(event)
        self._running = execution

    def note_end(self, execution: LiveExecution, request_id: str) -> None:
        """Note that an execution's code has ended; what it writes from now on is late."""
        self._running = None
        self._ending = execution.record.id
        self._buffer.remember(request_id, execution.record.id)

    def note_finished(self) -> None:
        """Note that the execution's record is written, so that a count can be added to it."""
        self._ending = None
        if self._buffer.changed:
            self._tell_soon()

    def on_message(self, message: KernelMessage) -> None:
        """Take in a message that belongs to no execution that runs."""
        if self._running is not None:
            event = self._buffer.event_of(message)
            if event is not None:
                self._running.emit(event)
        else:
            event = self._buffer.keep(message)
            if event is not None and self._feed.wanted:
                self._tell_output(event)
        if self._buffer.changed:
            self._tell_soon()

    def _tell_output(self, event: LateEvent) -> None:
        waiting_bytes = sum(map(cost_of, self._untold))
        if len(self._untold) < _MAX_TOLD_EVENTS and waiting_bytes + cost_of(event) <= _MAX_TOLD_BYTES:
            self._untold.append(event)

    def _tell_soon(self) -> None:
        if self._timer is None and self._telling is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._begin_to_tell)

    def _begin_to_tell(self) -> None:
        self._timer = None
        self._telling = asyncio.get_running_loop().create_task(self._tell(_MAX_TOLD_COUNTS))
        self._telling.add_done_callback(self._note_told)

    def _note_told(self, telling: asyncio.Task[None]) -> None:
        self._telling = None
        if self._buffer.changed and self._ending not in self._buffer.changed:
            self._tell_soon()

    async def _tell(self, max_counts: int) -> None:
        """Write counts and tell the change feed; a record that is just being written has to wait."""
        changed = self._buffer.changed
        names = [name for name in changed if name != self._ending][:max_counts]
        for count in [changed.pop(name) for name in names]:
            await self._store.note_late_bytes(count.execution_id, count.late_bytes)
            if self._feed.wanted:
                self._feed.note_late_output(self._news_of(count), self._owner)

    def _news_of(self, count: LateCount) -> LateOutput:
        events = tuple(event for event in self._untold if event.late_from == count.execution_id)
        self._untold = [event for event in self._untold if event.late_from != count.execution_id]
        return LateOutput(count.execution_id, self._session_id, count.late_bytes, events)

    async def close(self) -> None:
        """Write the counts that are not written yet; the session ends."""
        self._closed, self._ending = True, None
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await self._tell(len(self._buffer.changed))
