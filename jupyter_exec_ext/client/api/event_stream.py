"""Event streams of executions and of the change feed, each read over any number of connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import ConnectionLost, UnexpectedAnswer
from ...models import EndEvent, Execution, OutputEvent
from ...protocol.change_json import change_from_json
from ...protocol.output_joining import OutputFold, with_outputs
from ...protocol.records_json import event_from_json, is_bare
from ...protocol.sse import MEDIA_TYPE, EventStreamDecoder, ServerSentEvent
from ...protocol.strict_json import loads_strict
from .answers import error_from
from .request_exchange import open_stream, wait
from .retries import RetryBudget, RetryPolicy
from .steps import HEARTBEAT, MINIMAL, CloseStream, Emit, Failure, Operation, ReadStream, Reply, Request

API = "exec/v1/"
# Without heartbeats on request, the server sends one every 15 seconds: four of them are missing then.
STREAM_SILENCE_SECONDS = 60.0
# With a heartbeat every 3 seconds, two of them are missing then.
_HEARTBEAT_SILENCE_SECONDS = 8.0


def silence_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the timeout without a byte that the headers of a stream allow; None if they promise no heartbeat."""
    return _HEARTBEAT_SILENCE_SECONDS if HEARTBEAT in headers.get("preference-applied", "") else None


class EventStreamReader:
    """Reader of one execution's events over any number of connections; it returns each event once.

    Parameters
    ----------
    start : Request
        The request that opens the stream first.
    after : int
        Number of the last event that is known already.
    """

    def __init__(self, start: Request, after: int) -> None:
        # From the first event on, the outputs are joined here, so that the last event need not repeat them.
        self._fold = OutputFold() if after == 0 else None
        prefer = f"{MINIMAL}, {HEARTBEAT}" if after == 0 else HEARTBEAT
        self._headers = {"Accept": MEDIA_TYPE, "Prefer": prefer}
        # The first byte may be later than a heartbeat: in a fresh session the stream begins when the kernel is ready.
        timeout_seconds = max(start.read_timeout_seconds, STREAM_SILENCE_SECONDS)
        self._start = replace(start, headers={**start.headers, **self._headers}, read_timeout_seconds=timeout_seconds)
        self._decoder = EventStreamDecoder()
        self.last_seq = after
        self._earlier_blocks = 0
        self.execution_id = ""
        self.finished: Execution | None = None

    @property
    def received_blocks(self) -> int:
        """Number of whole events and heartbeats so far, so that it also grows while the code prints nothing."""
        return self._earlier_blocks + self._decoder.blocks

    def next_request(self) -> Request:
        """Return the request that opens the stream: the first one, then one for the events after a cut."""
        # A new decoder: the half event at the end of the cut connection is sent again whole.
        self._earlier_blocks = self.received_blocks
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
        """Read the execution's id from the headers of the first answer."""
        if not self.execution_id:
            # The answer to a POST names the execution in its Location; a GET has named it in its path.
            self.execution_id = headers.get("location", "").rpartition("/")[2] or _id_in(self._start.path)
        if not self.execution_id:
            raise UnexpectedAnswer("the server's event stream does not name its execution")

    def feed(self, chunk: bytes) -> list[OutputEvent]:
        """Return the new events in a piece of the stream."""
        events = []
        for sent in self._decoder.feed(chunk):
            data = _parse(sent, "event stream")
            event = event_from_json(data)
            if event is None:  # of a kind that this version does not know
                continue
            if not isinstance(event.seq, int):
                raise UnexpectedAnswer("the server's event stream has an event without a number")
            # After a cut, the server may send events again that were read before it.
            if event.seq <= self.last_seq:
                continue
            self.last_seq = event.seq
            if self._fold is not None:
                self._fold.add(event)
            if isinstance(event, EndEvent):
                # A server that does not know `return=minimal` repeats the outputs here; its record is used as it is.
                if self._fold is not None and is_bare(data["execution"]):
                    event = replace(event, execution=with_outputs(event.execution, self._fold))
                self.finished = event.execution
            events.append(event)
        return events


def _id_in(path: str) -> str:
    """Return the execution id in the path of its events."""
    return path.partition("executions/")[2].partition("/")[0]


class ChangeFollower:
    """Follower of the change feed.

    Parameters
    ----------
    retry : RetryPolicy
        When the feed is opened again.
    after : str
        The id of the last change that is known already; empty for none.
    """

    def __init__(self, retry: RetryPolicy, after: str = "") -> None:
        self._retry = retry
        self._after = after
        # Until the feed has been opened once, the address may simply be wrong, so no outage is waited for.
        self._budget = RetryBudget(retry, outages=False)
        self._has_opened = False

    def follow(self) -> Operation[None]:
        """Emit changes, without end; reopen a cut connection after the last one."""
        while True:
            failure = yield from self._read_once()
            pause = self._budget.pause(outage=True)
            if pause is None:
                raise ConnectionLost(f"the change feed was cut and could not be resumed: {failure.message}")
            yield from wait(pause, self._retry)

    def _read_once(self) -> Operation[Failure]:
        resume = {"Last-Event-ID": self._after} if self._after else {}
        headers = {"Accept": MEDIA_TYPE, "Prefer": HEARTBEAT, **resume}
        request = Request("GET", API + "events", headers=headers, read_timeout_seconds=STREAM_SILENCE_SECONDS)
        stream = yield from open_stream(request, self._retry, outages=self._has_opened)
        if isinstance(stream, Failure):
            return stream
        if not self._has_opened:
            self._has_opened, self._budget = True, RetryBudget(self._retry, outages=True)
        silence = silence_seconds(stream.headers)
        decoder = EventStreamDecoder()
        chunk: bytes | Failure = yield ReadStream(stream, silence)
        while chunk and not isinstance(chunk, Failure):
            self._budget.renew()
            for sent in decoder.feed(chunk):
                change = change_from_json(sent.id, sent.event, _parse(sent, "change feed"))
                if change is not None:  # None: of a kind that this version does not know
                    self._after = change.id
                    yield Emit(change)
            chunk = yield ReadStream(stream, silence)
        yield CloseStream(stream)
        return chunk if isinstance(chunk, Failure) else Failure(True, "the server ended it")


def _parse(sent: ServerSentEvent, stream: str) -> Any:
    """Return the JSON of an event; raise the error that a failure event stands for."""
    if sent.event == "failure":
        # The answer's status was 200, since the stream had begun. The error's code is in the JSON; 500 is the fallback.
        raise error_from(Reply(500, {}, sent.data.encode()))
    try:
        return loads_strict(sent.data)
    except ValueError:
        raise UnexpectedAnswer(f"the server's {stream} holds something that is not JSON") from None
