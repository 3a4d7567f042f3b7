"""Executors for agents, with the names, signatures and results of AutoGen's."""

from __future__ import annotations

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
