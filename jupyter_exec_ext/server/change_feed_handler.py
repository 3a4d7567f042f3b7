"""The change feed over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from tornado import web
from tornado.iostream import StreamClosedError

from ..auth.scopes import scope
from ..engine.change_feed import EXECUTION, LATE_OUTPUT, RESET, SESSION, TOKEN, FeedEntry, FeedReader
from ..errors import Forbidden
from ..protocol.sse import KEEP_ALIVE, MEDIA_TYPE
from .base_handler import Access
from .gate import authorize
from .streaming import StreamingHandler

# What it takes to read the same things one by one.
NEEDED = {
    SESSION: Access(scope("sessions:read"), "read"),
    EXECUTION: Access(scope("executions:read"), "execute"),
    LATE_OUTPUT: Access(scope("executions:read"), "execute"),
    TOKEN: Access(scope("tokens:create"), "read", "tokens"),
}
# How often it is asked whether the caller may still see what it sees.
_ASK_SECONDS = 5.0
# Timers may be a little early.
_SPARE_SECONDS = 0.1


class ChangesHandler(StreamingHandler):
    """``/events``"""

    # Or the server would never stop for lack of activity while somebody watches that there is none.
    _track_activity = False
    _reader: FeedReader | None = None

    @web.authenticated
    async def get(self) -> None:
        """Stream what happens to the sessions, executions and tokens that the caller may see."""
        self.hold_stream()
        try:
            await self.begin_stream(MEDIA_TYPE)
            with self.engine.feed.watch(self._cursor()) as self._reader:
                await self._follow(self._reader)
            self.finish()
        except StreamClosedError:
            self.log.debug("the reader of the change feed is gone (request %s)", self.request_id)
        except Exception as error:
            self.end_stream_with(error, MEDIA_TYPE)

    def _cursor(self) -> str:
        return self.request.headers.get("Last-Event-ID") or self.get_query_argument("after", "")

    async def _follow(self, reader: FeedReader) -> None:
        """Send changes until there will be none any more, or the caller may see nothing any more."""
        loop = asyncio.get_running_loop()
        ask_again_at, kinds, sent_at = 0.0, frozenset[str](), loop.time()
        look_again_seconds = min(_ASK_SECONDS, self.heartbeat_seconds)
        while (changes := await reader.read(look_again_seconds)) is not None:
            if loop.time() >= ask_again_at:  # a stream may last for longer than what its caller may do
                ask_again_at, kinds = loop.time() + _ASK_SECONDS - _SPARE_SECONDS, await self._kinds()
            parts = list(self._frames(changes, kinds))
            if not parts and loop.time() >= sent_at + self.heartbeat_seconds - _SPARE_SECONDS:
                parts.append(KEEP_ALIVE)
            if parts:
                await self.send_parts(parts)
                sent_at = loop.time()

    async def _kinds(self) -> frozenset[str]:
        """Return what kinds of change the caller may see now.

        Raises
        ------
        Forbidden
            If it may see no sessions.
        """
        kinds = {RESET}
        for kind, access in NEEDED.items():
            if access.scope not in self.caller.scopes:
                continue
            try:
                await authorize(self, access.action, access.resource)
            except Forbidden:
                if kind == SESSION:
                    raise
                continue
            kinds.add(kind)
        return frozenset(kinds)

    def _frames(self, changes: Iterable[FeedEntry], kinds: Collection[str]) -> Iterable[bytes]:
        for change in changes:
            if change.kind in kinds and (change.kind == RESET or self.caller.may_see(change.owner)):
                yield change.frame

    def on_connection_close(self) -> None:
        """Wait for no more changes."""
        super().on_connection_close()
        if self._reader is not None:
            self._reader.close()
