"""Answers that have no end of their own: what the handlers share that stream events."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tornado.iostream import StreamClosedError

from ..errors import ExecError, InternalError
from ..protocol.sse import MEDIA_TYPE
from ..protocol.strict_json import dumps
from .base_handler import ExecHandler, in_pieces

HEARTBEAT_SECONDS = 15.0
_HEARTBEAT = re.compile(r"\bheartbeat\s*=\s*(\d{1,2})\b")


class StreamingHandler(ExecHandler):
    """Sends an answer piece by piece, as its events come."""

    @property
    def heartbeat_seconds(self) -> float:
        """After how long without an event something is sent: ``heartbeat=N`` in the ``Prefer`` header, or 15 s."""
        asked = _HEARTBEAT.search(self.request.headers.get("Prefer", "").lower())
        return min(max(float(asked[1]), 1.0), HEARTBEAT_SECONDS) if asked else HEARTBEAT_SECONDS

    async def begin_stream(self, media_type: str) -> None:
        """Send the head of the answer."""
        if self.heartbeat_seconds != HEARTBEAT_SECONDS:
            self.set_header("Preference-Applied", f"heartbeat={self.heartbeat_seconds:g}")
        self.set_header("Content-Type", media_type)
        self.set_header("X-Accel-Buffering", "no")  # asks a reverse proxy not to hold events back
        connection = self.request.connection
        if connection is None:
            raise StreamClosedError
        connection.stream.set_nodelay(True)  # type: ignore[attr-defined]  # HTTP/1 is all there is
        await self.flush()

    async def send_parts(self, parts: Iterable[bytes]) -> None:
        """Send some of the answer, at the reader's own pace."""
        for piece in in_pieces(parts):
            self.write(piece)
            await self.flush()

    def break_off(self, error: Exception) -> None:
        """Close the connection in the middle of an answer that cannot say that it failed; its reader sees it cut."""
        self.log_exception(type(error), error, error.__traceback__)
        self._cut_off()

    def end_stream_with(self, error: Exception, media_type: str) -> None:
        """Let a failure be the last event, since the status is long sent."""
        self.log_exception(type(error), error, error.__traceback__)
        known = error if isinstance(error, ExecError) else InternalError("the server failed; see its log")
        data = dumps({"type": "failure", **self.error_body(known)})
        self.finish(f"event: failure\ndata: {data}\n\n" if media_type == MEDIA_TYPE else data + "\n")
