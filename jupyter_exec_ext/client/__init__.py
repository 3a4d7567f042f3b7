"""Clients of the server: light, without Tornado, ZeroMQ or Jupyter's server in the process that uses them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .connection import JupyterConnectable, JupyterConnectionInfo

if TYPE_CHECKING:
    from .aio import AsyncExecClient, AsyncExecSession, AsyncExecutionHandle
    from .sync import ExecClient, ExecSession, ExecutionHandle

# The two clients stand on different HTTP libraries; using one does not load the other's.
_HOMES = {
    "AsyncExecClient": "aio",
    "AsyncExecSession": "aio",
    "AsyncExecutionHandle": "aio",
    "ExecClient": "sync",
    "ExecSession": "sync",
    "ExecutionHandle": "sync",
}

__all__ = [
    "AsyncExecClient",
    "AsyncExecSession",
    "AsyncExecutionHandle",
    "ExecClient",
    "ExecSession",
    "ExecutionHandle",
    "JupyterConnectable",
    "JupyterConnectionInfo",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
