"""Executors for agents, with the names, signatures and results of AutoGen 0.2's ``autogen.coding.jupyter``."""

from __future__ import annotations

from ..client.connection import JupyterConnectable, JupyterConnectionInfo
from .binder import BinderServer
from .code_blocks import CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor
from .hub import JupyterHubServer
from .jupyter import JupyterCodeExecutor
from .launch import LaunchProgress
from .local import LocalJupyterServer

__all__ = [
    "BinderServer",
    "CodeBlock",
    "CodeResult",
    "IPythonCodeResult",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "JupyterHubServer",
    "LaunchProgress",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
]
