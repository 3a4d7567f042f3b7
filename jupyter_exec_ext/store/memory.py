"""Records and event logs in memory, bounded by number and by size."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence

from ..models import EndEvent, Execution, OutputEvent, Session, SessionState
from ..wire.large_json import dump_in_pieces, event_is_large
from ..wire.limits import event_size
from ..wire.native import event_to_json, event_to_text, utc_timestamp


class MemoryLogEntry:
    """A numbered event; its JSON is made when it is first asked for."""

    __slots__ = ("_at", "_event", "_text", "large", "seq")

    def __init__(self, seq: int, at: float, event: OutputEvent) -> None:
        self.seq = seq
        self._at = at
        self._event = event
        self._text = ""
        self.large = event_is_large(event)

    @property
    def type(self) -> str:
        """The event's type."""
        return self._event.type

    def text(self) -> str:
        """Return the event as one line of JSON; what is large is made anew each time, and in pieces."""
        if self.large:
            return "".join(dump_in_pieces(event_to_json(self._event, self.seq, utc_timestamp(self._at))))
        if not self._text:
            self._text = event_to_text(self._event, self.seq, utc_timestamp(self._at))
        return self._text


class MemoryEventLog:
    """An event log in a list."""

    def __init__(self) -> None:
        self._entries: list[MemoryLogEntry] = []
        self._news: asyncio.Future[None] | None = None
        self.closed = False
        self.size_bytes = 0

    @property
    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty log."""
        return len(self._entries)

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it; an `EndEvent` closes the log."""
        if self.closed:
            raise ValueError("the log is closed")
        self._entries.append(MemoryLogEntry(len(self._entries) + 1, time.time(), event))
        self.size_bytes += event_size(event)
        self.closed = isinstance(event, EndEvent)
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    async def read(self, after: int, limit: int) -> Sequence[MemoryLogEntry]:
        """Return up to `limit` entries that follow number `after`."""
        return self._entries[after : after + limit]

    async def changed(self, after: int) -> None:
        """Return once there is something after number `after`, or the log is closed."""
        while self.last_seq <= after and not self.closed:
            if self._news is None:
                self._news = asyncio.get_running_loop().create_future()
            # Shared by all readers, so one reader's cancellation must not cancel it.
            await asyncio.shield(self._news)


class MemorySessionStore:
    """Session records; of the ended ones the newest `max_ended` are kept."""

    def __init__(self, max_ended: int = 1000) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._max_ended = max_ended

    async def save(self, session: Session) -> None:
        """Insert or replace a record."""
        self._sessions[session.id] = session
        if session.state is SessionState.ENDED:
            ended = [s.id for s in self._sessions.values() if s.state is SessionState.ENDED]
            for session_id in ended[: -self._max_ended]:
                del self._sessions[session_id]

    async def get(self, session_id: str) -> Session | None:
        """Return a record."""
        return self._sessions.get(session_id)

    async def list(self) -> Sequence[Session]:
        """Return all records, oldest first."""
        return list(self._sessions.values())


class MemoryExecutionStore:
    """Finished executions and their logs, oldest forgotten first.

    Parameters
    ----------
    max_finished : int
        How many finished executions to keep.
    max_bytes : int
        How much output of theirs to keep, in bytes.
    """

    def __init__(self, max_finished: int = 10_000, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._logs: dict[str, MemoryEventLog] = {}
        self._finished: OrderedDict[str, Execution] = OrderedDict()
        self._max_finished = max_finished
        self._max_bytes = max_bytes
        self._bytes = 0

    async def accept(self, execution: Execution) -> MemoryEventLog:
        """Record an execution before its code is sent, and open its log."""
        log = self._logs[execution.id] = MemoryEventLog()
        return log

    async def finish(self, execution: Execution) -> None:
        """Record the terminal state."""
        self._finished[execution.id] = execution
        self._bytes += self._logs[execution.id].size_bytes
        # The newest always stays, however large.
        while len(self._finished) > 1 and (len(self._finished) > self._max_finished or self._bytes > self._max_bytes):
            forgotten, _ = self._finished.popitem(last=False)
            self._bytes -= self._logs.pop(forgotten).size_bytes

    async def get(self, execution_id: str) -> Execution | None:
        """Return a finished record."""
        return self._finished.get(execution_id)

    async def log(self, execution_id: str) -> MemoryEventLog | None:
        """Return the log of an execution, None once it is no longer kept."""
        return self._logs.get(execution_id)

    async def list(self, session_id: str, limit: int) -> Sequence[Execution]:
        """Return the session's newest records, oldest first."""
        mine = [execution for execution in self._finished.values() if execution.session_id == session_id]
        return mine[-limit:]
