"""Fixture tools of the conformance suite that ask the client: by a request of the server, or by their result.

Revision 2025-11-25 has requests from the server. Since 2026-07-28 the result says what is missing, and the client calls
again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

Context: TypeAlias = ServerRequestContext[Any, Any]
Result: TypeAlias = types.CallToolResult | types.InputRequiredResult
Handler: TypeAlias = Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]

#: The prompt that asks.
PROMPT = "test_input_required_result_prompt"
_KEY = secrets.token_bytes(32)

_DEFAULTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
_ENUMS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
    },
}
_RESPONSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"response": {"type": "string"}},
    "required": ["response"],
}


def _said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def _sample(context: Context, params: types.CallToolRequestParams) -> Result:
    prompt = types.TextContent(type="text", text=(params.arguments or {})["prompt"])
    asked = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=prompt)], max_tokens=100
    )
    answer = await context.session.send_request(
        types.CreateMessageRequest(params=asked),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=context.request_id),
    )
    return _said(f"LLM response: {answer.content}")


def _elicit(message: str | None, schema: dict[str, Any]) -> Handler:
    async def ask(context: Context, params: types.CallToolRequestParams) -> Result:
        asked = message or (params.arguments or {})["message"]
        answer = await context.session.elicit_form(asked, schema, related_request_id=context.request_id)
        return _said(f"User response: action={answer.action}, content={answer.content}")

    return ask


async def _require_sampling(context: Context, params: types.CallToolRequestParams) -> Result:
    declared = context.session.client_capabilities
    if declared is None or declared.sampling is None:
        missing: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", missing)
    return _said("the client can sample")


def form(message: str, name: str, kind: str = "string") -> types.ElicitRequest:
    """Return a question with one field."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _question(text: str) -> types.CreateMessageRequest:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=100))


def _seal(text: str) -> str:
    return f"{text}.{hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()}"


def _opened(state: str | None) -> str | None:
    """Return what a state says, or None without one; refuse one that is not ours."""
    if state is None:
        return None
    text = state.partition(".")[0]
    if not hmac.compare_digest(_seal(text).encode(), state.encode()):
        raise MCPError(types.INVALID_PARAMS, "The request state is not this server's")
    return text


def _is_answer(given: Any) -> bool:
    if isinstance(given, types.ElicitResult):
        return given.action == "accept" and bool(given.content)
    return isinstance(given, (types.CreateMessageResult, types.ListRootsResult))


def _has_all(given: Mapping[str, Any] | None, keys: Iterable[str]) -> bool:
    return all(_is_answer((given or {}).get(key)) for key in keys)


def _asks(requests: Mapping[str, types.InputRequest], state: str | None = None) -> Handler:
    """Return a tool that asks for everything until it has it all, and says ``state-ok`` if its state came back."""

    async def ask(context: Context, params: types.CallToolRequestParams) -> Result:
        opened = _opened(params.request_state)
        if not _has_all(params.input_responses, requests):
            sealed = None if state is None else _seal(state)
            return types.InputRequiredResult(input_requests=dict(requests), request_state=sealed)
        return _said("state-ok" if opened == state and state is not None else f"answered: {params.input_responses}")

    return ask


async def _ask_twice(context: Context, params: types.CallToolRequestParams) -> Result:
    opened = _opened(params.request_state)
    given = params.input_responses
    if opened == "second" and _has_all(given, ["step2"]):
        return _said("answered twice")
    if opened == "first" and _has_all(given, ["step1"]):
        step = {"step2": form("Step 2: What is your favorite color?", "color")}
        return types.InputRequiredResult(input_requests=dict(step), request_state=_seal("second"))
    step = {"step1": form("Step 1: What is your name?", "name")}
    return types.InputRequiredResult(input_requests=dict(step), request_state=_seal("first"))


async def _ask_what_is_declared(context: Context, params: types.CallToolRequestParams) -> Result:
    declared = context.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, types.InputRequest] = {}
    if declared.sampling is not None:
        requests["capital"] = _question("What is the capital of France?")
    if declared.elicitation is not None:
        requests["user_name"] = form("What is your name?", "name")
    if not requests or _has_all(params.input_responses, requests):
        return _said("nothing is left to ask")
    return types.InputRequiredResult(input_requests=requests)


def ask_for_prompt(params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult:
    """Return the prompt that asks, or its question."""
    if not _has_all(params.input_responses, ["user_context"]):
        question = form("What context should the prompt use?", "context")
        return types.InputRequiredResult(input_requests={"user_context": question})
    text = types.TextContent(type="text", text=f"In this context: {params.input_responses}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


_NAME = form("What is your name?", "name")
_CONFIRM = form("Please confirm", "ok", "boolean")
_CAPITAL = _question("What is the capital of France?")
_EVERYTHING: dict[str, types.InputRequest] = {
    "user_name": _NAME,
    "greeting": _question("Generate a greeting"),
    "client_roots": types.ListRootsRequest(),
}
#: The tools that have arguments of their own are in `fixture_tools`.
HANDLERS: dict[str, Handler] = {
    "test_sampling": _sample,
    "test_elicitation": _elicit(None, _RESPONSE_SCHEMA),
    "test_elicitation_sep1034_defaults": _elicit("Please review the defaults", _DEFAULTS_SCHEMA),
    "test_elicitation_sep1330_enums": _elicit("Please select options", _ENUMS_SCHEMA),
    "test_missing_capability": _require_sampling,
    "test_input_required_result_elicitation": _asks({"user_name": _NAME}),
    "test_input_required_result_sampling": _asks({"capital_question": _CAPITAL}),
    "test_input_required_result_list_roots": _asks({"client_roots": types.ListRootsRequest()}),
    "test_input_required_result_request_state": _asks({"confirm": _CONFIRM}, "confirmed"),
    "test_input_required_result_tampered_state": _asks({"confirm": _CONFIRM}, "untouched"),
    "test_input_required_result_multiple_inputs": _asks(_EVERYTHING, "several"),
    "test_input_required_result_multi_round": _ask_twice,
    "test_input_required_result_capabilities": _ask_what_is_declared,
}
#: Names of those without arguments.
TOOLS = [name for name in HANDLERS if name not in ("test_sampling", "test_elicitation")]
