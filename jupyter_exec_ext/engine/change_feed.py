"""The change feed: what happens to sessions, executions and tokens, for those who watch.

A change is made text once, when it happens, and kept in a ring that is bounded in number and in bytes. Each reader has
a place in it and reads on at its own pace; one whose place the ring has left behind is told to start over (`RESET`),
which is also how a reader begins. So a slow reader costs no memory, and nobody has to keep an account of it.

While nobody watches, nothing is kept: whoever makes a change looks at `wanted` first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from ..models import Execution, JSONObject, LateOutput, Session, Token
from ..protocol.records_json import late_output_to_json, summary_to_json, to_json
from ..protocol.sse import EVENT_END, encode_event
from ..protocol.strict_json import dump_bytes

RESET, SESSION, EXECUTION, TOKEN, LATE_OUTPUT = "reset", "session", "execution", "token", "late_output"

_MAX_CHANGES = 2048
_MAX_BYTES = 8 * 1024 * 1024
_CHANGES_PER_READ = 128
# How long changes are kept for a reader that may come back.
_KEPT_SECONDS = 60.0
_MAX_DIGITS = 16


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One thing that happened.

    Parameters
    ----------
    cursor : str
        What a reader that has seen this one names to go on after it.
    kind : str
        `SESSION`, `EXECUTION`, `TOKEN`, `LATE_OUTPUT` or `RESET`: everything has to be listed again.
    owner : str
        The principal it belongs to; only those who may see that principal's things are to see it.
    frame : bytes
        The whole as a server-sent event: made once, and sent as it is to every reader.
    data_bytes : int
        Size of its data.
    """

    cursor: str
    kind: str
    owner: str
    frame: bytes
    data_bytes: int

    @classmethod
    def of(cls, cursor: str, kind: str, owner: str, data: bytes) -> FeedEntry:
        """Return the entry with this data: JSON, on one line."""
        return cls(cursor, kind, owner, b"".join(encode_event(cursor, kind, data)), len(data))

    @property
    def data(self) -> bytes:
        """The JSON of what happened."""
        end = len(self.frame) - len(EVENT_END)
        return self.frame[end - self.data_bytes : end]


def resumable(cursor: str, boot: str, oldest: int, newest: int) -> int | None:
    """Return the number in a cursor if a reader can go on after it, else None.

    Parameters
    ----------
    boot : str
        Of which feed the cursor has to be.
    oldest, newest : int
        Between which numbers nothing is missing.
    """
    name, _, digits = cursor.rpartition("-")
    if name != boot or not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return None
    return int(digits) if oldest <= int(digits) <= newest else None


class ChangeFeed:
    """What has happened lately, and who waits for more.

    Attributes
    ----------
    wanted : bool
        Whether changes are to be noted: somebody watches, or did a moment ago.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._boot = secrets.token_hex(4)
        self._ring: deque[FeedEntry] = deque()
        self._ring_bytes = 0
        self._newest = 0
        self._readers: set[FeedReader] = set()
        self._forgetting: asyncio.TimerHandle | None = None
        self._closed = False

    # --- what happens ---

    def note_session(self, session: Session) -> None:
        """Tell that a session is new, or has changed."""
        self._add(SESSION, session.owner, to_json(session))

    def note_execution(self, execution: Execution, owner: str) -> None:
        """Tell that an execution is new, or in another state."""
        self._add(EXECUTION, owner, summary_to_json(execution))

    def note_late_output(self, late: LateOutput, owner: str) -> None:
        """Tell that an execution that has ended has written more."""
        self._add(LATE_OUTPUT, owner, late_output_to_json(late))

    def note_token(self, token: Token) -> None:
        """Tell that a token is new, or has changed."""
        self._add(TOKEN, token.principal, to_json(token))

    def _add(self, kind: str, owner: str, record: JSONObject) -> None:
        if not self.wanted:
            return
        self._newest += 1
        change = FeedEntry.of(self._cursor(self._newest), kind, owner, dump_bytes({kind: record}))
        self._ring.append(change)
        self._ring_bytes += change.data_bytes
        while len(self._ring) > _MAX_CHANGES or self._ring_bytes > _MAX_BYTES:
            self._ring_bytes -= self._ring.popleft().data_bytes
        self._wake()

    def start_over(self) -> None:
        """Tell everybody to list everything again: something has happened that could not be told."""
        self._newest += 1  # no cursor that anybody has is good any more
        self._ring.clear()
        self._ring_bytes = 0
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.news.set()

    # --- who watches ---

    @contextmanager
    def watch(self, cursor: str) -> Iterator[FeedReader]:
        """Give a reader that goes on after a cursor if it can."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        self.wanted = True
        reader = FeedReader(self, resumable(cursor, self._boot, self._oldest, self._newest))
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._leave(reader)

    def _leave(self, reader: FeedReader) -> None:
        """Do without a reader; soon after the last one, nothing is kept any more."""
        self._readers.discard(reader)
        if not self._readers and self._forgetting is None and not self._closed:
            self._forgetting = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self.wanted = False
        self.start_over()

    def after(self, number: int | None) -> tuple[int, Sequence[FeedEntry]]:
        """Return what follows a number, and the number to go on after; None for a reader that starts over."""
        if number is None or number < self._oldest:
            return self._newest, [FeedEntry.of(self._cursor(self._newest), RESET, "", b"{}")]
        begin = number - self._oldest
        changes = list(islice(self._ring, begin, begin + _CHANGES_PER_READ))
        return number + len(changes), changes

    @property
    def _oldest(self) -> int:
        """The number after which nothing is missing."""
        return self._newest - len(self._ring)

    def _cursor(self, number: int) -> str:
        return f"{self._boot}-{number}"

    @property
    def closed(self) -> bool:
        """Whether nothing happens any more."""
        return self._closed

    def close(self) -> None:
        """Let readers read what is left, and end."""
        self._closed = True
        self.wanted = False
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._wake()


class FeedReader:
    """Somebody's place in the feed; made by `ChangeFeed.watch`.

    Attributes
    ----------
    news : asyncio.Event
        Set when there is something to read.
    """

    def __init__(self, feed: ChangeFeed, after: int | None) -> None:
        self.news = asyncio.Event()
        self._feed = feed
        self._after = after
        self._closed = False

    def close(self) -> None:
        """Be done; what waits for changes gets none."""
        self._closed = True
        self.news.set()

    async def read(self, timeout_seconds: float) -> Sequence[FeedEntry] | None:
        """Return the next changes; none if there were none for so long, None when there will be none any more."""
        self.news.clear()
        changes = self._next()
        if changes or self._ended:
            return changes or None
        try:
            await asyncio.wait_for(self.news.wait(), timeout_seconds)
        except asyncio.TimeoutError:
            return ()
        changes = self._next()
        return None if self._ended and not changes else changes

    @property
    def _ended(self) -> bool:
        return self._closed or self._feed.closed

    def _next(self) -> Sequence[FeedEntry]:
        if self._closed:
            return ()
        self._after, changes = self._feed.after(self._after)
        return changes
