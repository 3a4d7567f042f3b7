"""Executors for agents, with the names, signatures and results of AutoGen's."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..client.connection import JupyterConnectable, JupyterConnectionInfo
    from .aca import ACADynamicSessionsCodeExecutor
    from .binder import BinderServer
    from .code_blocks import CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor
    from .docker import DockerJupyterServer
    from .embedded import EmbeddedIPythonCodeExecutor
    from .functions import (
        Alias,
        FunctionWithRequirements,
        FunctionWithRequirementsStr,
        ImportFromModule,
        with_requirements,
    )
    from .hub import JupyterHubServer
    from .jupyter import JupyterCodeExecutor
    from .launch import LaunchProgress
    from .local import LocalJupyterServer
    from .prompts import CODE_WRITER_SYSTEM_MESSAGE

# Each stands on libraries of its own; using one does not load those of the others.
_HOMES = {
    "ACADynamicSessionsCodeExecutor": ".aca",
    "Alias": ".functions",
    "BinderServer": ".binder",
    "CODE_WRITER_SYSTEM_MESSAGE": ".prompts",
    "CodeBlock": ".code_blocks",
    "CodeResult": ".code_blocks",
    "DockerJupyterServer": ".docker",
    "EmbeddedIPythonCodeExecutor": ".embedded",
    "FunctionWithRequirements": ".functions",
    "FunctionWithRequirementsStr": ".functions",
    "IPythonCodeResult": ".code_blocks",
    "ImportFromModule": ".functions",
    "JupyterCodeExecutor": ".jupyter",
    "JupyterConnectable": "..client.connection",
    "JupyterConnectionInfo": "..client.connection",
    "JupyterHubServer": ".hub",
    "LaunchProgress": ".launch",
    "LocalJupyterServer": ".local",
    "MarkdownCodeExtractor": ".code_blocks",
    "with_requirements": ".functions",
}

__all__ = [
    "CODE_WRITER_SYSTEM_MESSAGE",
    "ACADynamicSessionsCodeExecutor",
    "Alias",
    "BinderServer",
    "CodeBlock",
    "CodeResult",
    "DockerJupyterServer",
    "EmbeddedIPythonCodeExecutor",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "IPythonCodeResult",
    "ImportFromModule",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "JupyterHubServer",
    "LaunchProgress",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
    "with_requirements",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
