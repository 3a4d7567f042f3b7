"""Executors and servers for agents, with the names, signatures and results of AutoGen's."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..aca.executor.aca_executor import ACADynamicSessionsCodeExecutor
    from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo
    from .binder import BinderServer
    from .code_blocks import CODE_WRITER_SYSTEM_MESSAGE, CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor
    from .docker import DockerJupyterServer
    from .embedded import EmbeddedIPythonCodeExecutor
    from .function_sources import (
        Alias,
        FunctionWithRequirements,
        FunctionWithRequirementsStr,
        ImportFromModule,
        with_requirements,
    )
    from .hub import JupyterHubServer
    from .jupyter import JupyterCodeExecutor
    from .local import LocalJupyterServer
    from .remote_launch import LaunchProgress

# Imported at first use: executors need different libraries.
_HOMES = {
    "ACADynamicSessionsCodeExecutor": "..aca.executor.aca_executor",
    "Alias": ".function_sources",
    "BinderServer": ".binder",
    "CODE_WRITER_SYSTEM_MESSAGE": ".code_blocks",
    "CodeBlock": ".code_blocks",
    "CodeResult": ".code_blocks",
    "DockerJupyterServer": ".docker",
    "EmbeddedIPythonCodeExecutor": ".embedded",
    "FunctionWithRequirements": ".function_sources",
    "FunctionWithRequirementsStr": ".function_sources",
    "IPythonCodeResult": ".code_blocks",
    "ImportFromModule": ".function_sources",
    "JupyterCodeExecutor": ".jupyter",
    "JupyterConnectable": "..client.server_connection",
    "JupyterConnectionInfo": "..client.server_connection",
    "JupyterHubServer": ".hub",
    "LaunchProgress": ".remote_launch",
    "LocalJupyterServer": ".local",
    "MarkdownCodeExtractor": ".code_blocks",
    "with_requirements": ".function_sources",
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
