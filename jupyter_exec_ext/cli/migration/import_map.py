"""Which names of AutoGen's are where in this package: what ``jupyter exec migrate`` goes by."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

#: Where a name of ours is, the first that has it.
_OURS = ("jupyter_exec_ext", "jupyter_exec_ext.executors")
_ADAPTER = ("jupyter_exec_ext.adapters.autogen",)

_JUPYTER = "autogen.coding.jupyter"
_EXECUTORS = "autogen_ext.code_executors"

#: Modules of AutoGen 0.2, ag2 and autogen-ext: the names that move, and where to.
IMPORTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "autogen.coding": (("CodeBlock", "CodeResult", "MarkdownCodeExtractor"), _OURS),
    "autogen.coding.base": (("CodeBlock", "CodeResult", "IPythonCodeResult"), _OURS),
    "autogen.coding.markdown_code_extractor": (("MarkdownCodeExtractor",), _OURS),
    _JUPYTER: (
        (
            "DockerJupyterServer",
            "EmbeddedIPythonCodeExecutor",
            "JupyterCodeExecutor",
            "JupyterConnectable",
            "JupyterConnectionInfo",
            "LocalJupyterServer",
        ),
        _OURS,
    ),
    f"{_JUPYTER}.base": (("JupyterConnectable", "JupyterConnectionInfo"), _OURS),
    f"{_JUPYTER}.docker_jupyter_server": (("DockerJupyterServer",), _OURS),
    f"{_JUPYTER}.embedded_ipython_code_executor": (("EmbeddedIPythonCodeExecutor",), _OURS),
    f"{_JUPYTER}.jupyter_code_executor": (("JupyterCodeExecutor",), _OURS),
    f"{_JUPYTER}.local_jupyter_server": (("LocalJupyterServer",), _OURS),
    f"{_EXECUTORS}.azure": (("ACADynamicSessionsCodeExecutor", "TokenProvider"), _ADAPTER),
    f"{_EXECUTORS}.docker_jupyter": (
        ("DockerJupyterCodeExecutor", "DockerJupyterCodeResult", "DockerJupyterServer"),
        _ADAPTER,
    ),
    f"{_EXECUTORS}.jupyter": (("JupyterCodeExecutor", "JupyterCodeResult"), _ADAPTER),
}


def target_of(module: str, name: str) -> str | None:
    """Return the module of ours that has a name of a module of AutoGen's; None if it stays where it is."""
    names, homes = IMPORTS.get(module, ((), ()))
    return next((home for home in homes if name in names and name in exported(home)), None)


def is_known(module: str) -> bool:
    """Whether names of a module of AutoGen's move."""
    return module in IMPORTS


@cache
def exported(module: str) -> frozenset[str]:
    """Return the public names of a module of ours, without importing it: it may need a framework that is not there."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return frozenset()
    if spec is None or spec.origin is None:
        return frozenset()
    body = ast.parse(Path(spec.origin).read_bytes()).body
    for node in body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return frozenset(ast.literal_eval(node.value))
    return frozenset(node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
