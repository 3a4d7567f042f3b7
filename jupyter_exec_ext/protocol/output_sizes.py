"""Sizes of output events: bytes of content, cost against the output cap, and text cut to a size between characters.

The cap counts the cost of an event: its line in the log. What is left out is counted by its content instead, in bytes
of text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..models import DisplayEvent, ErrorEvent, InputRequestEvent, JSONObject, OutputEvent, ResultEvent, StreamEvent
from .large_json_parser import LeftOut
from .output_joining import truncation_marker
from .strict_json import dumps, encoded_size, parsed_bytes, utf8_size

#: Bytes of an event's line beside its texts and values, and its MIME types, each at most.
LINE_BYTES = 160  # `test_cost_is_at_least_the_line` holds it
#: Bytes of the name of the execution that a late event is from.
LATE_BYTES = 64
#: Bytes of a short string beside its text.
QUOTES_BYTES = 2
# A value may take four times as much memory as it costs.
_MEMORY_PER_COST = 4


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


def cost_of(event: OutputEvent) -> int:
    """Return what an event counts against the cap: at least the size of its line in the log, in bytes.

    An error counts twice, since the finished record holds it as well; its colours do not count (`MAX_COLOUR_BYTES`).
    A value that takes much more memory than text counts more.
    """
    if event.late_from is not None:
        return LATE_BYTES + cost_of(replace(event, late_from=None))
    if isinstance(event, StreamEvent):
        return LINE_BYTES + encoded_size(event.text)
    if isinstance(event, (DisplayEvent, ResultEvent)):
        values = sum(encoded_size(mime) + value_cost(value) for mime, value in event.data.items())
        display_id = event.display_id if isinstance(event, DisplayEvent) else None
        metadata = value_cost(event.metadata) if event.metadata else 0
        return LINE_BYTES + values + metadata + encoded_size(display_id or "")
    if isinstance(event, ErrorEvent):
        return 2 * (LINE_BYTES + sum(map(encoded_size, (event.name, event.value, event.traceback))))
    if isinstance(event, InputRequestEvent):
        return LINE_BYTES + encoded_size(event.prompt)
    return LINE_BYTES


def value_cost(value: Any) -> int:
    """Return what one value of a MIME bundle costs."""
    if isinstance(value, str):
        return encoded_size(value)
    if isinstance(value, LeftOut):
        return value.size_bytes
    text = dumps(value)
    return max(encoded_size(text), parsed_bytes(text) // _MEMORY_PER_COST)


def text_cost(text: str) -> int:
    """Return what text costs that goes on in a line with other text."""
    return encoded_size(text) - QUOTES_BYTES


def fitting_head(text: str, max_cost: int) -> str:
    """Return the beginning of `text` whose JSON takes at most `max_cost` bytes, and about as much as that."""
    size = max_cost
    while size > 0:
        head = head_of(text, size)
        # Escapes make text longer in JSON, and by how much is known only afterwards.
        cost = encoded_size(head)
        if cost <= max_cost:
            return head
        size = size * max_cost // cost
    return ""


def error_as_data(event: ErrorEvent) -> tuple[JSONObject, dict[str, int]]:
    """Return an error as values by MIME type, and their sizes."""
    text = f"{event.name}: {event.value}\n{event.traceback}"
    return {"text/plain": text}, {"text/plain": utf8_size(text)}


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def head_of(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` with at most `max_bytes` in UTF-8, cut between characters."""
    if text.isascii():  # CPython notes that with each text, so it costs nothing
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
