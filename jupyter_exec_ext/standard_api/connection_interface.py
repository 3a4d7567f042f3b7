"""Interface of a client's WebSocket, between `ReconnectableClient` and the WebSocket handler."""

from __future__ import annotations

from typing import Protocol

from ..errors import ExecError
from ..server.gate import Access
from .outgoing_messages import OutgoingMessage


class Disconnected(Exception):
    """The client's connection has ended, or the client was removed."""


class Connection(Protocol):
    """WebSocket of a client."""

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and return when there is room for more; raise `Disconnected` if the connection has ended."""

    async def require_access(self, access: Access) -> None:
        """Raise `ExecError` if the caller, or the deployment's user that it acts for, lacks one of these rights."""

    def record_refusal(self, message_type: str, error: ExecError) -> None:
        """Log a refused message, write its audit record, and count it."""

    def count_recorded_message(self) -> None:
        """Count a message that leaves an audit record, for the rate limit on these."""

    def end_connection(self, reason: str) -> None:
        """Close the connection, with a reason for the client."""
