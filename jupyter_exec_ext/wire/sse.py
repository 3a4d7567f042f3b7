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
KEEP_ALIVE = ": keep-alive\n\n"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event as it came: its id, its type and its data."""

    id: str
    event: str
    data: str


def encode_event(seq: int, event_type: str, data: str) -> str:
    """Return one event; `data` is one line of JSON."""
    return f"id: {seq}\nevent: {event_type}\ndata: {data}\n\n"


class EventStreamDecoder:
    """Turn the bytes of an event stream into events.

    Parameters
    ----------
    max_event_bytes : int
        A single event larger than this is an error, so that a broken server cannot fill the client's memory.
    """

    def __init__(self, max_event_bytes: int = 1024 * 1024 * 1024) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Take in bytes; yield the events they complete.

        Raises
        ------
        UnexpectedAnswer
            If an event exceeds the bound.
        """
        *blocks, rest = self._split(chunk)
        for block in blocks:
            event = _parse(block)
            if event is not None:
                yield event
        if rest:
            self._pending.append(rest)
            self._pending_bytes += len(rest)
        if self._pending_bytes > self._max_event_bytes:
            raise UnexpectedAnswer(f"the server sent an event of more than {self._max_event_bytes} bytes")

    def _split(self, chunk: bytes) -> list[bytes]:
        """Return complete blocks and, last, what is left over.

        The chunks of one large event are joined once, when its end has come. Our server ends lines with a single
        line feed; the boundary may lie across two chunks.
        """
        boundary_may_straddle = bool(self._pending) and self._pending[-1].endswith(b"\n") and chunk.startswith(b"\n")
        if b"\n\n" not in chunk and not boundary_may_straddle:
            return [chunk]
        whole = b"".join([*self._pending, chunk])
        self._pending.clear()
        self._pending_bytes = 0
        return whole.split(b"\n\n")


def _parse(block: bytes) -> ServerSentEvent | None:
    event_id, event_type, data = "", "message", []
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.removesuffix("\r").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            event_type = value
        elif name == "data":
            data.append(value)
    return ServerSentEvent(event_id, event_type, "\n".join(data)) if data else None
