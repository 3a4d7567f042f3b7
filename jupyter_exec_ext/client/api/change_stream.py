"""Following a server's change feed, over as many connections as it takes."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import ConnectionLost, UnexpectedAnswer
from ...models import Change
from ...protocol.records_json import change_from_json
from ...protocol.sse import MEDIA_TYPE, EventStreamDecoder, ServerSentEvent
from ...protocol.strict_json import loads_strict
from .event_stream import API, STREAM_SILENCE_SECONDS, silence_seconds
from .outage_retry import Patience, RetryPolicy
from .request_exchange import error_from, open_stream, wait
from .steps import HEARTBEAT, CloseStream, Emit, Failure, Operation, ReadStream, Reply, Request


class ChangeFollower:
    """Where a client is in the feed.

    Parameters
    ----------
    after : str
        The id of the last change that is known already; empty for none.
    """

    def __init__(self, retry: RetryPolicy, after: str = "") -> None:
        self._retry = retry
        self._after = after
        self._patience = Patience(retry, outages=False)
        self._opened = False

    def follow(self) -> Operation[None]:
        """Emit changes, without end; a connection that is cut is opened again where it was."""
        while True:
            failure = yield from self._read_once()
            pause = self._patience.pause(outage=True)
            if pause is None:
                raise ConnectionLost(f"the change feed was cut and could not be resumed: {failure.message}")
            yield from wait(pause, self._retry)

    def _read_once(self) -> Operation[Failure]:
        resume = {"Last-Event-ID": self._after} if self._after else {}
        headers = {"Accept": MEDIA_TYPE, "Prefer": HEARTBEAT, **resume}
        request = Request("GET", API + "events", headers=headers, read_timeout_seconds=STREAM_SILENCE_SECONDS)
        stream = yield from open_stream(request, self._retry, outages=self._opened)
        if isinstance(stream, Failure):
            return stream
        if not self._opened:
            self._opened, self._patience = True, Patience(self._retry, outages=True)
        silence = silence_seconds(stream.headers)
        decoder = EventStreamDecoder()
        chunk: bytes | Failure = yield ReadStream(stream, silence)
        while chunk and not isinstance(chunk, Failure):
            self._patience.renew()
            for change in _changes_in(decoder.feed(chunk)):
                self._after = change.id
                yield Emit(change)
            chunk = yield ReadStream(stream, silence)
        yield CloseStream(stream)
        return chunk if isinstance(chunk, Failure) else Failure(True, "the server ended it")


def _changes_in(events: Iterator[ServerSentEvent]) -> Iterator[Change]:
    """Read what was sent; what this version does not know is left out."""
    for event in events:
        if event.event == "failure":
            raise error_from(Reply(500, {}, event.data.encode()))
        try:
            data = loads_strict(event.data)
        except ValueError:
            raise UnexpectedAnswer("the server's change feed holds something that is not JSON") from None
        change = change_from_json(event.id, event.event, data)
        if change is not None:
            yield change
