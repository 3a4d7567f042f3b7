"""Code execution for AI agents on Jupyter: endpoints inside the server, and the clients that use them.

Importing the package loads none of its parts; each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import errors
    from .client import (
        ACAClient,
        AccessToken,
        AsyncACAClient,
        AsyncExecClient,
        AsyncExecSession,
        AsyncExecutionHandle,
        ExecClient,
        ExecSession,
        ExecutionHandle,
        JupyterConnectable,
        JupyterConnectionInfo,
        TokenProvider,
    )
    from .executors import (
        CODE_WRITER_SYSTEM_MESSAGE,
        ACADynamicSessionsCodeExecutor,
        Alias,
        BinderServer,
        CodeBlock,
        CodeResult,
        DockerJupyterServer,
        EmbeddedIPythonCodeExecutor,
        FunctionWithRequirements,
        FunctionWithRequirementsStr,
        ImportFromModule,
        IPythonCodeResult,
        JupyterCodeExecutor,
        JupyterHubServer,
        LocalJupyterServer,
        MarkdownCodeExtractor,
        with_requirements,
    )
    from .models import ErrorInfo, Execution, ExecutionState, FileInfo, ImageContent, OutputEvent, Session

# For `__getattr__`. Type checkers cannot follow it, so they read the imports above.
_HOMES = {
    "ACAClient": "client",
    "ACADynamicSessionsCodeExecutor": "executors",
    "AccessToken": "client",
    "Alias": "executors",
    "AsyncACAClient": "client",
    "AsyncExecClient": "client",
    "AsyncExecSession": "client",
    "AsyncExecutionHandle": "client",
    "BinderServer": "executors",
    "CODE_WRITER_SYSTEM_MESSAGE": "executors",
    "CodeBlock": "executors",
    "CodeResult": "executors",
    "DockerJupyterServer": "executors",
    "EmbeddedIPythonCodeExecutor": "executors",
    "ErrorInfo": "models",
    "ExecClient": "client",
    "ExecSession": "client",
    "Execution": "models",
    "ExecutionHandle": "client",
    "ExecutionState": "models",
    "FileInfo": "models",
    "FunctionWithRequirements": "executors",
    "FunctionWithRequirementsStr": "executors",
    "IPythonCodeResult": "executors",
    "ImageContent": "models",
    "ImportFromModule": "executors",
    "JupyterCodeExecutor": "executors",
    "JupyterConnectable": "client",
    "JupyterConnectionInfo": "client",
    "JupyterHubServer": "executors",
    "LocalJupyterServer": "executors",
    "MarkdownCodeExtractor": "executors",
    "OutputEvent": "models",
    "Session": "models",
    "TokenProvider": "client",
    "with_requirements": "executors",
}

__all__ = [
    "CODE_WRITER_SYSTEM_MESSAGE",
    "ACAClient",
    "ACADynamicSessionsCodeExecutor",
    "AccessToken",
    "Alias",
    "AsyncACAClient",
    "AsyncExecClient",
    "AsyncExecSession",
    "AsyncExecutionHandle",
    "BinderServer",
    "CodeBlock",
    "CodeResult",
    "DockerJupyterServer",
    "EmbeddedIPythonCodeExecutor",
    "ErrorInfo",
    "ExecClient",
    "ExecSession",
    "Execution",
    "ExecutionHandle",
    "ExecutionState",
    "FileInfo",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "IPythonCodeResult",
    "ImageContent",
    "ImportFromModule",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "JupyterHubServer",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
    "OutputEvent",
    "Session",
    "TokenProvider",
    "__version__",
    "errors",
    "with_requirements",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(ipython: Any) -> None:
    """Add the cell magic ``%%exec``, with ``%load_ext jupyter_exec_ext``."""
    from .magic import add_magic

    add_magic(ipython)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from .server.extension_app import server_extension_points

    return server_extension_points()


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Tell ``jupyter-builder develop`` where the front end is, in a checkout; an installed one is found without it."""
    return [{"src": "../labextension/dist", "dest": "@jupyter-exec-ext/labextension"}]
