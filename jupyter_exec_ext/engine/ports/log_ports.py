"""An execution's events, and where what its output cap leaves out goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...models import OutputEvent
from ...protocol.output_overflow import Spool, SpooledFile


class LogEntry(Protocol):
    """One stored event: numbered, and ready to be sent."""

    @property
    def seq(self) -> int:
        """Its number, from 1 without gaps."""

    @property
    def type(self) -> str:
        """The event's type."""

    @property
    def line(self) -> bytes:
        """The event as one line of JSON, without the line's end."""


class EventLog(Protocol):
    """The numbered events of one execution, for any number of readers.

    A reader that is slow or gone costs the writer nothing: it reads from the log at its own pace.
    """

    @property
    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty log."""

    @property
    def closed(self) -> bool:
        """Whether the last event is in."""

    @property
    def end(self) -> bytes | None:
        """The last event, an `EndEvent`, as `event_to_text` has it; None if it is not in, or without the outputs."""

    async def read(self, after: int, limit: int) -> Sequence[LogEntry]:
        """Return up to `limit` entries that follow number `after`."""

    async def changed(self, after: int) -> None:
        """Return once there is something after number `after`, or the log is closed."""


class WritableLog(EventLog, Protocol):
    """A log that is still written."""

    @property
    def full(self) -> bool:
        """Whether the store has no room for more output; what is appended nevertheless is stored."""

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it."""


class OutputSpool(Spool, Protocol):
    """Where what an execution's output cap leaves out is written; no trouble with it is ever raised."""

    @property
    def problem(self) -> str | None:
        """Why some of it could not be written."""

    async def close(self) -> Mapping[str, SpooledFile]:
        """Write what is left and return what there is."""
