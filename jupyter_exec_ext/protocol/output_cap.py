"""Byte cap on an execution's output: keeps the head and the tail.

`OutputLimiter` stands before the log. Output passes it until the cap is near. From then on it keeps only the newest
part, and at the end returns one `TruncatedEvent` with exact byte counts, and that part. `output_sizes` has the cost of
an event; `output_overflow` writes the rest to a spool.
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
    FileInfo,
    FilesEvent,
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
from .large_json_parser import LeftOut
from .output_sizes import (
    LATE_BYTES,
    LINE_BYTES,
    QUOTES_BYTES,
    clip_middle,
    cost_of,
    error_as_data,
    event_size,
    fitting_head,
    head_of,
    metadata_size,
    tail_of,
    text_cost,
    value_cost,
    value_size,
)
from .strict_json import encoded_size, utf8_size

_MAX_TAIL_BYTES = 256 * 1024
_MAX_PROMPT_BYTES, _SHORT_PROMPT_BYTES = 4096, 64
#: A bundle's values under other MIME types than these are left out: with a longer name, or beyond so many.
MAX_MIME_LENGTH, MAX_MIME_TYPES = 255, 64
_MAX_DISPLAY_ID_LENGTH = 256
# All allowances beyond the cap together keep a log within 64 KiB of it (tests/protocol/test_output_cap.py).
# Events that pass whatever the cap says, since they are of use only at once: so many of each kind.
_MAX_NEWS = 50
# Of text in the tail: short enough to be cut again and again.
_PART_CHARACTERS = 8 * 1024
_MAX_INPUT_REQUESTS = 10
# Bytes of lines beside their content, such as numbers, that are free: a small cap is one on content.
_FREE_BYTES = 12 * 1024
# For the names of the files that a run has changed, beside what is left of the cap.
_FILES_BYTES = 4 * 1024
METADATA = "application/vnd.jupyter.metadata+json"  # our own name for what has none
# Of use only while the code runs: they pass at once, whatever is held back.
_NEWS_OF_THE_KERNEL = (UnresponsiveEvent, ResponsiveEvent)


def _is_of_same_text(one: StreamEvent, other: StreamEvent) -> bool:
    return one.name == other.name and one.late_from == other.late_from


def _is_mime_type(name: str) -> bool:
    return len(name) <= MAX_MIME_LENGTH and name.isascii() and name.isprintable()


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
        The cap, in bytes of the log. A quarter of it, at most 256 KiB, is kept for the tail.
    watcher : LeftOutWatcher, optional
        Told of what does not pass.

    Notes
    -----
    The counts in `Truncation` are exact: what passed plus what was dropped is what came. The last error is clipped,
    never dropped. Input requests and news of the kernel's health pass at once, also beyond the cap, up to a number.
    """

    def __init__(self, max_output_bytes: int, watcher: LeftOutWatcher | None = None) -> None:
        self._watcher = watcher or LeftOutWatcher()
        self._tail_bytes = min(_MAX_TAIL_BYTES, max_output_bytes // 4)
        self._head_left = max_output_bytes - self._tail_bytes
        self._free_left = _FREE_BYTES
        self._truncated = Truncation(max_output_bytes)
        self._tail: deque[tuple[OutputEvent, int]] = deque()  # each with its cost
        self._news_left, self._input_requests_left = _MAX_NEWS, _MAX_INPUT_REQUESTS
        self._tail_used = 0
        self._tail_errors = 0
        self._tailing = False
        self._trimmed_clear: ClearEvent | None = None
        self._clear_waits = False  # the last thing in the head is a clear that waits for output
        self._last_clear: ClearEvent | None = None  # other events are not kept: one may hold a large message

    def feed(self, event: OutputEvent) -> Iterable[OutputEvent]:
        """Take in the next event; return what goes into the log now."""
        if isinstance(event, _NEWS_OF_THE_KERNEL):
            self._news_left -= 1
            return (event,) if self._news_left >= 0 else ()
        last_clear, self._last_clear = self._last_clear, event if isinstance(event, ClearEvent) else None
        if last_clear is not None and event == last_clear:  # clearing again clears nothing more
            return ()
        if isinstance(event, InputRequestEvent):
            return self._pass_input_request(event)
        fitting: OutputEvent | None = event  # without the parts that could be kept neither in the head nor in the tail
        if isinstance(event, ErrorEvent):
            fitting = self._clip_error(event)
        elif isinstance(event, (DisplayEvent, ResultEvent)):
            fitting = self._shrink(event)
        if fitting is None:
            return self._without()
        cost = cost_of(fitting)
        free = min(self._free_left, cost - event_size(fitting))
        if not self._tailing and cost - free <= self._head_left:
            self._head_left -= cost - free
            self._free_left -= free
            self._clear_waits = isinstance(event, ClearEvent) and event.wait
            return (fitting,)
        return self._keep_for_tail(fitting, cost)

    def end_head(self) -> None:
        """Let no more output pass at once, as if the cap were reached: only the newest part is kept from now on."""
        self._head_left = self._free_left = 0

    def _pass_input_request(self, event: InputRequestEvent) -> Iterable[OutputEvent]:
        """Let a request pass at once, or it could not be answered; beyond the cap with a short prompt."""
        prompt, _ = clip_middle(event.prompt, _MAX_PROMPT_BYTES, "the prompt")
        request = replace(event, prompt=prompt)
        cost = cost_of(request)
        if cost <= self._head_left:
            self._head_left -= cost
            return (request,)
        self._input_requests_left -= 1
        prompt, _ = clip_middle(event.prompt, _SHORT_PROMPT_BYTES, "the prompt")
        return (replace(event, prompt=prompt),) if self._input_requests_left >= 0 else ()

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
            start = fitting_head(event.text, self._head_left + self._free_left - LINE_BYTES - QUOTES_BYTES)
            start = head_of(start, self._head_left)
            head = (replace(event, text=start),) if start else ()
            self._clear_waits = self._clear_waits and not start
            event = replace(event, text=event.text[len(start) :])
        self._tailing = True
        self._watcher.held_back(event)
        if isinstance(event, StreamEvent):
            self._add_text_to_tail(event)
        else:
            self._add_to_tail(event, cost)
        self._tail_errors += isinstance(event, ErrorEvent)
        self._trim()
        return head

    def _add_to_tail(self, event: OutputEvent, cost: int) -> None:
        self._tail.append((event, cost))
        self._tail_used += cost

    def _add_text_to_tail(self, event: StreamEvent) -> None:
        """Keep text in parts of moderate size: few enough to be joined at the end, short enough to be cut often."""
        last = self._tail[-1][0] if self._tail else event
        goes_on = isinstance(last, StreamEvent) and _is_of_same_text(last, event)
        # Text that goes on is joined to the same line.
        line_bytes = 0 if goes_on else LINE_BYTES + (LATE_BYTES if event.late else 0)
        if self._tail and isinstance(last, StreamEvent) and goes_on and len(last.text) < _PART_CHARACTERS:
            line_bytes += self._tail[-1][1] - text_cost(last.text)
            self._tail_used -= self._tail.pop()[1]
            event = replace(event, text=last.text + event.text)
        for start in range(0, len(event.text), 2 * _PART_CHARACTERS):
            part = event.text[start : start + 2 * _PART_CHARACTERS]
            self._add_to_tail(replace(event, text=part), text_cost(part) + (0 if start else line_bytes))

    def close(self, spooled: Sequence[SpooledOutput] = (), unspooled_reason: str | None = None) -> list[OutputEvent]:
        """Return what is left to log: the counts, if anything was dropped, and the tail.

        Parameters
        ----------
        spooled, unspooled_reason
            Where what was dropped is kept, and why not all of it.
        """
        rest: list[OutputEvent] = [self._trimmed_clear] if self._trimmed_clear else []
        if self._truncated.dropped_bytes or self._truncated.display_count:
            truncated = replace(self._truncated, spooled=tuple(spooled), unspooled_reason=unspooled_reason)
            rest.append(TruncatedEvent(truncated))
        for event, _ in self._tail:
            last = rest[-1] if rest else None
            if isinstance(event, StreamEvent) and isinstance(last, StreamEvent) and _is_of_same_text(event, last):
                rest[-1] = replace(last, text=last.text + event.text)
            else:
                rest.append(event)
        self._tail.clear()
        self._tail_used = 0
        return rest

    def _trim(self) -> None:
        """Drop from the old end of the tail until it fits. The last error stays, and the effect of every clear."""
        last_error: ErrorEvent | None = None
        while self._tail and self._tail_used > self._tail_bytes:
            event, cost = self._tail.popleft()
            if isinstance(event, StreamEvent):
                self._trim_text(event, cost)
            elif isinstance(event, ErrorEvent) and self._tail_errors == 1:
                last_error = event
            else:
                self._tail_used -= cost
                self._drop(event)
        if last_error is not None:
            self._tail.appendleft((last_error, cost_of(last_error)))  # its cost was never subtracted

    def _trim_text(self, event: StreamEvent, cost: int) -> None:
        size = utf8_size(event.text)
        self._tail_used -= cost
        room = self._tail_bytes - self._tail_used
        too_much = text_cost(event.text) - room
        rest = tail_of(event.text, size - too_much) if room > 0 else ""  # a byte of text costs one or more
        dropped = size - utf8_size(rest)
        self._count(**{f"{event.name}_bytes": dropped})
        if rest:
            rest_cost = text_cost(rest)
            self._tail.appendleft((replace(event, text=rest), rest_cost))
            self._tail_used += rest_cost
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
        if isinstance(event, DisplayEvent) and len(event.display_id or "") > _MAX_DISPLAY_ID_LENGTH:
            event = replace(event, display_id=None)
        room = max(0 if self._tailing else self._head_left, self._tail_bytes)
        if event.metadata and value_cost(event.metadata) > room // 4:
            self._watcher.left_out(event, {METADATA: event.metadata}, {METADATA: metadata_size(event.metadata)})
            self._count(display_bytes=metadata_size(event.metadata))
            event = replace(event, metadata={})
        room -= metadata_size(event.metadata)
        too_much = [
            mime
            for number, (mime, value) in enumerate(event.data.items())
            if number >= MAX_MIME_TYPES or not _is_mime_type(mime) or not self._fits(value, room)
        ]
        return self._without_values(event, too_much) if too_much else event

    def _fits(self, value: Any, room: int) -> bool:
        if isinstance(value, LeftOut) or value_size(value) > room:
            return False
        return value_cost(value) <= max(room, 0 if self._tailing else room + self._free_left)

    def _without_values(
        self, event: DisplayEvent | ResultEvent, mime_types: Sequence[str]
    ) -> DisplayEvent | ResultEvent | None:
        """Return `event` without some of its values; None if nothing is left of it."""
        sizes = {mime: value_size(event.data[mime]) for mime in mime_types}
        self._count(display_bytes=sum(sizes.values()))
        self._watcher.left_out(event, {mime: event.data[mime] for mime in mime_types}, sizes)
        kept = {mime: value for mime, value in event.data.items() if mime not in sizes}
        if not kept:
            self._count(display_count=1)
            return None
        return replace(event, data=kept)

    def fit_files(self, files: FilesEvent) -> FilesEvent:
        """Return what of a report on changed files the rest of the cap has room for."""
        room = _FILES_BYTES + max(0, self._head_left + self._tail_bytes - self._tail_used) // 2
        named: list[FileInfo] = []
        for file in files.files:
            room -= LINE_BYTES + encoded_size(file.path)
            if room < 0:
                break
            named.append(file)
        return replace(files, files=tuple(named), omitted=files.omitted + len(files.files) - len(named))

    def _clip_error(self, event: ErrorEvent) -> ErrorEvent:
        if cost_of(event) - 2 * LINE_BYTES <= self._tail_bytes:
            return event
        self._watcher.left_out(event, *error_as_data(event))
        # An error counts twice, and its text may take more bytes in JSON than it has.
        text_bytes = event_size(event)
        share = self._tail_bytes * text_bytes // max(1, cost_of(event))
        name, dropped_name = clip_middle(event.name, min(256, share // 8), "the error's name")
        value, dropped_value = clip_middle(event.value, share // 4, "the error")
        traceback, dropped_traceback = clip_middle(event.traceback, share // 2, "the traceback")
        self._count(error_bytes=dropped_name + dropped_value + dropped_traceback)
        return replace(event, name=name, value=value, traceback=traceback, coloured_traceback="")

    def _count(self, **dropped: int) -> None:
        counts = {name: getattr(self._truncated, name) + n for name, n in dropped.items()}
        self._truncated = replace(self._truncated, **counts)
