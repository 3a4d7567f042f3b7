"""Message stream: the JSON-RPC messages of one response, in order, kept for a reader that may come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol.strict_json import dump_bytes

#: Bounds of what a stream keeps for its reader. Beyond them the oldest messages are dropped, never the newest.
MAX_MESSAGES = 256
MAX_BYTES = 4 * 1024 * 1024

Numbered = tuple[int, bytes]


class MessageStream:
    """Messages to a client on one response.

    Parameters
    ----------
    name : str
        Name in event ids, unique in its protocol session; empty for a stream that cannot be resumed.
    max_bytes : int
        Size that is kept for its reader.

    Attributes
    ----------
    readers : int
        Number of responses that send the stream now.
    sent : int
        Number of the last message that was sent.
    status : int
        HTTP status for a response whose only message is the last one.
    """

    def __init__(self, name: str = "", max_bytes: int = MAX_BYTES) -> None:
        self.name = name
        self._max_bytes = max_bytes
        self.readers = 0
        self.sent = 0
        self.status = 200
        self._messages: deque[Numbered] = deque()
        self._size_bytes = 0
        self._last_number = 0
        self._is_ended = False
        self._is_detached = False
        self._news = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        """True if no message follows those that are kept."""
        return self._is_ended

    @property
    def last_number(self) -> int:
        """Number of the last message; 0 if there was none."""
        return self._last_number

    @property
    def size_bytes(self) -> int:
        """Size of the messages that are kept."""
        return self._size_bytes

    @property
    def last_message(self) -> bytes:
        """The last message, as JSON; empty if there was none."""
        return self._messages[-1][1] if self._messages else b""

    def add(self, message: Mapping[str, Any]) -> None:
        """Add a message; after the end it is dropped."""
        if not self._is_ended:
            self._append(dump_bytes(message))

    def end(self, message: bytes | None = None) -> None:
        """Add the last message, as JSON, and end the stream; an ended stream stays as it is."""
        if self._is_ended:
            return
        if message is not None:
            self._append(message)
        self._is_ended = True
        self._news.set()

    def _append(self, data: bytes) -> None:
        self._last_number += 1
        self._messages.append((self._last_number, data))
        self._size_bytes += len(data)
        while len(self._messages) > MAX_MESSAGES or (self._size_bytes > self._max_bytes and len(self._messages) > 1):
            self._size_bytes -= len(self._messages.popleft()[1])
        self._news.set()

    def replace_messages(self, message: bytes) -> None:
        """Keep only this message, as JSON, in the place of the last one."""
        self._messages = deque([(self._last_number, message)])
        self._size_bytes = len(message)

    def detach(self) -> None:
        """Make its readers stop, so that the client comes back for the rest."""
        self._is_detached = True
        self._news.set()

    @property
    def is_detached(self) -> bool:
        """True if its readers are to stop."""
        return self._is_detached

    def attach(self) -> None:
        """Begin to read again, after `detach` or a closed response."""
        self._is_detached = False

    def wake(self) -> None:
        """Make its readers return from `read`, because one of their responses was closed."""
        self._news.set()

    async def read(self, after: int, timeout_seconds: float) -> Sequence[Numbered]:
        """Return the messages that follow number `after`; wait for one if there is none.

        Returns
        -------
        sequence of (int, bytes)
            Numbers and JSON; empty if the time is up, the stream has ended or is detached, or `wake` was called.
        """
        found = self._after(after)
        if not found and not self._is_ended and not self._is_detached:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), timeout_seconds)
            except asyncio.TimeoutError:
                return ()
            found = self._after(after)
        return found

    def _after(self, number: int) -> Sequence[Numbered]:
        return [message for message in self._messages if message[0] > number]
