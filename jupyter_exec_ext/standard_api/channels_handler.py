"""WebSocket of a kernel: authentication, sizes, the end with the token's, and frames in both of Jupyter's forms."""

from __future__ import annotations

import asyncio
import secrets
import time

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ..auth.rate_limiter import Budget
from ..errors import ExecError, InvalidRequest, XSRFCheckFailed
from ..protocol.kernel_messages import WEBSOCKET_PROTOCOL
from ..server.gate import Access, check_access
from .client_registry import ClientKey
from .kernel_handlers import StandardHandler
from .outgoing_messages import OutgoingMessage
from .remote_client import Disconnected, RemoteClient
from .token_places import TOKEN_PROTOCOL

_MAX_NAME_CHARACTERS = 128
_PING_SECONDS = 30.0
_SPARE_BYTES = 64 * 1024
_SWITCHING_PROTOCOLS = 101
_POLICY, _FAILED = 1008, 1011
# Far more than a client that waits for each answer can send. Beyond, a connection's messages are read more slowly.
_MESSAGES_AT_ONCE, _MESSAGES_PER_MINUTE = 1000, 30_000.0
# Refused messages and interrupts are in the audit trail, and a client could send thousands of them in a second. Beyond
# these figures, the messages of a connection are read more slowly.
_RECORDED_AT_ONCE, _RECORDED_PER_MINUTE = 50, 300.0
# A reason is at most 123 bytes in a WebSocket's last frame.
_MAX_REASON_BYTES = 120


class ChannelsHandler(StandardHandler, WebSocketHandler):
    """``/api/kernels/{kernel_id}/channels``"""

    _client: RemoteClient | None = None
    _is_v1 = False
    _key: ClientKey
    _messages: Budget
    _recorded: Budget
    _rest_seconds = 0.0  # before the next message is read

    async def get(self, kernel_id: str) -> None:
        """Connect a client to a kernel; raise `XSRFCheckFailed` for a browser's login without a token."""
        # A browser adds its cookies to a WebSocket of any page, and the page cannot add the header of the XSRF check.
        if not self.token_authenticated:
            raise XSRFCheckFailed("send a token; a WebSocket of this API takes no cookie")
        session = await self.find_session(kernel_id)
        name = self.get_query_argument("session_id", "")[:_MAX_NAME_CHARACTERS]
        self._has_name = bool(name)
        self._key = ClientKey(self.caller.principal, session.id, name or secrets.token_hex(8))
        self.hold_stream()
        if self.request.headers.get("Upgrade", "").lower() != "websocket":  # which Tornado would say in plain text
            raise InvalidRequest("this path is for WebSockets only")
        await WebSocketHandler.get(self)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Choose the binary form of messages if it is offered."""
        return next((each for each in (WEBSOCKET_PROTOCOL, TOKEN_PROTOCOL) if each in subprotocols), None)

    @property
    def max_message_size(self) -> int:
        """Size of the largest frame: JSON adds escapes and other fields to the code that it carries."""
        limits = (policy.max_code_bytes for policy in self.caller.policies)
        return 4 * min([self.engine.max_code_bytes, *(each for each in limits if each is not None)]) + _SPARE_BYTES

    @property
    def ping_interval(self) -> float:
        """Time between two pings in seconds, after which a client that is gone is noticed."""
        return _PING_SECONDS

    async def open(self, *args: str, **kwargs: str) -> None:
        """Begin to show the client what happens."""
        self.set_nodelay(True)
        self._is_v1 = self.selected_subprotocol == WEBSOCKET_PROTOCOL
        self._messages = Budget(_MESSAGES_AT_ONCE, _MESSAGES_PER_MINUTE, max_keys=1)
        self._recorded = Budget(_RECORDED_AT_ONCE, _RECORDED_PER_MINUTE, max_keys=1)
        try:
            self._client = await self._clients.connect(self._key, self.caller, self)
        except ExecError as error:
            self.note_refusal("", error)
            self._end(_POLICY, error.message)
        if self.ws_connection is None:  # the connection has ended meanwhile, before there was a client to leave
            self._leave()

    async def on_message(self, message: str | bytes) -> None:
        """Handle a message; the next one is read when it is done."""
        if self._client is None or self.ws_connection is None:  # messages that came before the connection's end
            return
        try:
            await self._client.handle(message, is_v1=self._is_v1)
        except Disconnected:
            self.log.debug("the client of a kernel has gone (request %s)", self.request_id)
        except Exception:  # a defect of ours ends this connection alone
            self.log.exception("a message of a kernel's client failed (request %s)", self.request_id)
            self._end(_FAILED, "the server failed; its log has the details")
        rest_seconds = max(self._rest_seconds, self._messages.spend("", time.monotonic()))
        if rest_seconds:
            await asyncio.sleep(rest_seconds)
            self._rest_seconds = 0.0

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and return when it has left; raise `Disconnected` if the connection has ended."""
        frame = message.frame(self._key.session_id, is_v1=self._is_v1)
        try:
            await self.write_message(frame, binary=self._is_v1)
        except WebSocketClosedError:
            raise Disconnected from None

    async def require(self, access: Access) -> None:
        """Check the caller's rights."""
        await check_access(self, self.caller, access)

    def note_refusal(self, message_type: str, error: ExecError) -> None:
        """Log a refused message as a refused request is logged, and record it if it was for lack of a right."""
        self.count_recorded()
        self.log_exception(type(error), error, None)
        self.record_if_denied(error, message_type)

    def count_recorded(self) -> None:
        """Rest before the next message is read, if there were too many that leave records."""
        self._rest_seconds = self._recorded.spend("", time.monotonic())

    def cut_off(self, reason: str) -> None:
        """End the connection, for a reason."""
        self._end(_POLICY, reason)

    def _end(self, code: int, reason: str) -> None:
        self.close(code, reason.encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore"))

    def _token_ended(self) -> None:
        if self._client is None:  # there is no WebSocket yet
            super()._token_ended()
            return
        self._clients.forget(self._key)
        self._end(_POLICY, "the token has ended")

    def on_finish(self) -> None:
        """Release what the request held, unless it has become a WebSocket, which holds it until its own end."""
        if self.get_status() != _SWITCHING_PROTOCOLS:
            super().on_finish()

    def on_close(self) -> None:
        """Release what the connection held."""
        self._unwatch()
        self._end_stream()
        self._leave()

    def _leave(self) -> None:
        if self._client is not None:
            self._clients.disconnect(self._key, self, may_return=self._has_name)
