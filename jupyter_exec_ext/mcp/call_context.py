"""Call context: the channel back to the client while one of its requests is handled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp.types import JSONRPCNotification, JSONRPCRequest, ProgressToken, RequestId

from .message_stream import MessageStream


class Peer(Protocol):
    """Port to a client that answers requests of the server."""

    async def ask(self, stream: MessageStream, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request on a stream, and return the client's result."""


@dataclass
class CallContext:
    """The SDK's `DispatchContext` for a request whose response is a `MessageStream`.

    Parameters
    ----------
    stream : MessageStream
        Gets notifications and requests.
    peer : Peer or None
        Client to ask; None where the protocol's revision has no requests of the server.
    """

    transport: TransportContext
    request_id: RequestId | None
    message_metadata: ServerMessageMetadata
    stream: MessageStream
    peer: Peer | None = None
    progress_token: ProgressToken | None = None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    @property
    def can_send_request(self) -> bool:
        """True if the client can be asked now."""
        return self.peer is not None and not self.stream.is_ended

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client.

        Raises
        ------
        NoBackChannelError
            If it cannot be asked.
        """
        if self.peer is None or self.stream.is_ended:
            raise NoBackChannelError(method)
        return await self.peer.ask(self.stream, method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification on the request's own response."""
        self.stream.add(make_notification(method, params))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for that."""
        if self.progress_token is None:
            return
        params = {"progressToken": self.progress_token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: value for key, value in params.items() if value is not None})


def make_notification(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a notification as JSON-RPC has it."""
    return {"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params is not None else {})}


def make_context(
    message: JSONRPCRequest | JSONRPCNotification,
    headers: Mapping[str, str],
    stream: MessageStream,
    request: Any,
    peer: Peer | None,
) -> CallContext:
    """Return the context of one message.

    Parameters
    ----------
    request : object
        Handlers see it as ``ctx.request``.
    """

    async def detach() -> None:
        stream.detach()

    return CallContext(
        transport=TransportContext(kind="streamable-http", can_send_request=peer is not None, headers=headers),
        request_id=message.id if isinstance(message, JSONRPCRequest) else None,
        message_metadata=ServerMessageMetadata(request_context=request, close_sse_stream=detach),
        stream=stream,
        peer=peer,
        progress_token=progress_token_from_params(message.params),
    )
