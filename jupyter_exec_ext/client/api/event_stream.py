"""An execution's event stream, read over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...errors import UnexpectedAnswer
from ...models import EndEvent, Execution, OutputEvent
from ...protocol.output_joining import OutputFold, with_outputs
from ...protocol.records_json import event_from_json, is_bare
from ...protocol.sse import MEDIA_TYPE, EventStreamDecoder
from ...protocol.strict_json import loads_strict
from .request_exchange import error_from
from .steps import HEARTBEAT, MINIMAL, Reply, Request

API = "exec/v1/"
STREAM_SILENCE_SECONDS = 60.0
_HEARTBEAT_SILENCE_SECONDS = 8.0


def silence_seconds(headers: Mapping[str, str]) -> float | None:
    """Return after how long without a byte a stream is lost, by the headers of its answer; None if they do not say."""
    return _HEARTBEAT_SILENCE_SECONDS if HEARTBEAT in headers.get("preference-applied", "") else None


class EventStreamReader:
    """One execution's events, read over any number of connections, each number once."""

    def __init__(self, start: Request, after: int) -> None:
        # From the first event on, the outputs are what they make, and the end need not repeat them.
        self._fold = OutputFold() if after == 0 else None
        prefer = f"{MINIMAL}, {HEARTBEAT}" if after == 0 else HEARTBEAT
        self._headers = {"Accept": MEDIA_TYPE, "Prefer": prefer}
        timeout_seconds = max(start.read_timeout_seconds, STREAM_SILENCE_SECONDS)
        self._start = replace(start, headers={**start.headers, **self._headers}, read_timeout_seconds=timeout_seconds)
        self._decoder = EventStreamDecoder()
        self.last_seq = after
        self.execution_id = ""
        self.finished: Execution | None = None

    def next_request(self) -> Request:
        """Return what opens the stream: the first time as asked, then from where it was cut."""
        self._decoder = EventStreamDecoder()
        if not self.execution_id:
            return self._start
        return replace(
            self._start,
            method="GET",
            path=f"{API}executions/{self.execution_id}/events",
            json=None,
            headers={**self._headers, "Last-Event-ID": str(self.last_seq)},
            read_timeout_seconds=STREAM_SILENCE_SECONDS,
        )

    def opened(self, headers: Mapping[str, str]) -> None:
        """Learn the execution's id, which the first answer names before any event."""
        if not self.execution_id:
            self.execution_id = headers.get("location", "").rpartition("/")[2] or _id_in(self._start.path)
        if not self.execution_id:
            raise UnexpectedAnswer("the server did not say which execution it streams")

    def feed(self, chunk: bytes) -> list[OutputEvent]:
        """Return the new events in a piece of the stream."""
        events = []
        for sent in self._decoder.feed(chunk):
            try:
                data = loads_strict(sent.data)
            except ValueError:
                raise UnexpectedAnswer("the server's event stream holds something that is not JSON") from None
            if sent.event == "failure":
                raise error_from(Reply(500, {}, sent.data.encode()))
            event = event_from_json(data)
            if event is None:
                continue
            if not isinstance(event.seq, int):
                raise UnexpectedAnswer("the server's event stream has an event without a number")
            if event.seq <= self.last_seq:
                continue
            self.last_seq = event.seq
            if self._fold is not None:
                self._fold.add(event)
            if isinstance(event, EndEvent):
                if self._fold is not None and is_bare(data["execution"]):
                    event = replace(event, execution=with_outputs(event.execution, self._fold))
                self.finished = event.execution
            events.append(event)
        return events


def _id_in(path: str) -> str:
    """Return the execution id in the path of its events."""
    return path.partition("executions/")[2].partition("/")[0]
