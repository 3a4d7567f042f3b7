"""Resources: files of sessions, outputs of executions, and subscriptions to files that change."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    BlobResourceContents,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from ..engine.engine import ExecEngine
from ..errors import ExecError, QuotaExceeded
from ..models import SessionState
from ..server.rights import READ_EXECUTIONS, READ_FILES
from .file_tools import decode_text, read_range
from .handshake_sessions import HandshakeSession
from .mcp_handler import McpRequest
from .resource_uris import FILE_TEMPLATE, OUTPUT_TEMPLATE, file_uri, parse_uri

#: A resource is read as a whole; larger ones are read in parts, by a tool.
MAX_RESOURCE_BYTES = 8 * 1024 * 1024
_MAX_SESSIONS_LISTED, _MAX_FILES_LISTED = 20, 500
_MAX_SUBSCRIPTIONS = 100
_SUBSCRIBED = "subscriptions"

Context = ServerRequestContext[Any, McpRequest]


class Resources:
    """Handlers of the resource methods, and the bus of their changes.

    Parameters
    ----------
    engine : ExecEngine
        Has the files.
    """

    def __init__(self, engine: ExecEngine) -> None:
        self._engine = engine
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)

    def close(self) -> None:
        """End all streams of subscriptions."""
        self._listen.close()

    async def publish(self, session_id: str, paths: Sequence[str]) -> None:
        """Tell subscribers that files have changed."""
        for path in paths:
            await self._bus.publish(ResourceUpdated(uri=file_uri(session_id, path)))

    async def list(self, context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List files of the caller's newest sessions."""
        request = _request(context)
        if not READ_FILES.suffices(request.caller.scopes):
            return ListResourcesResult(resources=[])
        await _checked(request, request.check(READ_FILES))
        resources: list[Resource] = []
        sessions = await self._engine.list_sessions(request.caller)
        living = [session for session in sessions if session.state is not SessionState.ENDED]
        for session in living[-_MAX_SESSIONS_LISTED:]:
            try:
                found = await self._engine.files.list(request.caller, session.id, is_wanted=request.handler.is_wanted)
            except ExecError:  # it has just ended, or keeps its files elsewhere
                continue
            resources += [
                Resource(
                    name=info.path,
                    uri=file_uri(session.id, info.path),
                    mime_type=info.mime_type,
                    size=info.size_bytes,
                    description=f"File of session {session.id} ({session.name})",
                )
                for info in found.files[: _MAX_FILES_LISTED - len(resources)]
            ]
        return ListResourcesResult(resources=resources)

    async def list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List the forms of URIs."""
        files = ResourceTemplate(name="file", uri_template=FILE_TEMPLATE, description="A file of a session")
        outputs = ResourceTemplate(
            name="output",
            uri_template=OUTPUT_TEMPLATE,
            description="An output that was too long for the record of its execution, which names it in 'truncated'",
        )
        return ListResourceTemplatesResult(resource_templates=[files, outputs])

    async def read(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a whole file or output."""
        request = _request(context)
        uri = str(params.uri)
        kind, owner_id, name = _parsed(uri)
        if kind == "files":
            await _checked(request, request.check(READ_FILES))
            reader = await _checked(request, self._engine.files.open(request.caller, owner_id, name))
        else:
            await _checked(request, request.check(READ_EXECUTIONS))
            reader = await _checked(request, self._engine.outputs.open(request.caller, owner_id, name))
        info = reader.info
        if info.size_bytes > MAX_RESOURCE_BYTES:
            await reader.close()
            text = f"{uri} has {info.size_bytes} bytes, more than {MAX_RESOURCE_BYTES}; read it in parts with a tool"
            raise _as_protocol_error(QuotaExceeded(text))
        data = await _checked(request, read_range(reader, 0, MAX_RESOURCE_BYTES))
        found = decode_text(data)
        if found is not None:
            return ReadResourceResult(
                contents=[TextResourceContents(uri=uri, text=found, mime_type=info.mime_type or "text/plain")]
            )
        blob = (await asyncio.to_thread(base64.b64encode, data)).decode()
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=blob, mime_type=info.mime_type)])

    # --- changes ---

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Stream changes, in revision 2026-07-28; what the caller may not read is left out of what is promised."""
        request = _request(context)
        allowed = []
        for uri in (params.notifications.resource_subscriptions or [])[:_MAX_SUBSCRIPTIONS]:
            try:
                await self._check_file(request, str(uri))
            except MCPError:
                continue
            allowed.append(uri)
        honored = params.notifications.model_copy(
            update={
                "resource_subscriptions": allowed or None,
                "tools_list_changed": None,
                "prompts_list_changed": None,
                "resources_list_changed": None,
            }
        )
        return await self._listen(context, params.model_copy(update={"notifications": honored}))

    async def subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Report changes of a file on the client's GET, in the handshake revisions."""
        request = _request(context)
        uri = str(params.uri)
        await self._check_file(request, uri)
        client = request.session
        assert client is not None  # the method is unknown in revision 2026-07-28
        subscribed: set[str] = client.state.setdefault(_SUBSCRIBED, set())
        if len(subscribed) >= _MAX_SUBSCRIPTIONS and uri not in subscribed:
            raise MCPError(INVALID_PARAMS, f"a client may have {_MAX_SUBSCRIPTIONS} subscriptions")
        if not subscribed:
            client.connection.exit_stack.callback(
                self._bus.subscribe(lambda event: _forward(event, client, subscribed))
            )
        subscribed.add(uri)
        return EmptyResult()

    async def unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """End a subscription."""
        client = _request(context).session
        assert client is not None
        client.state.get(_SUBSCRIBED, set()).discard(str(params.uri))
        return EmptyResult()

    async def _check_file(self, request: McpRequest, uri: str) -> None:
        kind, session_id, _ = _parsed(uri)
        if kind != "files":
            raise MCPError(INVALID_PARAMS, "only files change; an output is as it is")
        await _checked(request, request.check(READ_FILES))
        await _checked(request, self._engine.get_session(request.caller, session_id))


def _request(context: Context) -> McpRequest:
    assert context.request is not None
    return context.request


def _parsed(uri: str) -> tuple[str, str, str]:
    found = parse_uri(uri)
    if found is None:
        raise MCPError(INVALID_PARAMS, f"Resource not found: {uri[:200]}", {"uri": uri[:200]})
    return found


async def _checked(request: McpRequest, awaitable: Any) -> Any:
    """Await a verb; its refusal is an error of the protocol, since these methods have no other place for it."""
    try:
        return await awaitable
    except ExecError as error:
        request.handler.record_if_denied(error)
        raise _as_protocol_error(error) from None


def _as_protocol_error(error: ExecError) -> MCPError:
    return MCPError(INVALID_PARAMS, error.message, {"code": error.code})


def _forward(event: Any, client: HandshakeSession, subscribed: set[str]) -> None:
    if isinstance(event, ResourceUpdated) and event.uri in subscribed:
        notice = ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=event.uri))
        client.standalone.add({"jsonrpc": "2.0", **notice.model_dump(by_alias=True, mode="json", exclude_none=True)})
