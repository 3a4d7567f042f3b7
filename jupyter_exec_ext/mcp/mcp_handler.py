"""Handler of ``exec/mcp``: MCP's streamable HTTP in Tornado.

A request passes the same gate as those of ``exec/v1``. `transport` decides what to answer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_server.utils import url_path_join
from tornado import web

from ..auth.caller import Caller
from ..errors import ExecError, InvalidJSON, Unauthenticated
from ..protocol.sse import MEDIA_TYPE
from ..server.base_handler import ExecHandler, Services
from ..server.gate import Access, check_access
from ..server.streaming import StreamingHandler
from .caller_time_limits import renewal_seconds_of
from .endpoint import McpEndpoint
from .leases import LEASE_HEADER, Lease

if TYPE_CHECKING:
    from .handshake_sessions import HandshakeSession
    from .message_stream import MessageStream
    from .replies import Reply

MCP_PREFIX = "exec/mcp"
METADATA_PATH = f"{MCP_PREFIX}/.well-known/oauth-protected-resource"
TOKENS_PATH = f"{MCP_PREFIX}/.well-known/tokens"
# Errors of JSON-RPC for what fails before a message is read.
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
# A response without a message this long is begun as a stream, which comments then keep open.
_STREAM_AFTER_SECONDS = 15.0
_COMMENT = b": keep-alive\n\n"
_RETRY_MILLISECONDS = 1000
# As in `transport`, which is not imported without the SDK.
_SESSION_HEADER = "Mcp-Session-Id"
_IN_URL = "send the token in the Authorization header; URLs end up in logs"


@dataclass(frozen=True)
class McpRequest:
    """The HTTP request behind a message, for tools and resources.

    Parameters
    ----------
    caller : Caller
        Author of the request.
    handler : ExecHandler
        For the deployment's authorizer.
    session : HandshakeSession or None
        Protocol session; None in revision 2026-07-28.
    lease : Lease or None
        The client's lease, if it holds one.
    """

    caller: Caller
    handler: ExecHandler
    session: HandshakeSession | None
    lease: Lease | None = None

    async def check(self, access: Access) -> None:
        """Check the caller's rights as for an endpoint of ``exec/v1``; raises `ExecError`."""
        await check_access(self.handler, self.caller, access)


