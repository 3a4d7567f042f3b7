"""Bounded queue of comm messages, such as those of widgets, on their way to one client.

An execution's output waits until its log is written, and comm messages have no log. So each comm message has a position
in the output, and is sent after the output before it and before the output behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ..protocol.strict_json import dump_bytes
from .outgoing_messages import OutgoingMessage

MAX_MESSAGES = 10_000
MAX_BYTES = 16 * 1024 * 1024


class Position(NamedTuple):
    """Place in the output of an execution.

    Parameters
    ----------
    execution_id : str
        Id of the execution.
    seq : int
        Number of the event in its log.
    """

    execution_id: str
    seq: int


class _Waiting(NamedTuple):
    message: OutgoingMessage
    size_bytes: int
    position: Position | None


class CommOutbox:
    """Bounded queue of comm messages for one client.

    Parameters
    ----------
    send : callable
        Coroutine function that sends a message, and returns when there is room for more.
    has_sent : callable
        Returns whether the client was sent the output up to a position.
    """

    def __init__(
        self, send: Callable[[OutgoingMessage], Awaitable[None]], has_sent: Callable[[Position], bool]
    ) -> None:
        self._send = send
        self._has_sent = has_sent
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._has_news = asyncio.Event()
        self._lock = asyncio.Lock()

    def add_message(self, message: OutgoingMessage, position: Position | None) -> bool:
        """Queue a message.

        Parameters
        ----------
        message : OutgoingMessage
            The message.
        position : Position or None
            Output after which it is sent; None if there is no output to wait for.

        Returns
        -------
        bool
            False if the queue is full. The message is then dropped.
        """
        size_bytes = len(dump_bytes(message.content)) + len(dump_bytes(message.metadata))
        if len(self._queue) >= MAX_MESSAGES or self._queued_bytes + size_bytes > MAX_BYTES:
            return False
        self._queued_bytes += size_bytes
        self._queue.append(_Waiting(message, size_bytes, position))
        self._has_news.set()
        return True

    async def send_due(self) -> None:
        """Send queued messages up to the first whose position was not reached."""
        if not self._queue:  # without the lock's turn of the event loop for each event of an execution
            return
        async with self._lock:
            while self._queue and ((position := self._queue[0].position) is None or self._has_sent(position)):
                waiting = self._queue.popleft()
                await self._send(waiting.message)
                self._queued_bytes -= waiting.size_bytes

    async def run(self) -> None:
        """Send new messages that are due, until cancelled. Callers of `send_due` send the others."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self.send_due()
