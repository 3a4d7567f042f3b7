"""Change feed: a ring buffer of changes to sessions, executions, tokens and grants, for any number of readers.

Each change is encoded once and kept in a ring that is bounded in number and in bytes. A reader has a position in the
ring and reads at its own pace, so a slow reader costs no memory. One whose position has left the ring gets `RESET`, as
does a new reader, and lists everything again. Without readers nothing is kept: check `wanted` before noting a change.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from ..models import CheckpointEvent, Execution, JSONObject, KernelGrant, LateOutput, Session, Token
from ..protocol.records_json import late_output_to_json, summary_to_json, to_json
from ..protocol.sse import EVENT_END, encode_event
from ..protocol.strict_json import dump_bytes
from ..protocol.view_json import view_to_json

RESET, SESSION, EXECUTION, TOKEN, GRANT = "reset", "session", "execution", "token", "grant"
LATE_OUTPUT = "late_output"
CHECKPOINTED, RESTORED, BRANCHED = "checkpointed", "restored", "branched"
CHECKPOINT_DELETED = "checkpoint_deleted"

_MAX_CHANGES = 2048
_MAX_BYTES = 8 * 1024 * 1024
_CHANGES_PER_READ = 128
# Changes are kept this long after the last reader, which may come back.
_KEPT_SECONDS = 60.0
_MAX_DIGITS = 16  # a longer number is not one of ours, and is not parsed


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One change.

    Parameters
    ----------
    cursor : str
        Position of the change; a reader that has seen it resumes after it.
    kind : str
        `SESSION`, `EXECUTION`, `TOKEN`, `GRANT`, `LATE_OUTPUT`, one of the kinds of `ChangeFeed.note_checkpoint`, or
        `RESET` (list everything again).
    owner : str
        The principal it belongs to; only callers that may see that principal's things may see it.
    frame : bytes
        The server-sent event, encoded once for all readers.
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
        """Return the entry with this data, JSON on one line."""
        return cls(cursor, kind, owner, b"".join(encode_event(cursor, kind, data)), len(data))

    @property
    def data(self) -> bytes:
        """The change as JSON."""
        end = len(self.frame) - len(EVENT_END)
        return self.frame[end - self.data_bytes : end]


def resumable(cursor: str, boot: str, oldest: int, newest: int) -> int | None:
    """Return the number in a cursor if a reader can resume after it, else None.

    Parameters
    ----------
    boot : str
        Name of the feed; a cursor of another feed is not resumable.
    oldest, newest : int
        Range of numbers without a gap.
    """
    name, _, digits = cursor.rpartition("-")
    if name != boot or not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return None
    return int(digits) if oldest <= int(digits) <= newest else None


class ChangeFeed:
    """Recent changes, and their readers.

    Attributes
    ----------
    wanted : bool
        Whether to note changes: there is a reader, or there was one a moment ago.
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

    # --- changes ---

    def note_session(self, session: Session) -> None:
        """Note that a session is new, or has changed."""
        self._add(SESSION, session.owner, to_json(session))

    def note_execution(self, execution: Execution, owner: str) -> None:
        """Note that an execution is new, or in another state."""
        self._add(EXECUTION, owner, summary_to_json(execution))

    def note_late_output(self, late: LateOutput, owner: str) -> None:
        """Note that an execution that has ended has written more."""
        self._add(LATE_OUTPUT, owner, late_output_to_json(late))

    def note_token(self, token: Token) -> None:
        """Note that a token is new, or has changed."""
        self._add(TOKEN, token.principal, to_json(token))

    def note_grant(self, grant: KernelGrant, owner: str) -> None:
        """Note that a grant of a kernel to the principal `owner` is new, or has ended."""
        self._add(GRANT, owner, to_json(grant))

    def note_checkpoint(self, kind: str, event: CheckpointEvent, owner: str) -> None:
        """Note `CHECKPOINTED`, `RESTORED`, `BRANCHED` or `CHECKPOINT_DELETED` for a session of `owner`."""
        self._add(kind, owner, view_to_json(event))

    def _add(self, kind: str, owner: str, record: JSONObject) -> None:
        if not self.wanted:
            return
        self._newest += 1
        change = FeedEntry.of(self._cursor(self._newest), kind, owner, dump_bytes({kind: record}))
        self._ring.append(change)
        self._ring_bytes += change.data_bytes
        # A change that is larger than the ring empties it, and its readers get `RESET`.
        while len(self._ring) > _MAX_CHANGES or self._ring_bytes > _MAX_BYTES:
            self._ring_bytes -= self._ring.popleft().data_bytes
        self._wake()

    def start_over(self) -> None:
        """Send `RESET` to all readers, since a change could not be noted."""
        self._newest += 1  # makes every cursor stale
        self._ring.clear()
        self._ring_bytes = 0
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.news.set()

    # --- readers ---

    @contextmanager
    def watch(self, cursor: str) -> Iterator[FeedReader]:
        """Return a reader that resumes after a cursor, or starts with `RESET` if it cannot."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        self.wanted = True
        reader = FeedReader(self, resumable(cursor, self._boot, self._oldest, self._newest))
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._remove_reader(reader)

    def _remove_reader(self, reader: FeedReader) -> None:
        self._readers.discard(reader)
        if not self._readers and self._forgetting is None and not self._closed:
            # A reader whose connection was cut resumes by its cursor, without listing everything again.
            self._forgetting = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        self.wanted = False
        self.start_over()

    def after(self, number: int | None) -> tuple[int, Sequence[FeedEntry]]:
        """Return the changes after a number, and the number to continue after; None starts with `RESET`."""
        if number is None or number < self._oldest:
            return self._newest, [FeedEntry.of(self._cursor(self._newest), RESET, "", b"{}")]
        begin = number - self._oldest
        changes = list(islice(self._ring, begin, begin + _CHANGES_PER_READ))
        return number + len(changes), changes

    @property
    def _oldest(self) -> int:
        """The number after which no change is missing."""
        return self._newest - len(self._ring)

    def _cursor(self, number: int) -> str:
        return f"{self._boot}-{number}"

    @property
    def closed(self) -> bool:
        """True if there will be no more changes."""
        return self._closed

    def close(self) -> None:
        """End the feed; readers get the remaining changes first."""
        self._closed = True
        self.wanted = False
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._wake()


class FeedReader:
    """One reader's position in the feed; created by `ChangeFeed.watch`.

    Attributes
    ----------
    news : asyncio.Event
        Set when there are changes to read.
    """

    def __init__(self, feed: ChangeFeed, after: int | None) -> None:
        self.news = asyncio.Event()
        self._feed = feed
        self._after = after
        self._closed = False

    def close(self) -> None:
        """End this reader; a pending `read` returns None."""
        self._closed = True
        self.news.set()

    async def read(self, timeout_seconds: float) -> Sequence[FeedEntry] | None:
        """Return the next changes: empty after the timeout, None after the last one."""
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
