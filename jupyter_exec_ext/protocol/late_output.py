"""Late output: what an execution's code has written after the execution had ended.

Tasks, threads and forked children go on after their cell, and some kernels report the end of a cell before its last
output. The messages of such output name the request that they belong to. `LateOutputBuffer` recognises
them, and keeps a bounded part of them for the session's next execution. The server has one for each session, and so has
a client of a server without ``exec/v1``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..models import DisplayEvent, StreamEvent
from .kernel_messages import KernelMessage
from .message_translation import late_event
from .output_sizes import cost_of, event_size, fitting_head

#: The newest requests of a session whose late output is recognised.
MAX_REQUESTS = 256
#: Late output that is kept between two executions; the rest is counted only.
MAX_WAITING_EVENTS, MAX_WAITING_BYTES = 1000, 256 * 1024

LateEvent = StreamEvent | DisplayEvent


@dataclass(slots=True)
class LateCount:
    """Size of an execution's late output so far, in bytes of its texts and values."""

    execution_id: str
    late_bytes: int = 0


def left_out_marker(left_out_bytes: int) -> str:
    """Return the line that stands where late output was left out."""
    return f"\n[... {left_out_bytes:,} bytes of late output left out ...]\n"


@dataclass(slots=True)
class LateOutputBuffer:
    """The late output of one session's executions.

    Attributes
    ----------
    changed : dict
        The counts that have changed, by execution, until they are taken note of and cleared.
    """

    changed: dict[str, LateCount] = field(default_factory=dict)
    _requests: dict[str, LateCount] = field(default_factory=dict)
    _waiting: list[LateEvent] = field(default_factory=list)
    _waiting_bytes: int = 0
    _left_out: dict[str, int] = field(default_factory=dict)

    def remember(self, msg_id: str, execution_id: str) -> None:
        """Note that a request has ended, and which execution it was for."""
        if not msg_id:  # nothing was sent
            return
        self._requests[msg_id] = LateCount(execution_id)
        if len(self._requests) > MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]  # dictionaries keep their order: the oldest

    def event_of(self, message: KernelMessage) -> LateEvent | None:
        """Return the late output in a message, counted; None if it has none of this session's."""
        count = self._requests.get(message.parent_id or "")
        if count is None:
            return None
        event = late_event(message, count.execution_id)
        if event is not None:
            count.late_bytes += event_size(event)
            self.changed[count.execution_id] = count
        return event

    def keep(self, message: KernelMessage) -> LateEvent | None:
        """Keep the late output in a message for the next execution; return what of it is kept."""
        event = self.event_of(message)
        if event is None or event.late_from is None:
            return None
        kept = self._fitting(event)
        if kept is not None:
            self._waiting.append(kept)
            self._waiting_bytes += cost_of(kept)
        if kept is not event:
            left_out = event_size(event) - (0 if kept is None else event_size(kept))
            self._left_out[event.late_from] = self._left_out.get(event.late_from, 0) + left_out
        return kept

    def _fitting(self, event: LateEvent) -> LateEvent | None:
        """Return what there is room for: all of it, or of text the beginning."""
        room = MAX_WAITING_BYTES - self._waiting_bytes
        if len(self._waiting) >= MAX_WAITING_EVENTS:
            return None
        if cost_of(event) <= room:
            return event
        if isinstance(event, StreamEvent) and not self._left_out:
            head = fitting_head(event.text, room - cost_of(replace(event, text="")))
            return replace(event, text=head) if head else None
        return None

    def clear(self) -> None:
        """Forget everything: the kernel was restarted because the caller asked for it."""
        self.changed.clear()
        self._requests.clear()
        self.take()

    def take(self) -> list[LateEvent]:
        """Return what was kept, in order, and forget it; where some was left out, text says how much."""
        if not self._waiting and not self._left_out:
            return []
        events, left_out = self._waiting, self._left_out
        self._waiting, self._waiting_bytes, self._left_out = [], 0, {}
        events += [StreamEvent("stderr", left_out_marker(size), late_from=name) for name, size in left_out.items()]
        return events
