"""Handler of the change feed: a stream of changes to sessions, executions, tokens and grants."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from tornado import web

from ..engine.change_feed import (
    BRANCHED,
    CHECKPOINT_DELETED,
    CHECKPOINTED,
    EXECUTION,
    GRANT,
    LATE_OUTPUT,
    RESET,
    RESTORED,
    SESSION,
    TOKEN,
    FeedEntry,
    FeedReader,
)
from ..errors import Forbidden
from ..protocol.sse import KEEP_ALIVE, MEDIA_TYPE
from .gate import Access, authorize
from .streaming import StreamingHandler

# Reading the same records one by one needs the same rights.
NEEDED = {
    SESSION: Access("sessions:read", "read"),
    EXECUTION: Access("executions:read", "execute"),
    LATE_OUTPUT: Access("executions:read", "execute"),
    TOKEN: Access("tokens:create", "read", "tokens"),
    GRANT: Access("sessions:read", "read"),
    **dict.fromkeys((CHECKPOINTED, RESTORED, BRANCHED, CHECKPOINT_DELETED), Access("sessions:read", "read")),
}
# Interval of checks that the caller still has its rights.
_ASK_SECONDS = 5.0
# Timers may be a little early.
_SPARE_SECONDS = 0.1


class ChangesHandler(StreamingHandler):
    """``/events``"""

    # An open feed is no activity: it must not keep an idle server from stopping.
    _track_activity = False
    _reader: FeedReader | None = None

    @web.authenticated
    async def get(self) -> None:
        """Stream changes to the sessions, executions and tokens that the caller may see."""
        self.hold_stream()
        async with self.streaming(MEDIA_TYPE, "the change feed"):
            with self.engine.feed.watch(self._cursor()) as self._reader:
                await self._follow(self._reader)

    def _cursor(self) -> str:
        return self.request.headers.get("Last-Event-ID") or self.get_query_argument("after", "")

    async def _follow(self, reader: FeedReader) -> None:
        """Send changes until the feed ends, or the caller has lost its rights."""
        loop = asyncio.get_running_loop()
        ask_again_at, kinds, sent_at = 0.0, frozenset[str](), loop.time()
        look_again_seconds = min(_ASK_SECONDS, self.heartbeat_seconds)
        while (changes := await reader.read(look_again_seconds)) is not None:
            if loop.time() >= ask_again_at:  # rights may end before the stream does
                ask_again_at, kinds = loop.time() + _ASK_SECONDS - _SPARE_SECONDS, await self._kinds()
            parts = list(self._frames(changes, kinds))
            if not parts and loop.time() >= sent_at + self.heartbeat_seconds - _SPARE_SECONDS:
                parts.append(KEEP_ALIVE)
            if parts:
                await self.send_parts(parts)
                sent_at = loop.time()

    async def _kinds(self) -> frozenset[str]:
        """Return the kinds of change that the caller may see now.

        Raises
        ------
        Forbidden
            If it may not see sessions.
        """
        kinds = {RESET}
        for kind, access in NEEDED.items():
            if access.scope not in self.caller.scopes:
                continue
            try:
                await authorize(self, access.action, access.resource)
            except Forbidden:
                if kind == SESSION:  # the right that the route itself needs
                    raise
                continue
            kinds.add(kind)
        return frozenset(kinds)

    def _frames(self, changes: Iterable[FeedEntry], kinds: Collection[str]) -> Iterable[bytes]:
        for change in changes:
            if change.kind in kinds and (change.kind == RESET or self.caller.may_see(change.owner)):
                yield change.frame

    def on_connection_close(self) -> None:
        """Stop waiting for changes."""
        super().on_connection_close()
        if self._reader is not None:
            self._reader.close()
