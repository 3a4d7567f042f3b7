"""Extension of Jupyter Server that puts the fixture server behind this package's MCP endpoint, in place of its own.

What `tests.mcp.conformance` finds then is true of the transport.
"""

from __future__ import annotations

from typing import Any

from jupyter_exec_ext.mcp import sdk_server
from jupyter_exec_ext.mcp.transport import Transport
from tests.mcp.fixture_tools import fixture_server


def _load_jupyter_server_extension(app: Any) -> None:
    sdk_server.build_transport = lambda engine: Transport(fixture_server(), return_seconds=engine.mcp_idle_seconds)
