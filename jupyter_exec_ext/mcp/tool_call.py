"""Tool call: the client's request behind a tool, and the base of tools' arguments and results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    InputRequiredResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..server.gate import Access
from .handshake_sessions import HandshakeSession
from .mcp_handler import McpRequest


class Arguments(BaseModel):
    """Base of tools' arguments; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool.

    Parameters
    ----------
    engine : ExecEngine
        Has the verbs.
    context : ServerRequestContext
        The SDK's view of the request.
    params : CallToolRequestParams
        The request; beside the arguments it may bring answers to a question.
    note_changes : callable
        Tells subscribers that files have changed; takes the session's id and the paths.
    """

    engine: ExecEngine
    context: ServerRequestContext[Any, McpRequest]
    params: CallToolRequestParams
    note_changes: Callable[[str, Sequence[str]], Awaitable[None]]

    @property
    def request(self) -> McpRequest:
        """The HTTP request."""
        assert self.context.request is not None
        return self.context.request

    @property
    def caller(self) -> Caller:
        """The caller."""
        return self.request.caller

    @property
    def client(self) -> HandshakeSession | None:
        """The client's protocol session; None in revision 2026-07-28."""
        return self.request.session

    @property
    def client_state(self) -> dict[str, Any] | None:
        """Data of the tools about the client; None if its next call cannot be known as its own."""
        if self.request.lease is not None:
            return self.request.lease.state
        return self.client.state if self.client is not None else None

    @property
    def client_name(self) -> str:
        """Name that the client gives itself; empty if it has none."""
        params = self.context.session.client_params
        return params.client_info.name[:100] if params is not None else ""

    def has_extension(self, name: str) -> bool:
        """Return whether the client supports an extension of the protocol."""
        return has_extension(self.context, name)


def has_extension(context: ServerRequestContext[Any, Any], name: str) -> bool:
    """Return whether the client supports an extension, in a revision whose results may be those of one."""
    capabilities = context.session.client_capabilities
    is_handshake = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return not is_handshake and capabilities is not None and name in (capabilities.extensions or {})


ToolResult = CallToolResult | InputRequiredResult | dict[str, Any]
Run = Callable[[ToolCall, Any], Coroutine[Any, Any, ToolResult]]


@dataclass(frozen=True)
class ToolSpec:
    """A tool: what a model reads of it, the rights that it needs, and what it does.

    Parameters
    ----------
    arguments, result : type
        Models of the arguments and of the structured content; their JSON schemas are listed.
    rights : sequence of Access
        Rights that a caller needs, all of them, to see and to call it.
    run : callable
        Does it.
    is_cancellable : bool
        Whether `run` may be cancelled. Any other goes on to its end when its client is gone, as with ``exec/v1``.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[BaseModel]
    rights: Sequence[Access]
    run: Run
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    is_cancellable: bool = False

    def to_tool(self) -> Tool:
        """Return the tool as it is listed."""
        return Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=schema_of(self.arguments),
            output_schema=schema_of(self.result),
            annotations=ToolAnnotations(
                title=self.title,
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=False,
            ),
        )


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model, without the titles that pydantic makes of names."""
    schema = model.model_json_schema()
    _drop_titles(schema)
    return schema


def _drop_titles(schema: Any) -> None:
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for value in schema.values():
            _drop_titles(value)
    elif isinstance(schema, list):
        for value in schema:
            _drop_titles(value)


def make_result(model: BaseModel, content: Sequence[ContentBlock], *, is_error: bool = False) -> CallToolResult:
    """Return a tool's result: content for people and models, and the same as data."""
    return CallToolResult(content=list(content), structured_content=model.model_dump(mode="json"), is_error=is_error)


def make_failure(message: str) -> CallToolResult:
    """Return the result of a call that could not be carried out, with the reason for the model."""
    return CallToolResult(content=[TextContent(text=message)], is_error=True)
