"""Extension of Jupyter Server that puts the fixture server behind this package's MCP endpoint, in place of its own.

What `tests.mcp.conformance` finds then is true of the transport.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_exec_ext.mcp import server
from jupyter_exec_ext.mcp.transport import Transport
from tests.mcp.fixture_tools import fixture_server
from tests.mcp.places import Place, place_of
from tests.support.environments import ROOT
from tests.support.hosts import running_host


def _load_jupyter_server_extension(app: Any) -> None:
    server.build_transport = lambda engine: Transport(fixture_server(), return_seconds=engine.mcp_idle_seconds)


@contextmanager
def running_fixture_endpoint(home: Path) -> Iterator[Place]:
    """Start a Jupyter Server with the extension."""
    enabled = home / "config" / "jupyter_server_config.d" / "fixture.json"
    enabled.parent.mkdir(parents=True)
    enabled.write_text(json.dumps({"ServerApp": {"jpserver_extensions": {__name__: True}}}))
    with running_host("server", home, env={"PYTHONPATH": str(ROOT)}) as host:
        yield place_of(host)
