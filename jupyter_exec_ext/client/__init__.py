"""Clients of the server: light, without Tornado, ZeroMQ or Jupyter's server in the process that uses them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .access_tokens import AccessToken, AsyncTokenProvider, TokenProvider
from .server_connection import JupyterConnectable, JupyterConnectionInfo

if TYPE_CHECKING:
    from ..aca.client.aio.pool_client import AsyncACAClient
    from ..aca.client.sync.pool_client import ACAClient
    from .aio.client import AsyncExecClient, AsyncExecSession, AsyncExecutionHandle
    from .sync.client import ExecClient, ExecSession, ExecutionHandle

# The two clients stand on different HTTP libraries; using one does not load the other's.
_HOMES = {
    "ACAClient": "..aca.client.sync.pool_client",
    "AsyncACAClient": "..aca.client.aio.pool_client",
    "AsyncExecClient": ".aio.client",
    "AsyncExecSession": ".aio.client",
    "AsyncExecutionHandle": ".aio.client",
    "ExecClient": ".sync.client",
    "ExecSession": ".sync.client",
    "ExecutionHandle": ".sync.client",
}

__all__ = [
    "ACAClient",
    "AccessToken",
    "AsyncACAClient",
    "AsyncExecClient",
    "AsyncExecSession",
    "AsyncExecutionHandle",
    "AsyncTokenProvider",
    "ExecClient",
    "ExecSession",
    "ExecutionHandle",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "TokenProvider",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
