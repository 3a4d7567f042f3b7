"""Comm outbox: messages of comms, such as widgets', that wait for a client, in their order and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..protocol.strict_json import dump_bytes
from .outgoing_messages import OutgoingMessage

MAX_MESSAGES = 10_000
MAX_BYTES = 16 * 1024 * 1024


class CommOutbox:
    """Messages of comms on their way to one client.

    Parameters
    ----------
    send : callable
        Sends a message, and returns when there is room for more.
    """

    def __init__(self, send: Callable[[OutgoingMessage], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: asyncio.Queue[tuple[OutgoingMessage, int]] = asyncio.Queue(MAX_MESSAGES)
        self._waiting_bytes = 0

    def add(self, message: OutgoingMessage) -> bool:
        """Send a message after those before it; return False if too much waits already."""
        size_bytes = len(dump_bytes(message.content)) + len(dump_bytes(message.metadata))
        if self._waiting.full() or self._waiting_bytes + size_bytes > MAX_BYTES:
            return False
        self._waiting_bytes += size_bytes
        self._waiting.put_nowait((message, size_bytes))
        return True

    async def run(self) -> None:
        """Send messages until this is cancelled."""
        while True:
            message, size_bytes = await self._waiting.get()
            await self._send(message)
            self._waiting_bytes -= size_bytes
