"""The cap on an execution's output.

`OutputLimiter` stands before the log. Output passes it until the cap is near; from then on it keeps only the newest
part, and at the end lets out one `TruncatedEvent` with exact byte counts and that part. So a reader always sees the
head, what is missing, and the tail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    InputRequestEvent,
    JSONObject,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    SpooledOutput,
    StreamEvent,
    TruncatedEvent,
    Truncation,
    UnresponsiveEvent,
)
from .clip import clip_middle, head_of, tail_of
from .jsontext import dumps, utf8_size
from .pieces import LeftOut

EVENT_OVERHEAD_BYTES = 100
_MAX_TAIL_BYTES = 256 * 1024
_MAX_PROMPT_BYTES = 4096
MAX_MIME_LENGTH = 255
METADATA = "application/vnd.jupyter.metadata+json"  # our own name for what has none
# Of use only while the code runs: they pass at once, whatever is held back.
_NEWS_OF_THE_KERNEL = (UnresponsiveEvent, ResponsiveEvent)


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
        return sum(map(value_size, event.data.values())) + metadata_size(event.metadata)
    if isinstance(event, ErrorEvent):
        return utf8_size(event.name) + utf8_size(event.value) + utf8_size(event.traceback)
    if isinstance(event, InputRequestEvent):
        return utf8_size(event.prompt)
    return 0


def metadata_size(metadata: JSONObject) -> int:
    """Return the size in bytes of a display's metadata as JSON."""
    return utf8_size(dumps(metadata)) if metadata else 0


def _cost(event: OutputEvent) -> int:
    """Return what an event counts against the cap: its size, and for all but text its place in the log."""
    return event_size(event) + (0 if isinstance(event, StreamEvent) else EVENT_OVERHEAD_BYTES)


def error_as_data(event: ErrorEvent) -> tuple[JSONObject, dict[str, int]]:
    """Return an error as values by MIME type, and their sizes."""
    text = f"{event.name}: {event.value}\n{event.traceback}"
    return {"text/plain": text}, {"text/plain": utf8_size(text)}


class LeftOutWatcher:
    """Told of what the cap holds back and leaves out; this one makes nothing of it."""

    def held_back(self, event: OutputEvent) -> None:
        """Note that `event` is not logged now; later, or never."""

    def cut(self, name: str) -> None:
        """Note that text of the stream `name`, which was held back, is left out."""

    def dropped(self, event: DisplayEvent | ResultEvent | ErrorEvent) -> None:
        """Note that `event`, which was held back, is left out."""

    def left_out(
        self, event: DisplayEvent | ResultEvent | ErrorEvent, data: JSONObject, sizes: Mapping[str, int]
    ) -> None:
        """Note that of `event`, which is new, the values in `data` are left out, each of its size."""


