"""Clients of the server, which load neither Tornado nor ZeroMQ nor Jupyter Server."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .access_tokens import AccessToken, AsyncTokenProvider, TokenProvider
from .server_connection import JupyterConnectable, JupyterConnectionInfo

if TYPE_CHECKING:
    from ..aca.client.aio.pool_client import AsyncACAClient
    from ..aca.client.sync.pool_client import ACAClient
    from .aio.client import AsyncExecClient
    from .aio.execution_handle import AsyncExecutionHandle
    from .aio.session import AsyncExecSession
    from .sync.client import ExecClient
    from .sync.execution_handle import ExecutionHandle
    from .sync.session import ExecSession

# Imported at first use: the two clients need different HTTP libraries.
_HOMES = {
    "ACAClient": "..aca.client.sync.pool_client",
    "AsyncACAClient": "..aca.client.aio.pool_client",
    "AsyncExecClient": ".aio.client",
    "AsyncExecSession": ".aio.session",
    "AsyncExecutionHandle": ".aio.execution_handle",
    "ExecClient": ".sync.client",
    "ExecSession": ".sync.session",
    "ExecutionHandle": ".sync.execution_handle",
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
