"""MCP server: joins the SDK's low-level server with our tools, resources and tasks, behind a transport."""

from __future__ import annotations

import os
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.types import (
    CallToolRequestParams,
    DiscoverResult,
    RequestParams,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .. import __version__
from ..engine.engine import ExecEngine
from .mcp_handler import McpRequest
from .resources import Resources
from .task_records import TASKS
from .tasks import TaskParams, Tasks, UpdateParams
from .tools import Tools
from .transport import Transport

_INSTRUCTIONS = """\
Code runs in sessions of a Jupyter server. execute_code keeps variables in a session; pass its id with each call. \
Files in a session's working directory can be read and written with tools or as resources."""


_STATE_SECONDS = 24 * 3600.0


def _principal_of(context: ServerRequestContext[Any, McpRequest]) -> str:
    assert context.request is not None
    return context.request.caller.principal


def build_transport(engine: ExecEngine) -> Transport:
    """Return the transport of the MCP server for an engine.

    Parameters
    ----------
    engine : ExecEngine
        Runs the code.
    """
    resources, tasks = Resources(engine), Tasks(engine)
    tools = Tools(engine, resources.publish)
    server: Server[Any] = Server(
        "jupyter-exec",
        title="Code execution on Jupyter",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=tools.list,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.list_templates,
        on_read_resource=resources.read,
        on_subscribe_resource=resources.subscribe,
        on_unsubscribe_resource=resources.unsubscribe,
        on_subscriptions_listen=resources.listen,
    )

    async def discover(context: ServerRequestContext[Any, McpRequest], params: RequestParams) -> DiscoverResult:
        # The SDK would promise news of lists of tools, which never change.
        capabilities = ServerCapabilities(
            tools=ToolsCapability(), resources=ResourcesCapability(subscribe=True), extensions={TASKS: {}}
        )
        return DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS), capabilities=capabilities, instructions=_INSTRUCTIONS
        )

    # A client sends the state of a question back, and must not be able to change it.
    security = RequestStateSecurity(keys=[os.urandom(32)], ttl=_STATE_SECONDS, bind_principal=_principal_of)
    server.middleware.append(RequestStateBoundary(security, default_audience=server.name))
    # Not by the constructor, whose type knows no tasks as results.
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    server.add_request_handler("server/discover", RequestParams, discover)
    server.add_request_handler("tasks/get", TaskParams, tasks.get)
    server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
    server.add_request_handler("tasks/update", UpdateParams, tasks.update)
    return Transport(
        server,
        return_seconds=engine.mcp_idle_seconds,
        on_close=resources.close,
        options=lambda: server.create_initialization_options(extensions={}),
    )
