"""Server-sent events: text out for the server, events in for the client.

References
----------
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import UnexpectedAnswer

MEDIA_TYPE = "text/event-stream"
NDJSON_MEDIA_TYPE = "application/x-ndjson"
KEEP_ALIVE = b": keep-alive\n\n"
EVENT_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event as it came: its id, its type and its data."""

    id: str
    event: str
    data: str


def encode_event(event_id: int | str, event_type: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the parts of one event, of which `data`, one line of JSON, is not copied."""
    return f"id: {event_id}\nevent: {event_type}\ndata: ".encode(), data, EVENT_END


class EventStreamDecoder:
    """Turn the bytes of an event stream into events.

    Parameters
    ----------
    max_event_bytes : int
        A single event larger than this is an error, so that a broken server cannot fill the client's memory.

    Attributes
    ----------
    blocks : int
        Number of whole events and comments so far; a heartbeat is a comment.
    """

    def __init__(self, max_event_bytes: int = 1024 * 1024 * 1024) -> None:
        self.blocks = 0
        self._max_event_bytes = max_event_bytes
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._begun: list[bytes] = []  # of a line whose end has not come
        self._begun_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Take in bytes; yield the events they complete.

        Raises
        ------
        UnexpectedAnswer
            If an event exceeds the bound.
        """
        # For a single byte: that is by far the fastest search, and lines are few and long.
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._begun.append(end)
            line = b"".join(self._begun).removesuffix(b"\r")  # the format allows CRLF, too
            self._begun.clear()
            self._begun_bytes = 0
            if line:
                self._lines.append(line)
                self._lines_bytes += len(line)
                continue
            self.blocks += 1
            event = _parse(self._lines)
            self._lines.clear()
            self._lines_bytes = 0
            if event is not None:
                yield event
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._lines_bytes + self._begun_bytes > self._max_event_bytes:
            raise UnexpectedAnswer(f"the server sent an event of more than {self._max_event_bytes} bytes")


def _parse(lines: list[bytes]) -> ServerSentEvent | None:
    event_id, event_type, data = "", "message", []
    for line in lines:
        colon = line.find(b":")
        name = line if colon < 0 else line[:colon]
        begin = len(name) + (2 if line.startswith(b": ", len(name)) else 1)
        value = str(memoryview(line)[begin:], "utf-8", "replace")  # what may be long is copied once
        if name == b"id":
            event_id = value
        elif name == b"event":
            event_type = value
        elif name == b"data":
            data.append(value)
    # The specification drops events without data. Comments, such as `KEEP_ALIVE`, have an empty name here.
    return ServerSentEvent(event_id, event_type, "\n".join(data)) if data else None
