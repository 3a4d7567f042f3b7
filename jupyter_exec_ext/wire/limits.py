"""The cap on an execution's output.

`OutputLimiter` stands before the log. Output passes it until the cap is near; from then on it keeps only the newest
part, and at the end lets out one `TruncatedEvent` with exact byte counts and that part. So a reader always sees the
head, what is missing, and the tail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..models import (
    DisplayEvent,
    ErrorEvent,
    InputRequestEvent,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    StreamEvent,
    TruncatedEvent,
    Truncation,
    UnresponsiveEvent,
)
from .jsontext import dumps, utf8_size
from .outputs import truncation_marker
from .pieces import LeftOut

_MAX_TAIL_BYTES = 256 * 1024
# Of use only while the code runs: they pass at once, whatever is held back.
_URGENT = (InputRequestEvent, UnresponsiveEvent, ResponsiveEvent)


def value_size(value: Any) -> int:
    """Return the size in bytes of one MIME bundle value: of its text in UTF-8, or of its JSON."""
    if isinstance(value, LeftOut):
        return value.size_bytes
    return utf8_size(value if isinstance(value, str) else dumps(value))


def event_size(event: OutputEvent) -> int:
    """Return the bytes of output that `event` carries, by which the cap counts."""
    if isinstance(event, StreamEvent):
        return utf8_size(event.text)
    if isinstance(event, (DisplayEvent, ResultEvent)):
        return sum(map(value_size, event.data.values()))
    if isinstance(event, ErrorEvent):
        return utf8_size(event.name) + utf8_size(event.value) + utf8_size(event.traceback)
    return 0


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def head_of(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` with at most `max_bytes` in UTF-8, cut between characters."""
    if text.isascii():
        return text[:max_bytes]
    raw = text.encode("utf-8", "surrogatepass")
    end = min(max_bytes, len(raw))
    while 0 < end < len(raw) and _is_continuation(raw[end]):
        end -= 1
    return raw[:end].decode("utf-8", "surrogatepass")


def tail_of(text: str, max_bytes: int) -> str:
    """Return the longest suffix of `text` with at most `max_bytes` in UTF-8, cut between characters."""
    if text.isascii():
        return text[max(len(text) - max_bytes, 0) :]
    raw = text.encode("utf-8", "surrogatepass")
    start = max(len(raw) - max_bytes, 0)
    while start < len(raw) and _is_continuation(raw[start]):
        start += 1
    return raw[start:].decode("utf-8", "surrogatepass")


