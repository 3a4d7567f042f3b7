"""Executors for agents, with the names, signatures and results of AutoGen 0.2's ``autogen.coding.jupyter``."""

from __future__ import annotations

from ..client.connection import JupyterConnectable, JupyterConnectionInfo
from .code_blocks import CodeBlock, CodeResult, IPythonCodeResult, MarkdownCodeExtractor
from .docker import DockerJupyterServer
from .jupyter import JupyterCodeExecutor
from .local import LocalJupyterServer

__all__ = [
    "CodeBlock",
    "CodeResult",
    "DockerJupyterServer",
    "IPythonCodeResult",
    "JupyterCodeExecutor",
    "JupyterConnectable",
    "JupyterConnectionInfo",
    "LocalJupyterServer",
    "MarkdownCodeExtractor",
]
