"""Code execution for AI agents on Jupyter: endpoints inside the server, and the clients that use them.

Importing the package loads none of its parts; each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .client import (
        ACAClient,
        AccessToken,
        AsyncACAClient,
        AsyncExecClient,
        ExecClient,
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

# For `__getattr__`. Type checkers cannot follow it, so they read the imports above.
_HOMES = {
    "ACAClient": "client",
    "ACADynamicSessionsCodeExecutor": "executors",
    "AccessToken": "client",
    "Alias": "executors",
    "AsyncACAClient": "client",
    "AsyncExecClient": "client",
    "BinderServer": "executors",
    "CODE_WRITER_SYSTEM_MESSAGE": "executors",
    "CodeBlock": "executors",
    "CodeResult": "executors",
    "EmbeddedIPythonCodeExecutor": "executors",
    "DockerJupyterServer": "executors",
    "ExecClient": "client",
    "FunctionWithRequirements": "executors",
    "FunctionWithRequirementsStr": "executors",
    "IPythonCodeResult": "executors",
    "ImportFromModule": "executors",
    "JupyterCodeExecutor": "executors",
    "JupyterConnectable": "client",
    "JupyterConnectionInfo": "client",
    "JupyterHubServer": "executors",
    "LocalJupyterServer": "executors",
    "MarkdownCodeExtractor": "executors",
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
    "BinderServer",
    "CodeBlock",
    "CodeResult",
    "DockerJupyterServer",
    "EmbeddedIPythonCodeExecutor",
    "ExecClient",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "IPythonCodeResult",
    "ImportFromModule",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "JupyterHubServer",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
    "TokenProvider",
    "__version__",
    "with_requirements",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from .server.extension_app import server_extension_points

    return server_extension_points()


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Tell ``jupyter-builder develop`` where the front end is, in a checkout; an installed one is found without it."""
    return [{"src": "../labextension/dist", "dest": "@jupyter-exec-ext/labextension"}]
