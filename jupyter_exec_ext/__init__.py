"""Code execution for AI agents on Jupyter: endpoints inside the server, and the clients that use them.

Importing the package loads none of its parts; each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client import AsyncExecClient, ExecClient, JupyterConnectable, JupyterConnectionInfo
    from .executors import CodeBlock, DockerJupyterServer, JupyterCodeExecutor, LocalJupyterServer

_HOMES = {
    "AsyncExecClient": "client",
    "CodeBlock": "executors",
    "DockerJupyterServer": "executors",
    "ExecClient": "client",
    "JupyterCodeExecutor": "executors",
    "JupyterConnectable": "client",
    "JupyterConnectionInfo": "client",
    "LocalJupyterServer": "executors",
}

__all__ = [
    "AsyncExecClient",
    "CodeBlock",
    "DockerJupyterServer",
    "ExecClient",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "LocalJupyterServer",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from .server.app import server_extension_points

    return server_extension_points()
