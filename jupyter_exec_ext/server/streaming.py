"""Base class of handlers with long answers: event streams, and large JSON in pieces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tornado.iostream import StreamClosedError

from ..errors import ExecError, InternalError
from ..protocol.large_values import collect, encode_in_pieces, is_large
from ..protocol.sse import MEDIA_TYPE
from ..protocol.strict_json import dumps
from .base_handler import ExecHandler

# Well below the time after which proxies close a silent connection: nginx waits for 60 s by default.
HEARTBEAT_SECONDS = 15.0
_PIECE_BYTES = 512 * 1024
_LAST_CHUNK = b"0\r\n\r\n"
_HEARTBEAT = re.compile(r"\bheartbeat\s*=\s*(\d{1,2})\b")


class StreamingHandler(ExecHandler):
    """Sends an answer in pieces."""

    _sends_events = False

    @property
    def preferences(self) -> str:
        """The ``Prefer`` header (RFC 7240), in lower case."""
        return self.request.headers.get("Prefer", "").lower()

    @property
    def heartbeat_seconds(self) -> float:
        """Interval of heartbeats without events: ``heartbeat=N`` in the ``Prefer`` header, or 15 s."""
        asked = _HEARTBEAT.search(self.preferences)
        return min(max(float(asked[1]), 1.0), HEARTBEAT_SECONDS) if asked else HEARTBEAT_SECONDS

    @asynccontextmanager
    async def streaming(self, media_type: str, name: str) -> AsyncIterator[None]:
        """Begin a stream, run the block that sends its parts, and end it.

        After an error, a stream of events ends with it as the last event. Any other answer is broken off.
        """
        with self.log_closed_stream(name):
            try:
                await self.begin_stream(media_type)
                yield
                self.finish()
            except StreamClosedError:
                raise
            except Exception as error:  # the status has been sent, so the stream itself has to report every error
                self._end_with_failure(error, media_type)

    async def begin_stream(self, media_type: str) -> None:
        """Send the headers of the answer."""
        if self.heartbeat_seconds != HEARTBEAT_SECONDS:
            self.set_header("Preference-Applied", f"heartbeat={self.heartbeat_seconds:g}")
        self._sends_events = media_type != "application/json" and self.request.version == "HTTP/1.1"
        if self._sends_events and "X-Forwarded-For" in self.request.headers:
            # The proxy must not reuse a connection that `_cut_off` may close: another request would fail.
            self.set_header("Connection", "close")
        self.set_header("Content-Type", media_type)
        self.set_header("X-Accel-Buffering", "no")  # asks a reverse proxy not to buffer events
        stream = self.connection_stream
        if stream is None:
            raise StreamClosedError
        # Events are short. With Nagle's algorithm, each would wait until the client has acknowledged the one before.
        stream.set_nodelay(True)
        await self.flush()

    async def send_parts(self, parts: Iterable[bytes]) -> None:
        """Send a part of the answer, at the client's pace."""
        for piece in in_pieces(parts):
            self.write(piece)
            await self.flush()

    async def answer_apart(
        self, body: Any, status: int = 200, may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Send `body` as JSON; if it is large, in pieces, so that other requests do not wait for it.

        The last piece, without which the body is incomplete, is sent once `may_end` has returned.
        """
        if not is_large(body):
            if may_end is not None:
                await may_end()
            self.answer(body, status)
            return
        self.set_status(status)
        await self._send_pieces(await asyncio.to_thread(lambda: collect(encode_in_pieces(body))), may_end)

    async def send(self, body: bytes) -> None:
        """Send `body`, which is JSON already."""
        if len(body) <= _PIECE_BYTES:
            self.finish(body)
            return
        await self._send_pieces(list(in_pieces([body])))

    async def _send_pieces(
        self, pieces: Sequence[bytes], may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        # With its length, an answer that lacks the last piece is known to be incomplete.
        self.set_header("Content-Length", str(sum(map(len, pieces))))
        *most, last = pieces
        with self.log_closed_stream("a large answer"):
            for piece in most:
                self.write(piece)
                await self.flush()
            if may_end is not None:
                await may_end()
            self.finish(last)

    def _cut_off(self) -> None:
        """Close the connection, after the end of a stream of events.

        JupyterHub's proxy does not pass on that a connection was closed (configurable-http-proxy 5.3).
        """
        stream = self.connection_stream
        if self._sends_events and not self._finished and stream is not None and not stream.closed():
            stream.write(_LAST_CHUNK)
        super()._cut_off()

    def _end_with_failure(self, error: Exception, media_type: str) -> None:
        """Send a failure as the last event, because the status has been sent already."""
        self.log_exception(type(error), error, error.__traceback__)
        if media_type == "application/json":  # has no place for a failure, so the answer must not look whole
            self._cut_off()
            return
        known = error if isinstance(error, ExecError) else InternalError("the server failed; see its log")
        data = dumps({"type": "failure", **self.error_body(known)})
        self.finish(f"event: failure\ndata: {data}\n\n" if media_type == MEDIA_TYPE else data + "\n")


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join short parts and cut long ones, to pieces of at most 512 KiB."""
    short: list[bytes] = []
    size = 0
    for part in parts:
        if size + len(part) > _PIECE_BYTES and short:
            yield b"".join(short)
            short, size = [], 0
        if len(part) > _PIECE_BYTES:
            yield from (part[at : at + _PIECE_BYTES] for at in range(0, len(part), _PIECE_BYTES))
        else:
            short.append(part)
            size += len(part)
    if short:
        yield b"".join(short)
