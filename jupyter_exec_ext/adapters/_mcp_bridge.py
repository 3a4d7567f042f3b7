"""Bridge of a Model Context Protocol (MCP) client at standard input and output to a server's endpoint ``exec/mcp``.

It passes messages on, and adds what HTTP needs: the token, and headers that proxies route by. It holds a lease: the
server ends the sessions that were made for the client when the bridge ends, or soon after it was killed.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..client.aio.client import AsyncExecClient
from ..client.aio.http_client import ssl_context
from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError

#: The server ends the client's sessions this long after the bridge was killed.
LEASE_SECONDS = 45
_ENDPOINT = "exec/mcp"
_LEASE_HEADER, _SESSION_HEADER = "Jupyter-Exec-Lease", "Mcp-Session-Id"
# The server sends a comment at least every 15 s while a call runs.
_TIMEOUT = httpx2.Timeout(30.0, read=120.0)
# Pictures are long lines of base64.
_MAX_EVENT_BYTES = 64 * 1024 * 1024
_RELEASE_SECONDS = 10.0
_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
#: Default arguments of tools, by tool and name.
ToolDefaults = Mapping[str, Mapping[str, Any]]


async def has_endpoint(connection: JupyterConnectionInfo) -> bool:
    """Return whether a server answers, accepts the token, and has the endpoint."""
    async with AsyncExecClient(connection, max_retries=0, outage_seconds=0) as client:
        try:
            return "mcp" in (await client.info()).get("features", ())
        except ExecError:
            return False


def make_tool_defaults(kernel_name: str | None, timeout_seconds: float | None, session_id: str | None) -> ToolDefaults:
    """Return the arguments that the program's options stand for, where the model gives none."""
    kernel = {"kernel_name": kernel_name} if kernel_name is not None else {}
    session = {"session": session_id} if session_id is not None else {}
    timeout = {"timeout_seconds": timeout_seconds} if timeout_seconds is not None else {}
    in_session = (
        *("interrupt_session", "restart_session", "checkpoint_session", "restore_session", "branch_session"),
        *("list_files", "read_file", "write_file"),
    )
    return {
        "execute_code": {**kernel, **session, **timeout},
        "start_session": kernel,
        **dict.fromkeys(in_session, session),
    }


async def run_bridge(
    connection: JupyterConnectionInfo, defaults: ToolDefaults, *, lease_seconds: int = LEASE_SECONDS
) -> None:
    """Pass messages on until the client closes standard input; then end the sessions that were made for it.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The server.
    defaults : mapping
        See `make_tool_defaults`.
    lease_seconds : int
        The server ends the client's sessions this long after the bridge was killed.
    """
    url = f"{connection.url}{_ENDPOINT}"
    # Not one that others could guess: whoever names a lease can end it, with the same token.
    lease = {_LEASE_HEADER: f"{secrets.token_urlsafe(16)}; seconds={lease_seconds}"}
    http = httpx2.AsyncClient(
        transport=_ServerTransport(connection),
        headers={**connection.auth_headers, **lease},
        timeout=_TIMEOUT,
        trust_env=False,  # `_ServerTransport` has the proxy
    )
    async with http:
        try:
            async with (
                stdio_server() as (from_client, to_client),
                to_client,  # closed first, for which `stdio_server` waits
                streamable_http_client(url, http_client=http, max_sse_event_size=_MAX_EVENT_BYTES) as server_streams,
                anyio.create_task_group() as tasks,
            ):
                from_server, to_server = server_streams
                relay = _MessageRelay(defaults)
                tasks.start_soon(_renew_lease, http, url, lease_seconds / 3)
                tasks.start_soon(relay.relay_to_client, from_server, to_client)
                await relay.relay_to_server(from_client, to_server, to_client)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_RELEASE_SECONDS):
                await http.delete(url)


async def _renew_lease(http: httpx2.AsyncClient, url: str, interval_seconds: float) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/lease_renewed"}
    headers = {MCP_PROTOCOL_VERSION_HEADER: MODERN_PROTOCOL_VERSIONS[-1]}
    while True:
        await anyio.sleep(interval_seconds)
        # A Hub must still see that the server is idle.
        await http.post(url, params={"no_track_activity": "1"}, json=message, headers=headers)


