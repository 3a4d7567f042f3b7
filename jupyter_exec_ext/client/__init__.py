"""Clients of the server: light, without Tornado, ZeroMQ or Jupyter's server in the process that uses them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .access_tokens import AccessToken, AsyncTokenProvider, TokenProvider
from .connection import JupyterConnectable, JupyterConnectionInfo

if TYPE_CHECKING:
    from .aio import AsyncExecClient, AsyncExecSession, AsyncExecutionHandle
    from .aio_aca import AsyncACAClient
    from .sync import ExecClient, ExecSession, ExecutionHandle
    from .sync_aca import ACAClient

# The two clients stand on different HTTP libraries; using one does not load the other's.
_HOMES = {
    "ACAClient": "sync_aca",
    "AsyncACAClient": "aio_aca",
    "AsyncExecClient": "aio",
    "AsyncExecSession": "aio",
    "AsyncExecutionHandle": "aio",
    "ExecClient": "sync",
    "ExecSession": "sync",
    "ExecutionHandle": "sync",
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
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
