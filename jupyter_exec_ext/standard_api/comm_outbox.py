"""Bounded queue of comm messages, such as those of widgets, on their way to one client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..protocol.strict_json import dump_bytes
from .outgoing_messages import OutgoingMessage

MAX_MESSAGES = 10_000
MAX_BYTES = 16 * 1024 * 1024


class CommOutbox:
    """Bounded queue of comm messages for one client.

    Parameters
    ----------
    send : callable
        Coroutine function that sends a message, and returns when there is room for more.
    """

    def __init__(self, send: Callable[[OutgoingMessage], Awaitable[None]]) -> None:
        self._send = send
        self._queue: asyncio.Queue[tuple[OutgoingMessage, int]] = asyncio.Queue(MAX_MESSAGES)
        self._queued_bytes = 0

    def add_message(self, message: OutgoingMessage) -> bool:
        """Queue a message.

        Parameters
        ----------
        message : OutgoingMessage
            The message.

        Returns
        -------
        bool
            False if the queue is full. The message is then dropped.
        """
        size_bytes = len(dump_bytes(message.content)) + len(dump_bytes(message.metadata))
        if self._queue.full() or self._queued_bytes + size_bytes > MAX_BYTES:
            return False
        self._queued_bytes += size_bytes
        self._queue.put_nowait((message, size_bytes))
        return True

    async def run(self) -> None:
        """Send queued messages until cancelled."""
        while True:
            message, size_bytes = await self._queue.get()
            await self._send(message)
            self._queued_bytes -= size_bytes