def clip_middle(text: str, max_bytes: int, name: str) -> tuple[str, int]:
    """Return `text` with a marker in place of its middle, if it is too long, and the number of bytes left out."""
    size = utf8_size(text)
    if size <= max_bytes:
        return text, 0
    head, tail = head_of(text, max_bytes // 2), tail_of(text, max_bytes // 2)
    dropped = size - utf8_size(head) - utf8_size(tail)
    return head + truncation_marker(dropped, name) + tail, dropped


class OutputLimiter:
    """Keep the head and the tail of an execution's output within `max_output_bytes`.

    Parameters
    ----------
    max_output_bytes : int
        The cap on text and MIME data, in bytes. A quarter of it, at most 256 KiB, is kept for the tail.

    Notes
    -----
    The counts in `Truncation` are exact: what passed plus what was dropped is what came. Errors are clipped, never
    dropped; an input request always passes at once, or nobody could answer it, and so does news of
    the kernel's health.
    """

    def __init__(self, max_output_bytes: int) -> None:
        self._tail_bytes = min(_MAX_TAIL_BYTES, max_output_bytes // 4)
        self._head_left = max_output_bytes - self._tail_bytes
        self._truncated = Truncation(max_output_bytes)
        self._tail: deque[OutputEvent] = deque()
        self._tail_used = 0
        self._tailing = False

    def feed(self, event: OutputEvent) -> Iterable[OutputEvent]:
        """Take in the next event; return what goes into the log now."""
        if isinstance(event, _URGENT):
            return (event,)
        fitting = self._fit(event)
        if fitting is None:
            return ()
        size = event_size(fitting)
        if not self._tailing and size <= self._head_left:
            self._head_left -= size
            return (fitting,)
        return self._keep_for_tail(fitting, size)

    def _fit(self, event: OutputEvent) -> OutputEvent | None:
        """Return `event` without the parts that could be kept neither in the head nor in the tail."""
        if isinstance(event, ErrorEvent):
            return self._clip_error(event)
        if isinstance(event, (DisplayEvent, ResultEvent)):
            return self._shrink(event)
        return event

    def _keep_for_tail(self, event: OutputEvent, size: int) -> Iterable[OutputEvent]:
        head: Iterable[OutputEvent] = ()
        if not self._tailing and isinstance(event, StreamEvent):
            start = head_of(event.text, self._head_left)
            head = (replace(event, text=start),) if start else ()
            event = replace(event, text=event.text[len(start) :])
            size -= utf8_size(start)
        self._tailing = True
        self._tail.append(event)
        self._tail_used += size
        if self._tail_used > self._tail_bytes:
            self._trim()
        return head

    def close(self) -> list[OutputEvent]:
        """Return what is left to log: the counts, if anything was dropped, and the tail."""
        rest: list[OutputEvent] = [TruncatedEvent(self._truncated)] if self._dropped_any() else []
        for event in self._tail:
            last = rest[-1] if rest else None
            if isinstance(event, StreamEvent) and isinstance(last, StreamEvent) and event.name == last.name:
                rest[-1] = replace(last, text=last.text + event.text)
            else:
                rest.append(event)
        self._tail.clear()
        self._tail_used = 0
        return rest

    def _dropped_any(self) -> bool:
        return self._truncated.dropped_bytes > 0 or self._truncated.display_count > 0

    def _trim(self) -> None:
        """Drop from the old end of the tail until it fits; errors and clears stay."""
        kept: list[OutputEvent] = []
        while self._tail and self._tail_used > self._tail_bytes:
            event = self._tail.popleft()
            excess = self._tail_used - self._tail_bytes
            if isinstance(event, StreamEvent):
                size = utf8_size(event.text)
                rest = tail_of(event.text, size - excess)
                dropped = size - utf8_size(rest)
                self._tail_used -= dropped
                self._count(**{f"{event.name}_bytes": dropped})
                if rest:
                    self._tail.appendleft(replace(event, text=rest))
            elif isinstance(event, (DisplayEvent, ResultEvent)):
                size = event_size(event)
                self._tail_used -= size
                self._count(display_bytes=size, display_count=1)
            else:
                kept.append(event)
        self._tail.extendleft(reversed(kept))

    def _shrink(self, event: DisplayEvent | ResultEvent) -> DisplayEvent | ResultEvent | None:
        """Drop those representations of a bundle that are too big, keep the others."""
        room = max(0 if self._tailing else self._head_left, self._tail_bytes)
        sizes = {mime: value_size(value) for mime, value in event.data.items()}
        too_big = {m for m, size in sizes.items() if size > room or isinstance(event.data[m], LeftOut)}
        if not too_big:
            return event
        self._count(display_bytes=sum(sizes[mime] for mime in too_big))
        kept = {mime: value for mime, value in event.data.items() if mime not in too_big}
        if not kept:
            self._count(display_count=1)
            return None
        return replace(event, data=kept)

    def _clip_error(self, event: ErrorEvent) -> ErrorEvent:
        if event_size(event) <= self._tail_bytes:
            return event
        name, dropped_name = clip_middle(event.name, 256, "the error's name")
        value, dropped_value = clip_middle(event.value, self._tail_bytes // 4, "the error")
        traceback, dropped_traceback = clip_middle(event.traceback, self._tail_bytes // 2, "the traceback")
        self._count(error_bytes=dropped_name + dropped_value + dropped_traceback)
        return replace(event, name=name, value=value, traceback=traceback)

    def _count(self, **dropped: int) -> None:
        counts = {name: getattr(self._truncated, name) + n for name, n in dropped.items()}
        self._truncated = replace(self._truncated, **counts)
