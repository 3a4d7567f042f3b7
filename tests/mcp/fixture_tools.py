"""Fixture server of MCP's conformance suite: the tools, resources and prompts that its scenarios call by name.

`fixture_server` returns it as the SDK's `Server`, which any transport can serve. `fixture_inputs` has the tools that
ask the client for something.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, TypeAlias

from mcp import types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from tests.mcp import fixture_inputs

Context: TypeAlias = ServerRequestContext[Any, Any]
_NO_ARGUMENTS: dict[str, Any] = {"type": "object"}
_PIXEL_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
_SILENT_WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_STEP_SECONDS = 0.05
_LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
# The suite compares this schema with what `tools/list` returns.
_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_HEADER_SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
_PROMPT_SCHEMA = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
_MESSAGE_SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
#: Names of the tools, with the schemas of their arguments.
TOOLS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        (
            "test_simple_text",
            "test_image_content",
            "test_audio_content",
            "test_embedded_resource",
            "test_multiple_content_types",
            "test_tool_with_logging",
            "test_logging_tool",
            "test_tool_with_progress",
            "test_streaming_elicitation",
            "test_error_handling",
            "test_missing_capability",
            "test_trigger_tool_change",
            "test_trigger_prompt_change",
            *fixture_inputs.TOOLS,
        ),
        _NO_ARGUMENTS,
    ),
    "test_sampling": _PROMPT_SCHEMA,
    "test_elicitation": _MESSAGE_SCHEMA,
    "test_custom_headers": _HEADER_SCHEMA,
    "json_schema_2020_12_tool": _SCHEMA_2020_12,
}


def text_content(text: str) -> types.TextContent:
    """Return a block of text."""
    return types.TextContent(type="text", text=text)


def _image() -> types.ImageContent:
    return types.ImageContent(type="image", data=_PIXEL_PNG, mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


_CONTENT: dict[str, list[types.ContentBlock]] = {
    "test_simple_text": [text_content("This is a simple text response for testing.")],
    "test_image_content": [_image()],
    "test_audio_content": [types.AudioContent(type="audio", data=_SILENT_WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text_content("Multiple content types test:"),
        _image(),
        _embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    ],
}


async def _list_tools(context: Context, params: object) -> types.ListToolsResult:
    tools = [types.Tool(name=name, description=f"Conformance: {name}", input_schema=TOOLS[name]) for name in TOOLS]
    return types.ListToolsResult(tools=tools)


async def _log_steps(context: Context) -> None:
    """Send three messages, if the request asks for them where it has to."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS and _LOG_LEVEL_KEY not in (context.meta or {}):
        return
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=step)
        message = types.LoggingMessageNotification(params=params)
        await context.session.send_notification(message, related_request_id=context.request_id)
        await asyncio.sleep(_STEP_SECONDS)


async def _report_progress(context: Context) -> None:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100, f"Completed step {progress} of 100")
        await asyncio.sleep(_STEP_SECONDS)


async def _call_tool(
    bus: InMemorySubscriptionBus, context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    name = params.name
    if name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
    if name in _CONTENT:
        return types.CallToolResult(content=_CONTENT[name])
    if name in fixture_inputs.HANDLERS:
        return await fixture_inputs.HANDLERS[name](context, params)
    if name == "test_error_handling":
        error = text_content("This tool intentionally returns an error for testing")
        return types.CallToolResult(content=[error], is_error=True)
    if name in ("test_tool_with_logging", "test_logging_tool"):
        await _log_steps(context)
    elif name in ("test_tool_with_progress", "test_streaming_elicitation"):
        await _report_progress(context)
    elif name == "test_trigger_tool_change":
        await bus.publish(ToolsListChanged())
    elif name == "test_trigger_prompt_change":
        await bus.publish(PromptsListChanged())
    return types.CallToolResult(content=[text_content(f"{name} has ended")])


_RESOURCES = {
    "test://static-text": ("text/plain", "This is the content of the static text resource."),
    "test://static-binary": ("image/png", None),
    "test://watched-resource": ("text/plain", "Watched resource content"),
}
_TEMPLATE = "test://template/{id}/data"


async def _list_resources(context: Context, params: object) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri.removeprefix("test://"), description=f"Conformance: {uri}", mime_type=mime)
            for uri, (mime, _) in _RESOURCES.items()
        ]
    )


async def _list_templates(context: Context, params: object) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=_TEMPLATE, name="template", description="Conformance: template", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = params.uri
    contents: types.TextResourceContents | types.BlobResourceContents
    if match := re.fullmatch("test://template/([^/]+)/data", uri):
        data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
    elif uri not in _RESOURCES:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    else:
        mime_type, text = _RESOURCES[uri]
        if text is None:
            contents = types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=_PIXEL_PNG)
        else:
            contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.ReadResourceResult(contents=[contents])


async def _subscribe(context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


async def _unsubscribe(context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


_PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    fixture_inputs.PROMPT: (),
}


async def _list_prompts(context: Context, params: object) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=f"Conformance: {name}",
                arguments=[types.PromptArgument(name=each, description=each, required=True) for each in names],
            )
            for name, names in _PROMPTS.items()
        ]
    )


async def _get_prompt(
    context: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    if params.name not in _PROMPTS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
    if params.name == fixture_inputs.PROMPT:
        return fixture_inputs.ask_for_prompt(params)
    given = params.arguments or {}
    content: list[types.ContentBlock]
    if params.name == "test_prompt_with_arguments":
        content = [text_content(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
    elif params.name == "test_prompt_with_embedded_resource":
        embedded = _embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
        content = [embedded, text_content("Please process the embedded resource above.")]
    elif params.name == "test_prompt_with_image":
        content = [_image(), text_content("Please analyze the image above.")]
    else:
        content = [text_content("This is a simple prompt for testing.")]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in content])


async def _complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


async def _set_level(context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def fixture_server() -> Server[Any]:
    """Return a new fixture server."""
    bus = InMemorySubscriptionBus()

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await _call_tool(bus, context, params)

    server: Server[Any] = Server(
        "conformance-fixture",
        version="1.0.0",
        cache_hints={
            "prompts/list": CacheHint(),
            "resources/list": CacheHint(),
            "resources/read": CacheHint(),
            "resources/templates/list": CacheHint(),
            "tools/list": CacheHint(),
        },
        get_tool_input_schema=TOOLS.get,
        on_list_tools=_list_tools,
        on_call_tool=call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_subscribe_resource=_subscribe,
        on_unsubscribe_resource=_unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
    )
    # Not as an argument: that is deprecated, since the newer revision has no such method.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    return server
