"""Late output of one session: kept for its next execution, counted in the store, published in the change feed.

`protocol.late_output` recognises and bounds the output; this module publishes the counts, with a debounce, since code
can write late output without end.
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

_DEBOUNCE_SECONDS = 0.25
_MAX_PUBLISHED_COUNTS = 16
# Bounds of the output that is published with a count.
_MAX_PUBLISHED_EVENTS, _MAX_PUBLISHED_BYTES = 32, 64 * 1024


class SessionLateOutput:
    """Receiver of a session's messages that belong to no execution that runs.

    Parameters
    ----------
    session_id, owner : str
        The session, and the principal it belongs to.
    store : ExecutionStore
        Keeps the records of executions that have ended.
    feed : ChangeFeed
        Gets the counts, with the output itself where no running execution takes it.
    """

    def __init__(self, session_id: str, owner: str, store: ExecutionStore, feed: ChangeFeed) -> None:
        self._session_id = session_id
        self._owner = owner
        self._store = store
        self._feed = feed
        self._buffer = LateOutputBuffer()
        self._running: LiveExecution | None = None
        self._ending: str | None = None
        self._unpublished: list[LateEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._closed = False

    def pass_to(self, execution: LiveExecution) -> None:
        """Emit the kept output in an execution that starts, and then all that arrives while it runs."""
        for event in self._buffer.take():
            execution.emit(event)
        self._running = execution

    def note_end(self, execution: LiveExecution, request_id: str) -> None:
        """Note that an execution's code has ended; its further output is late."""
        self._running = None
        self._ending = execution.record.id
        self._buffer.remember(request_id, execution.record.id)

    def note_finished(self) -> None:
        """Note that the execution's record is written, so that a count can be added to it."""
        self._ending = None
        if self._buffer.changed:
            self._schedule()

    def on_message(self, message: KernelMessage) -> None:
        """Handle a message that belongs to no running execution."""
        if self._running is not None:
            event = self._buffer.event_of(message)
            if event is not None:
                self._running.emit(event)
        else:
            event = self._buffer.keep(message)
            if event is not None and self._feed.wanted:
                self._keep_for_feed(event)
        if self._buffer.changed:
            self._schedule()

    def _keep_for_feed(self, event: LateEvent) -> None:
        waiting_bytes = sum(map(cost_of, self._unpublished))
        if len(self._unpublished) < _MAX_PUBLISHED_EVENTS and waiting_bytes + cost_of(event) <= _MAX_PUBLISHED_BYTES:
            self._unpublished.append(event)

    def _schedule(self) -> None:
        if self._timer is None and self._publishing is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_DEBOUNCE_SECONDS, self._start_publishing)

    def _start_publishing(self) -> None:
        self._timer = None
        self._publishing = asyncio.get_running_loop().create_task(self._publish(_MAX_PUBLISHED_COUNTS))
        self._publishing.add_done_callback(self._on_published)

    def _on_published(self, publishing: asyncio.Task[None]) -> None:
        self._publishing = None
        if self._buffer.changed and self._ending not in self._buffer.changed:  # otherwise `note_finished` schedules it
            self._schedule()

    async def _publish(self, max_counts: int) -> None:
        """Write counts and publish them, except for a record that is just being written."""
        changed = self._buffer.changed
        names = [name for name in changed if name != self._ending][:max_counts]
        # All are taken out before the first write: output that comes meanwhile is counted anew.
        for count in [changed.pop(name) for name in names]:
            await self._store.note_late_bytes(count.execution_id, count.late_bytes)
            if self._feed.wanted:
                self._feed.note_late_output(self._record_of(count), self._owner)

    def _record_of(self, count: LateCount) -> LateOutput:
        events = tuple(event for event in self._unpublished if event.late_from == count.execution_id)
        self._unpublished = [event for event in self._unpublished if event.late_from != count.execution_id]
        return LateOutput(count.execution_id, self._session_id, count.late_bytes, events)

    async def close(self) -> None:
        """Write the remaining counts, since the session ends."""
        self._closed, self._ending = True, None
        if self._timer is not None:
            self._timer.cancel()
        if self._publishing is not None:
            await asyncio.wait([self._publishing])
        await self._publish(len(self._buffer.changed))