class OutputLimiter:
    """Keep the head and the tail of an execution's output within `max_output_bytes`.

    Parameters
    ----------
    max_output_bytes : int
        The cap on text and MIME data, in bytes. A quarter of it, at most 256 KiB, is kept for the tail.
    watcher : LeftOutWatcher, optional
        Told of what does not pass.

    Notes
    -----
    The counts in `Truncation` are exact: what passed plus what was dropped is what came. The last error is clipped,
    never dropped; an input request always passes at once, or nobody could answer it, and so does news of the kernel's
    health.
    """

    def __init__(self, max_output_bytes: int, watcher: LeftOutWatcher | None = None) -> None:
        self._watcher = watcher or LeftOutWatcher()
        self._tail_bytes = min(_MAX_TAIL_BYTES, max_output_bytes // 4)
        self._head_left = max_output_bytes - self._tail_bytes
        self._truncated = Truncation(max_output_bytes)
        self._tail: deque[OutputEvent] = deque()
        self._tail_used = 0
        self._tail_errors = 0
        self._tailing = False
        self._trimmed_clear: ClearEvent | None = None
        self._clear_waits = False  # the last thing in the head is a clear that waits for output
        self._last: OutputEvent | None = None

    def feed(self, event: OutputEvent) -> Iterable[OutputEvent]:
        """Take in the next event; return what goes into the log now."""
        if isinstance(event, _NEWS_OF_THE_KERNEL):
            return (event,)
        last, self._last = self._last, event
        if isinstance(event, ClearEvent) and event == last:  # clearing again clears nothing more
            return ()
        if isinstance(event, InputRequestEvent):
            prompt, _ = clip_middle(event.prompt, _MAX_PROMPT_BYTES, "the prompt")
            self._head_left = max(0, self._head_left - EVENT_OVERHEAD_BYTES)
            return (replace(event, prompt=prompt),)
        fitting = self._fit(event)
        if fitting is None:
            return self._without()
        cost = _cost(fitting)
        if not self._tailing and cost <= self._head_left:
            self._head_left -= cost
            self._clear_waits = isinstance(event, ClearEvent) and event.wait
            return (fitting,)
        return self._keep_for_tail(fitting, cost)

    def _fit(self, event: OutputEvent) -> OutputEvent | None:
        """Return `event` without the parts that could be kept neither in the head nor in the tail."""
        if isinstance(event, ErrorEvent):
            return self._clip_error(event)
        if isinstance(event, (DisplayEvent, ResultEvent)):
            return self._shrink(event)
        return event

    def _without(self) -> Iterable[OutputEvent]:
        """Drop an output as a whole; what would have been cleared before it is cleared all the same."""
        if self._tailing or not self._clear_waits:
            self._clear_takes_effect()
            return ()
        self._clear_waits = False
        return (ClearEvent(),)

    def _keep_for_tail(self, event: OutputEvent, cost: int) -> Iterable[OutputEvent]:
        head: Iterable[OutputEvent] = ()
        if not self._tailing and isinstance(event, StreamEvent):
            start = head_of(event.text, self._head_left)
            head = (replace(event, text=start),) if start else ()
            self._clear_waits = self._clear_waits and not start
            event = replace(event, text=event.text[len(start) :])
            cost -= utf8_size(start)
        self._tailing = True
        self._watcher.held_back(event)
        self._tail.append(event)
        self._tail_used += cost
        self._tail_errors += isinstance(event, ErrorEvent)
        self._trim()
        return head

    def close(self, spooled: Sequence[SpooledOutput] = (), unspooled_reason: str | None = None) -> list[OutputEvent]:
        """Return what is left to log: the counts, if anything was dropped, and the tail.

        Parameters
        ----------
        spooled, unspooled_reason
            Where what was dropped is kept, and why not all of it.
        """
        rest: list[OutputEvent] = [self._trimmed_clear] if self._trimmed_clear else []
        if self._dropped_any():
            truncated = replace(self._truncated, spooled=tuple(spooled), unspooled_reason=unspooled_reason)
            rest.append(TruncatedEvent(truncated))
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
        """Drop from the old end of the tail until it fits. The last error stays, and the effect of every clear."""
        last_error: ErrorEvent | None = None
        while self._tail and self._tail_used > self._tail_bytes:
            event = self._tail.popleft()
            if isinstance(event, StreamEvent):
                self._trim_text(event)
            elif isinstance(event, ErrorEvent) and self._tail_errors == 1:
                last_error = event
            else:
                self._tail_used -= _cost(event)
                self._drop(event)
        if last_error is not None:
            self._tail.appendleft(last_error)

    def _trim_text(self, event: StreamEvent) -> None:
        size = utf8_size(event.text)
        rest = tail_of(event.text, size - (self._tail_used - self._tail_bytes))
        dropped = size - utf8_size(rest)
        self._tail_used -= dropped
        self._count(**{f"{event.name}_bytes": dropped})
        if rest:
            self._tail.appendleft(replace(event, text=rest))
        if dropped:
            self._watcher.cut(event.name)
            self._clear_takes_effect()

    def _drop(self, event: OutputEvent) -> None:
        if isinstance(event, ClearEvent):
            if self._trimmed_clear is None or self._trimmed_clear.wait:
                self._trimmed_clear = event
            return
        self._clear_takes_effect()
        if isinstance(event, ErrorEvent):
            self._tail_errors -= 1
            self._watcher.dropped(event)
            self._count(error_bytes=event_size(event))
        elif isinstance(event, (DisplayEvent, ResultEvent)):
            self._watcher.dropped(event)
            self._count(display_bytes=event_size(event), display_count=1)

    def _clear_takes_effect(self) -> None:
        """Output followed a clear that waited for it; now that the output is dropped, nothing would trigger it."""
        if self._clear_waits or (self._trimmed_clear is not None and self._trimmed_clear.wait):
            self._clear_waits = False
            self._trimmed_clear = ClearEvent(wait=False)

    def _shrink(self, event: DisplayEvent | ResultEvent) -> DisplayEvent | ResultEvent | None:
        """Drop those representations of a bundle that are too big, keep the others."""
        room = max(0 if self._tailing else self._head_left, self._tail_bytes) - EVENT_OVERHEAD_BYTES
        if event.metadata and metadata_size(event.metadata) > room // 4:
            self._watcher.left_out(event, {METADATA: event.metadata}, {METADATA: metadata_size(event.metadata)})
            self._count(display_bytes=metadata_size(event.metadata))
            event = replace(event, metadata={})
        room -= metadata_size(event.metadata)
        sizes = {mime: value_size(value) for mime, value in event.data.items()}
        too_big = [
            mime
            for mime, size in sizes.items()
            if size > room or len(mime) > MAX_MIME_LENGTH or isinstance(event.data[mime], LeftOut)
        ]
        if not too_big:
            return event
        self._count(display_bytes=sum(sizes[mime] for mime in too_big))
        self._watcher.left_out(event, {mime: event.data[mime] for mime in too_big}, sizes)
        kept = {mime: value for mime, value in event.data.items() if mime not in too_big}
        if not kept:
            self._count(display_count=1)
            return None
        return replace(event, data=kept)

    def _clip_error(self, event: ErrorEvent) -> ErrorEvent:
        if event_size(event) <= self._tail_bytes:
            return event
        self._watcher.left_out(event, *error_as_data(event))
        name, dropped_name = clip_middle(event.name, 256, "the error's name")
        value, dropped_value = clip_middle(event.value, self._tail_bytes // 4, "the error")
        traceback, dropped_traceback = clip_middle(event.traceback, self._tail_bytes // 2, "the traceback")
        self._count(error_bytes=dropped_name + dropped_value + dropped_traceback)
        return replace(event, name=name, value=value, traceback=traceback)

    def _count(self, **dropped: int) -> None:
        counts = {name: getattr(self._truncated, name) + n for name, n in dropped.items()}
        self._truncated = replace(self._truncated, **counts)
