"""WebSocket handler of a kernel: authentication, frame sizes, rate limits, and close when the token ends."""

from __future__ import annotations

import asyncio
import secrets
import time

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ..auth.rate_limiter import RateLimiter
from ..errors import ExecError, InvalidRequest, XSRFCheckFailed
from ..protocol.kernel_messages import WEBSOCKET_PROTOCOL
from ..server.gate import Access, check_access
from .client_registry import ClientKey
from .connection_interface import Disconnected
from .kernel_handlers import StandardHandler
from .outgoing_messages import OutgoingMessage
from .reconnectable_client import ReconnectableClient
from .tokens_outside_header import TOKEN_PROTOCOL

_MAX_NAME_CHARACTERS = 128
_PING_SECONDS = 30.0
_SPARE_BYTES = 64 * 1024
_SWITCHING_PROTOCOLS = 101
_POLICY, _FAILED = 1008, 1011
# Rate limit on a connection's messages. A client that waits for each answer stays far below it. The server reads the
# messages of a faster client more slowly.
_MESSAGES_AT_ONCE, _MESSAGES_PER_MINUTE = 1000, 30_000.0
# Rate limit on messages that leave an audit record, which are refused messages and interrupts. Without it, a client
# could write thousands of records a second.
_RECORDED_AT_ONCE, _RECORDED_PER_MINUTE = 50, 300.0
# A close frame has room for 123 bytes of reason (RFC 6455, section 5.5).
_MAX_REASON_BYTES = 120


class ChannelsHandler(StandardHandler, WebSocketHandler):
    """Handler of ``/api/kernels/{kernel_id}/channels``."""

    _client: ReconnectableClient | None = None
    _is_v1 = False
    _key: ClientKey
    _messages: RateLimiter
    _recorded: RateLimiter
    _pause_seconds = 0.0  # wait before the next message is read

    async def get(self, kernel_id: str) -> None:
        """Open the WebSocket of a kernel.

        Raises
        ------
        XSRFCheckFailed
            If the request has only a browser's cookie, and no token.
        KernelNotFound
            If the caller has no live session with this kernel.
        InvalidRequest
            If the request is not a WebSocket handshake.
        """
        # A browser sends cookies with WebSockets of any page, and a WebSocket cannot have the header of the XSRF check.
        if not self.token_authenticated:
            raise XSRFCheckFailed("a WebSocket of this API needs a token; a login cookie is not enough")
        session = await self.find_session(kernel_id)
        name = self.get_query_argument("session_id", "")[:_MAX_NAME_CHARACTERS]
        self._has_name = bool(name)
        self._key = ClientKey(self.caller.principal, session.id, name or secrets.token_hex(8))
        self.hold_stream()
        if (
            self.request.headers.get("Upgrade", "").lower() != "websocket"
        ):  # Tornado would answer in plain text, not JSON
            raise InvalidRequest("this path is for WebSockets only; connect with a WebSocket client")
        await WebSocketHandler.get(self)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Choose the binary v1 sub-protocol if the client offers it."""
        return next((each for each in (WEBSOCKET_PROTOCOL, TOKEN_PROTOCOL) if each in subprotocols), None)

    @property
    def max_message_size(self) -> int:
        """Largest frame in bytes: four times the limit on code, since JSON adds escapes and other fields."""
        limits = (policy.max_code_bytes for policy in self.caller.policies)
        return 4 * min([self.engine.max_code_bytes, *(each for each in limits if each is not None)]) + _SPARE_BYTES

    @property
    def ping_interval(self) -> float:
        """Heartbeat interval in seconds; Tornado closes the connection of a client that does not answer a ping."""
        return _PING_SECONDS

    async def open(self, *args: str, **kwargs: str) -> None:
        """Register the client, and begin to send it the session's messages."""
        self.set_nodelay(True)
        self._is_v1 = self.selected_subprotocol == WEBSOCKET_PROTOCOL
        self._messages = RateLimiter(_MESSAGES_AT_ONCE, _MESSAGES_PER_MINUTE, max_keys=1)
        self._recorded = RateLimiter(_RECORDED_AT_ONCE, _RECORDED_PER_MINUTE, max_keys=1)
        try:
            self._client = await self._clients.connect(self._key, self.caller, self)
        except ExecError as error:
            self.record_refusal("", error)
            self._close_socket(_POLICY, error.message)
        if self.ws_connection is None:  # closed while the client was registered, so `on_close` did not find it
            self._disconnect_client()

    async def on_message(self, message: str | bytes) -> None:
        """Handle a message; Tornado reads the next one after this returns."""
        if self._client is None or self.ws_connection is None:  # buffered before the connection was closed
            return
        try:
            await self._client.handle_frame(message, is_v1=self._is_v1)
        except Disconnected:
            self.log.debug("a kernel's client has disconnected (request %s)", self.request_id)
        except Exception:  # a defect of this package ends one connection, and not the server
            self.log.exception("a message of a kernel's client failed (request %s)", self.request_id)
            self._close_socket(_FAILED, "the server failed; its log has the details")
        pause_seconds = max(self._pause_seconds, self._messages.spend_action("", time.monotonic()))
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
            self._pause_seconds = 0.0

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and wait until the socket's buffer has room.

        Parameters
        ----------
        message : OutgoingMessage
            The message.

        Raises
        ------
        Disconnected
            If the connection has ended.
        """
        frame = message.frame(self._key.session_id, is_v1=self._is_v1)
        try:
            await self.write_message(frame, binary=self._is_v1)
        except WebSocketClosedError:
            raise Disconnected from None

    async def require_access(self, access: Access) -> None:
        """Check the caller's rights.

        Parameters
        ----------
        access : Access
            Rights that the message needs.

        Raises
        ------
        ExecError
            If the caller lacks one of them.
        """
        await check_access(self, self.caller, access)

    def record_refusal(self, message_type: str, error: ExecError) -> None:
        """Log a refused message like a refused request, and write an audit record if the caller lacked a right.

        Parameters
        ----------
        message_type : str
            Type of the message.
        error : ExecError
            Reason of the refusal.
        """
        self.count_recorded_message()
        self.log_exception(type(error), error, None)
        self.record_if_denied(error, message_type)

    def count_recorded_message(self) -> None:
        """Count a message that leaves an audit record, and pause reading if there are too many."""
        self._pause_seconds = self._recorded.spend_action("", time.monotonic())

    def end_connection(self, reason: str) -> None:
        """Close the connection.

        Parameters
        ----------
        reason : str
            Reason in the close frame, which is cut at 120 bytes.
        """
        self._close_socket(_POLICY, reason)

    def _close_socket(self, code: int, reason: str) -> None:
        self.close(code, reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore"))

    def _token_ended(self) -> None:
        if self._client is None:  # the handshake is not complete yet
            super()._token_ended()
            return
        self._clients.remove(self._key)
        self._close_socket(_POLICY, "the token has ended")

    def on_finish(self) -> None:
        """Release the request's resources, unless it became a WebSocket: `on_close` does it then."""
        if self.get_status() != _SWITCHING_PROTOCOLS:
            super().on_finish()

    def on_close(self) -> None:
        """Release the connection's resources, and note that the client is disconnected."""
        self._unwatch()
        self._end_stream()
        self._disconnect_client()

    def _disconnect_client(self) -> None:
        if self._client is not None:
            self._clients.disconnect(self._key, self, may_return=self._has_name)
