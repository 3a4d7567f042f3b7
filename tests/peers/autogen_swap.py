"""A pytest plugin: AutoGen's tests get this package's executors by AutoGen's names."""

from __future__ import annotations

import autogen_ext.code_executors.azure
import autogen_ext.code_executors.jupyter

from jupyter_exec_ext.adapters.autogen import ACADynamicSessionsCodeExecutor, JupyterCodeExecutor, JupyterCodeResult

autogen_ext.code_executors.jupyter.JupyterCodeExecutor = JupyterCodeExecutor
autogen_ext.code_executors.jupyter.JupyterCodeResult = JupyterCodeResult
autogen_ext.code_executors.azure.ACADynamicSessionsCodeExecutor = ACADynamicSessionsCodeExecutor
