"""Header checks of revision 2026-07-28 that the SDK leaves to the transport: tasks' ids and arguments of tools. Pure.

Proxies may route by these headers, so a header that differs from the request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.shared.inbound import (
    MCP_NAME_HEADER,
    InboundLadderRejection,
    decode_header_value,
    validate_mcp_param_headers,
)
from mcp.types import HEADER_MISMATCH, JSONRPCRequest

_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


def check_task_header(request: JSONRPCRequest, headers: Mapping[str, str]) -> InboundLadderRejection | None:
    """Compare the header with a task's id with the id in the request; return the refusal, if they differ."""
    if request.method not in _TASK_METHODS:
        return None
    task_id = (request.params or {}).get("taskId")
    if task_id is None or decode_header_value(headers.get(MCP_NAME_HEADER)) == task_id:
        return None
    return InboundLadderRejection(HEADER_MISMATCH, "the header Mcp-Name does not match the request's 'taskId'")


def check_parameter_headers(
    server: Server[Any], request: JSONRPCRequest, headers: Mapping[str, str]
) -> InboundLadderRejection | None:
    """Compare ``Mcp-Param-*`` headers with the arguments of a tool whose schema asks for such headers."""
    find_schema = server.get_tool_input_schema
    params = request.params or {}
    if request.method != "tools/call" or find_schema is None or not isinstance(params.get("name"), str):
        return None
    arguments = params.get("arguments") or {}
    schema = find_schema(params["name"])
    if schema is None or not isinstance(arguments, dict):
        return None
    return validate_mcp_param_headers(schema, arguments, headers)
