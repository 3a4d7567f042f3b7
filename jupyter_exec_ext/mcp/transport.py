"""Streamable HTTP transport: validates each message of a client, and dispatches it to its handler.

It knows nothing of Tornado and of our tools: any low-level server of the official SDK can be behind it. There was no
need for the SDK's ASGI application, since its core handles single requests (`ServerRunner.on_request`).

Revision 2026-07-28 sends one self-contained request at a time, and a client cancels it by closing the response. In the
older revisions a handshake opens a protocol session, a closed response is no cancellation, and a client may come back
for the rest of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..engine.concurrency import BackgroundTasks
from ..errors import PolicyLimitReached
from ..protocol.large_values import is_large
from ..protocol.strict_json import dump_bytes
from .call_context import make_context
from .handshake_sessions import MAX_CALLS, HandshakeSession, HandshakeSessions
from .header_checks import check_parameter_headers, check_task_header
from .message_stream import MessageStream
from .open_responses import OpenResponse
from .replies import Reply, acknowledge, make_error_message, make_error_reply

SESSION_HEADER = "Mcp-Session-Id"
#: Error code of a cancelled request, as the SDK answers it in the handshake revisions.
REQUEST_CANCELLED = 0
_Call = Callable[[], Awaitable[dict[str, Any]]]
_META_ENVELOPE = "io.modelcontextprotocol/protocolVersion"
_NO_SESSION = "there is no such protocol session (any more); send 'initialize' again"


class Transport:
    """Messages of all clients of one server.

    Parameters
    ----------
    server : Server
        The SDK's low-level server.
    return_seconds : float
        Time that a client of the handshake revisions has to come back for a response that was cut off, before its
        request is cancelled.
    options : callable, optional
        Returns the answer to a handshake.
    on_close : callable, optional
        Ends subscriptions.
    """

    def __init__(
        self,
        server: Server[Any],
        *,
        return_seconds: float,
        options: Callable[[], InitializationOptions] | None = None,
        on_close: Callable[[], object] | None = None,
    ) -> None:
        self.sessions = HandshakeSessions()
        self._server = server
        self._return_seconds = return_seconds
        self._options = options
        self._on_close = on_close
        self._streams = 0
        self._closing = BackgroundTasks()

    async def close(self) -> None:
        """End all subscriptions and protocol sessions."""
        if self._on_close is not None:
            self._on_close()
        await self.sessions.close()
        await self._closing.drain()

    # --- POST ---

    async def post(
        self,
        message: Any,
        headers: Iterable[tuple[str, str]],
        principal: str,
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> Reply:
        """Handle one message.

        Parameters
        ----------
        message : JSON value
            The request's body.
        headers : iterable of (str, str)
            All headers of the request.
        make_request : callable
            Returns what handlers see as ``ctx.request``; takes the protocol session.
        """
        pairs = list(headers)
        lower = {name.lower(): value for name, value in pairs}
        version = lower.get(MCP_PROTOCOL_VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return await self._post_single(message, pairs, lower, make_request)
        return await self._post_in_session(message, lower, principal, make_request)

    async def _post_single(
        self,
        message: Any,
        pairs: list[tuple[str, str]],
        headers: Mapping[str, str],
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> Reply:
        if isinstance(message, dict) and "id" not in message:
            return acknowledge(message, headers[MCP_PROTOCOL_VERSION_HEADER])
        try:
            request = JSONRPCRequest.model_validate(message)
        except ValidationError:
            return make_error_reply(None, INVALID_REQUEST, "the body must be a single JSON-RPC request or notification")
        duplicated = find_duplicated_routing_header(pairs)
        if duplicated is not None:
            return make_error_reply(request.id, HEADER_MISMATCH, f"the header {duplicated} appears more than once")
        route = classify_inbound_request(message, headers=headers)
        if not isinstance(route, InboundLadderRejection):
            checked = check_task_header(request, headers) or check_parameter_headers(self._server, request, headers)
            route = checked if checked is not None else route
        if isinstance(route, InboundLadderRejection):
            return make_error_reply(request.id, route.code, route.message, route.data)
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        runner: ServerRunner[Any] = ServerRunner(self._server, connection, {})
        stream = MessageStream()
        context = make_context(request, headers, stream, make_request(None), None)

        async def handle() -> dict[str, Any]:
            try:
                return await runner.on_request(context, request.method, request.params)
            finally:
                await aclose_shielded(connection)

        task = asyncio.create_task(_run(handle, request.id, stream))
        return Reply(200, stream=stream, on_cut=task.cancel)

    async def _post_in_session(
        self,
        message: Any,
        headers: Mapping[str, str],
        principal: str,
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> Reply:
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            return make_error_reply(None, INVALID_REQUEST, "the body must be a single JSON-RPC message")
        session_id = headers.get(SESSION_HEADER.lower())
        if isinstance(parsed, JSONRPCRequest) and parsed.method == "initialize" and session_id is None:
            return await self._open(parsed, headers, principal, make_request)
        if session_id is None:
            return make_error_reply(
                None, INVALID_REQUEST, f"the header {SESSION_HEADER} is missing; send 'initialize' first"
            )
        session = self.sessions.find(session_id, principal)
        if session is None:
            return make_error_reply(None, INVALID_REQUEST, _NO_SESSION, status=404)
        session.touch()
        if isinstance(parsed, JSONRPCResponse):
            session.resolve(parsed.id, parsed.result, None)
        elif isinstance(parsed, JSONRPCError):
            if parsed.id is not None:
                session.resolve(parsed.id, None, parsed.error)
        elif isinstance(parsed, JSONRPCNotification):
            await self._notified(parsed, session, headers, make_request)
        else:
            return self._call(parsed, session, headers, make_request)
        return Reply(202)

    async def _open(
        self,
        request: JSONRPCRequest,
        headers: Mapping[str, str],
        principal: str,
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> Reply:
        session = HandshakeSession(principal, self._server, self._options() if self._options is not None else None)
        stream = MessageStream()
        context = make_context(request, headers, stream, make_request(session), session)
        call = partial(session.runner.on_request, context, request.method, request.params)
        await _run(call, request.id, stream, in_session=True)
        if session.connection.client_params is None:  # refused
            await session.close()
            return Reply(200, stream=stream)
        try:
            await self.sessions.add(session)
        except PolicyLimitReached:
            await session.close()
            raise
        return Reply(200, stream=stream, headers={SESSION_HEADER: session.id})

    async def _notified(
        self,
        message: JSONRPCNotification,
        session: HandshakeSession,
        headers: Mapping[str, str],
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> None:
        if message.method == "notifications/cancelled":
            request_id = cancelled_request_id_from_params(message.params)
            task = session.calls.get(request_id) if request_id is not None else None
            if task is not None:
                task.cancel()
            return
        context = make_context(message, headers, session.standalone, make_request(session), session)
        await session.runner.on_notify(context, message.method, message.params)

    def _call(
        self,
        request: JSONRPCRequest,
        session: HandshakeSession,
        headers: Mapping[str, str],
        make_request: Callable[[HandshakeSession | None], Any],
    ) -> Reply:
        meta = (request.params or {}).get("_meta")
        if isinstance(meta, Mapping) and _META_ENVELOPE in meta:
            return make_error_reply(
                request.id, INVALID_REQUEST, "this protocol session was opened by a handshake of an older revision"
            )
        if request.id in session.calls:
            return make_error_reply(request.id, INVALID_REQUEST, "a request with this id is still being handled")
        if not session.has_room():
            return make_error_reply(
                request.id, INVALID_REQUEST, f"a client may have {MAX_CALLS} open requests", status=429
            )
        self._streams += 1
        stream = MessageStream(str(self._streams))
        context = make_context(request, headers, stream, make_request(session), session)
        call = partial(session.runner.on_request, context, request.method, request.params)
        task = asyncio.create_task(_run(call, request.id, stream, in_session=True))
        session.calls[request.id] = task
        task.add_done_callback(lambda _: session.calls.pop(request.id, None))
        response = OpenResponse(stream, task, request.id, session.principal, self.sessions.unread)
        session.responses[stream.name] = response
        return self._reply_with(session, response)

    def _reply_with(self, session: HandshakeSession, response: OpenResponse, after: int = 0) -> Reply:
        """Return the reply that sends a response, from the message after number `after` on.

        A client whose response is cut off gets time to come back. One that is not seen again is gone, with its protocol
        session.
        """
        stream, forget = response.stream, partial(session.forget, response.stream.name)

        def await_return() -> None:
            cut_at = time.monotonic()

            def give_up() -> None:
                forget()
                response.task.cancel()
                if session.used_at <= cut_at and not session.standalone.readers:
                    self._closing.start(self.sessions.remove(session))

            response.await_return(self._return_seconds, give_up)

        headers = {SESSION_HEADER: session.id}
        return Reply(200, stream=stream, headers=headers, on_cut=await_return, on_sent=forget, resume_after=after)

    # --- GET and DELETE, of the handshake revisions ---

    def get(self, headers: Mapping[str, str], principal: str) -> tuple[Reply, HandshakeSession | None]:
        """Return the stream of messages that belong to no request, or the rest of a response that was cut off."""
        session = self._named(headers, principal)
        if isinstance(session, Reply):
            return session, None
        session.touch()
        name, _, after = headers.get("last-event-id", "").rpartition("-")
        is_number = after.isdecimal() and len(after) < 16
        response = session.responses.get(name)
        if response is not None and is_number:
            response.attach()
            return self._reply_with(session, response, int(after)), session
        stream = session.standalone
        if stream.readers:
            return make_error_reply(
                None, INVALID_REQUEST, "this protocol session has such a stream already", status=409
            ), None
        resume_after = int(after) if is_number and name == stream.name else stream.sent
        return Reply(200, stream=stream, headers={SESSION_HEADER: session.id}, resume_after=resume_after), session

    async def delete(self, headers: Mapping[str, str], principal: str) -> tuple[Reply, HandshakeSession | None]:
        """End a protocol session."""
        session = self._named(headers, principal)
        if isinstance(session, Reply):
            return session, None
        await self.sessions.remove(session)
        return Reply(200), session

    def _named(self, headers: Mapping[str, str], principal: str) -> HandshakeSession | Reply:
        session_id = headers.get(SESSION_HEADER.lower())
        if session_id is None:
            return make_error_reply(None, INVALID_REQUEST, f"the header {SESSION_HEADER} is missing")
        found = self.sessions.find(session_id, principal)
        return found if found is not None else make_error_reply(None, INVALID_REQUEST, _NO_SESSION, status=404)


# --- parts ---


async def _run(call: _Call, request_id: RequestId, stream: MessageStream, *, in_session: bool = False) -> None:
    """Handle a request, and end its response with the result or the error."""
    try:
        result = await call()
    except asyncio.CancelledError:
        error = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")
        stream.end(dump_bytes(make_error_message(request_id, error)) if in_session else None)
        raise
    except Exception as failure:  # what handlers raise; the SDK logs what is no error of the protocol
        error = modern_error_data(failure)
        if not in_session:
            stream.status = ERROR_CODE_HTTP_STATUS.get(error.code, 200)
        stream.end(dump_bytes(make_error_message(request_id, error)))
    else:
        response = {"jsonrpc": "2.0", "id": request_id, "result": result}
        # Pictures are megabytes of base64.
        stream.end(await asyncio.to_thread(dump_bytes, response) if is_large(response) else dump_bytes(response))