class _MessageRelay:
    """Passes messages on, both ways."""

    def __init__(self, defaults: ToolDefaults) -> None:
        self._defaults = defaults
        self._handshake_id: Any = None
        self._version: str | None = None  # that of a handshake

    async def relay_to_server(self, from_client: Any, to_server: Any, to_client: Any) -> None:
        """Pass the client's messages on until it has no more."""
        async for item in from_client:
            if isinstance(item, Exception):
                error = ErrorData(code=PARSE_ERROR, message="the line is no JSON-RPC message")
                await to_client.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
                continue
            message = item.message
            if isinstance(message, JSONRPCRequest) and message.method == "initialize":
                self._handshake_id, self._version = message.id, None
            self._add_defaults(message)
            headers = self._headers_of(message)
            await to_server.send(SessionMessage(message, ClientMessageMetadata(headers=headers)))

    async def relay_to_client(self, from_server: Any, to_client: Any) -> None:
        """Pass the server's messages on."""
        async for item in from_server:
            if isinstance(item, Exception):
                print(f"jupyter exec mcp: the server sent no MCP message: {item}", file=sys.stderr)
                continue
            message = item.message
            if isinstance(message, JSONRPCResponse) and message.id == self._handshake_id:
                self._version = str(message.result.get("protocolVersion"))
            await to_client.send(SessionMessage(message))

    def _add_defaults(self, message: JSONRPCMessage) -> None:
        if not isinstance(message, JSONRPCRequest) or message.method != "tools/call" or message.params is None:
            return
        defaults = self._defaults.get(str(message.params.get("name")), {})
        arguments = message.params.get("arguments") or {}
        if defaults and isinstance(arguments, dict):
            message.params["arguments"] = {**defaults, **arguments}

    def _headers_of(self, message: JSONRPCMessage) -> dict[str, str]:
        """Return the headers in which HTTP repeats parts of a message."""
        params = (message.params if isinstance(message, JSONRPCRequest | JSONRPCNotification) else None) or {}
        meta = params.get("_meta")
        version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {} if self._version is None else {MCP_PROTOCOL_VERSION_HEADER: self._version}
        headers = {MCP_PROTOCOL_VERSION_HEADER: encode_header_value(version)}
        if isinstance(message, JSONRPCRequest):
            headers[MCP_METHOD_HEADER] = encode_header_value(message.method)
            key = "taskId" if message.method in _TASK_METHODS else NAME_BEARING_METHODS.get(message.method)
            if key is not None and isinstance(name := params.get(key), str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers


class _ServerTransport(httpx2.AsyncHTTPTransport):
    """HTTP transport that lives through a restart of the server.

    A server that cannot be reached gives an answer, as the SDK ends with an exception. A protocol session that the
    server has lost is opened again, since the client at standard input cannot know of it.
    """

    def __init__(self, connection: JupyterConnectionInfo) -> None:
        super().__init__(verify=ssl_context(connection), proxy=connection.proxy)
        self._url = connection.url
        self._handshake: httpx2.Request | None = None
        self._session_id: str | None = None
        self._reopening = anyio.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the response."""
        if _SESSION_HEADER not in request.headers:
            response = await self._send(request)
            if _SESSION_HEADER in response.headers:
                self._handshake, self._session_id = request, response.headers[_SESSION_HEADER]
            return response
        sent = request.headers[_SESSION_HEADER] = self._session_id or request.headers[_SESSION_HEADER]
        response = await self._send(request)
        if response.status_code == 404 and request.method != "DELETE" and await self._reopen(sent):
            request.headers[_SESSION_HEADER] = str(self._session_id)
            response = await self._send(request)
        return response

    async def _reopen(self, lost: str) -> bool:
        async with self._reopening:
            if self._handshake is None or self._session_id != lost:
                return self._handshake is not None
            response = await self._send(self._handshake)
            if _SESSION_HEADER not in response.headers:
                return False
            self._session_id = response.headers[_SESSION_HEADER]
            headers = {**self._handshake.headers, _SESSION_HEADER: self._session_id}
            del headers["content-length"]
            message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._send(httpx2.Request("POST", self._handshake.url, headers=headers, json=message))
            return True

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()
        except httpx2.TransportError:
            message = f"the Jupyter server {self._url} does not answer; start it, or check its address and the network"
            error = {"code": CONNECTION_CLOSED, "message": message}
            return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": error})
        return response