class McpHandler(StreamingHandler):
    """``/exec/mcp``: messages by POST, the server's own by GET; DELETE ends a protocol session or a lease."""

    def initialize(  # type: ignore[override]  # the route table gives one argument more
        self, services: Services, access: Mapping[str, Access], endpoint: McpEndpoint
    ) -> None:
        """Store the arguments from the route table."""
        super().initialize(services, access)
        self._endpoint = endpoint
        self._open_reply: Reply | None = None
        self._lease: Lease | None = None

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Authenticate and authorise the request; a token in the URL is refused."""
        if self.request.query_arguments.get("token") and self.request.method != "OPTIONS":
            raise Unauthenticated(_IN_URL)
        await super().prepare()

    @web.authenticated
    async def post(self) -> None:
        """Handle one message."""
        transport = await self._endpoint.transport()
        self._renew_lease()
        message = self.json_body()
        if _may_take_long(message):
            self.hold_stream()
        reply = await transport.post(message, self.request.headers.get_all(), self.caller.principal, self._request_of)
        await self._send(reply)

    @web.authenticated
    async def get(self) -> None:
        """Send the messages that belong to no request, or the rest of a response that was cut off."""
        transport = await self._endpoint.transport()
        self._renew_lease()
        self.hold_stream()
        reply, session = transport.get(self._headers_by_name(), self.caller.principal)
        await self._send(reply, session, is_standing=True)

    @web.authenticated
    async def delete(self) -> None:
        """End a protocol session, a lease, or both."""
        transport = await self._endpoint.transport()
        lease = self.request.headers.get(LEASE_HEADER)
        if lease is not None:
            await self._endpoint.leases.release(self.caller.principal, lease)
            if _SESSION_HEADER not in self.request.headers:
                self.answer_empty()
                return
        reply, _ = await transport.delete(self._headers_by_name(), self.caller.principal)
        await self._send(reply)

    def _headers_by_name(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.request.headers.get_all()}

    def _request_of(self, session: HandshakeSession | None) -> McpRequest:
        return McpRequest(self.caller, self, session, self._lease)

    def _renew_lease(self) -> None:
        lease = self.request.headers.get(LEASE_HEADER)
        if lease is not None:
            self._lease = self._endpoint.leases.renew(self.caller, lease)

    # --- answering ---

    async def _send(self, reply: Reply, session: HandshakeSession | None = None, *, is_standing: bool = False) -> None:
        for name, value in reply.headers.items():
            self.set_header(name, value)
        if reply.stream is None:
            self.set_status(reply.status)
            self.finish(reply.body or b"", set_content_type="application/json" if reply.body else "text/plain")
            return
        stream = reply.stream
        if self.is_abandoned:  # its connection was closed before there was anything to cut
            reply.on_cut()
            return
        self._open_reply = reply
        stream.readers += 1
        try:
            with self.log_closed_stream("an MCP stream"):
                if not is_standing and await self._is_one_message(stream):
                    self.set_status(stream.status)
                    self.finish(stream.last_message)
                else:
                    await self._send_events(stream, reply.resume_after, session)
                if self._open_reply is not None:  # it was not cut off
                    self._open_reply = None
                    (reply.on_sent if stream.is_ended else reply.on_cut)()
        finally:
            stream.readers -= 1

    async def _is_one_message(self, stream: MessageStream) -> bool:
        """Return whether a response ends soon with a single message, which is then sent as JSON."""
        await stream.read(0, _STREAM_AFTER_SECONDS)
        return stream.is_ended and stream.last_number <= 1

    async def _send_events(self, stream: MessageStream, after: int, session: HandshakeSession | None) -> None:
        await self.begin_stream(MEDIA_TYPE)
        if stream.name:  # the client may come back for the rest
            self.write(f"id: {stream.name}-{after}\nretry: {_RETRY_MILLISECONDS}\ndata: \n\n")
            await self.flush()
        # A client that is connected keeps its sessions, whose idle time may be short.
        seconds = min(self.heartbeat_seconds, renewal_seconds_of(self.caller, self.engine.mcp_idle_seconds))
        while True:
            messages = await stream.read(after, seconds)
            for number, data in messages:
                name = f"id: {stream.name}-{number}\n".encode() if stream.name else b""
                await self.send_parts([name, b"event: message\ndata: ", data, b"\n\n"])
                stream.sent = after = number
            if self.is_abandoned:
                return
            if not messages:
                if stream.is_detached or (stream.is_ended and after >= stream.last_number):
                    break
                await self.send_parts([_COMMENT])
            if session is not None:
                session.touch()
        self.finish()

    def on_connection_close(self) -> None:
        """Tell the transport that the client has closed the response before its end."""
        super().on_connection_close()
        reply, self._open_reply = self._open_reply, None
        if reply is not None and reply.stream is not None:
            reply.on_cut()
            reply.stream.wake()

    # --- errors ---

    def challenge(self) -> str:
        """Return the WWW-Authenticate header, with the address of the metadata for clients without a token."""
        return f'Bearer resource_metadata="{_address_of(self, METADATA_PATH)}"'

    def error_answer(self, error: ExecError) -> tuple[int, dict[str, Any]]:
        """Return an error of what came before a message was read, as JSON-RPC has it."""
        code = _PARSE_ERROR if isinstance(error, InvalidJSON) else _INVALID_REQUEST
        body = self.error_body(error)
        return error.status, {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": code, "message": body.pop("message"), "data": body},
        }


class McpMetadataHandler(ExecHandler):
    """``/exec/mcp/.well-known/oauth-protected-resource``: where a client gets a token (RFC 9728); needs none itself."""

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Check Host and Origin; the metadata is no secret."""
        self.expect_no_body()
        await self.services.gate.preflight(self)
        self._is_admitted = True

    async def get(self) -> None:
        """Send the metadata."""
        body: dict[str, Any] = {
            "resource": _address_of(self, MCP_PREFIX),
            "resource_name": "Code execution on Jupyter",
            "bearer_methods_supported": ["header"],
            "resource_documentation": _address_of(self, TOKENS_PATH),
        }
        hub = os.environ.get("JUPYTERHUB_BASE_URL")
        if hub is not None:
            # With subdomains for users, the Hub has a host of its own.
            host = os.environ.get("JUPYTERHUB_HOST") or f"{self.request.protocol}://{self.request.host}"
            body["authorization_servers"] = [f"{host}{hub}hub/"]
        self.answer(body)


class McpTokensHandler(McpMetadataHandler):
    """``/exec/mcp/.well-known/tokens``: the page that the metadata names."""

    async def get(self) -> None:
        """Send the page."""
        self.finish(_HOW_TO_GET_A_TOKEN, set_content_type="text/plain; charset=utf-8")


_HOW_TO_GET_A_TOKEN = """\
This Jupyter server needs a token in the Authorization header: "Authorization: Bearer TOKEN".

Its owner creates one for an agent, with limits, in JupyterLab's panel "Code Execution" or with a command:

    jupyter exec token create NAME

It is shown once. Put it into a file or an environment variable, and have your MCP client read it from there:

    jupyter exec mcp --print-config claude|cursor|vscode|codex
"""


def _address_of(handler: ExecHandler, path: str) -> str:
    return f"{handler.request.protocol}://{handler.request.host}{url_path_join(handler.base_url, path)}"


def _may_take_long(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") in ("tools/call", "subscriptions/listen")
