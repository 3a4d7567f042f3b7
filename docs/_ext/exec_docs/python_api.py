"""The public Python names, as directives for autodoc."""

from __future__ import annotations

import importlib
import inspect

from jupyter_exec_ext import models

from .markdown import code, named, section, table

# Bases whose methods say nothing about our names.
_FOREIGN = ("object", "Exception", "str", "Enum", "tuple", "dict", "Protocol")

# The package's own names, by what people start with.
GROUPS = {
    "Clients": (
        *("ExecClient", "AsyncExecClient", "ExecSession", "AsyncExecSession"),
        *("ExecutionHandle", "AsyncExecutionHandle", "JupyterConnectionInfo", "JupyterConnectable"),
    ),
    "Results": ("Execution", "ExecutionState", "ErrorInfo", "FileInfo", "ImageContent", "OutputEvent", "Session"),
    "Executors": (
        *("JupyterCodeExecutor", "EmbeddedIPythonCodeExecutor", "CodeBlock", "CodeResult", "IPythonCodeResult"),
        *("MarkdownCodeExtractor", "CODE_WRITER_SYSTEM_MESSAGE", "with_requirements", "FunctionWithRequirements"),
        *("FunctionWithRequirementsStr", "ImportFromModule", "Alias"),
    ),
    "Servers that executors start": (
        *("LocalJupyterServer", "DockerJupyterServer", "JupyterHubServer", "BinderServer"),
    ),
    "Azure Container Apps sessions": (
        *("ACADynamicSessionsCodeExecutor", "ACAClient", "AsyncACAClient", "AccessToken", "TokenProvider"),
    ),
}
# On a page of their own, or no thing to describe.
_ELSEWHERE = {"__version__", "errors"}

# Where public names are, and what a reader looks for there. A name that several have is described at the first.
HOMES = {
    "jupyter_exec_ext": "From the package itself",
    "jupyter_exec_ext.client": "Sessions, executions and the rest of the clients",
    "jupyter_exec_ext.executors": "More of the executors",
}

# Records that calls take and return. They are described, too, so that a reader finds what is in them; to be imported
# from where they are described.
RETURNED = (
    "jupyter_exec_ext.client.access_tokens.AccessTokenLike",
    "jupyter_exec_ext.client.api.file_transfers.FileListing",
    "jupyter_exec_ext.client.api.operations.FoundExecutions",
    "jupyter_exec_ext.client.sync.tokens.ExecTokens",
    "jupyter_exec_ext.client.sync.tokens.ExecApprovals",
    "jupyter_exec_ext.client.aio.tokens.AsyncExecTokens",
    "jupyter_exec_ext.client.aio.tokens.AsyncExecApprovals",
    "jupyter_exec_ext.client.sync.standard_session.StandardExecSession",
    "jupyter_exec_ext.client.aio.standard_session.AsyncStandardExecSession",
    "jupyter_exec_ext.aca.protocol.run_format.RunResult",
    "jupyter_exec_ext.aca.protocol.run_format.RunStatus",
    "jupyter_exec_ext.aca.protocol.file_format.ACAFile",
    "jupyter_exec_ext.aca.protocol.session_format.ACASessionInfo",
    "jupyter_exec_ext.executors.cancellation.CancellationToken",
    "jupyter_exec_ext.executors.stateful_executor.ExecutorOptions",
)
# Records that no call of a client takes or returns: the server's own, and what goes over the wire in a call's stead.
_SERVERS_OWN = {"AuditRecord", "ChainEnds", "Grant", "IdempotencyKey", "StoredExecution", "StoredToken"}
_REQUESTS = {"ApprovalAnswer", "ExecutionRequest", "SessionRequest", "TokenRequest"}


def public_names() -> str:
    """Return the table of all public names, with the module to import each from and the first line of its docstring."""
    package, *others = HOMES
    listed = [(package, name) for group in GROUPS.values() for name in group]
    listed += [(home, name) for home in others for name in names(home)]
    rows = [[code(name), code(home), _first_line(home, name)] for home, name in listed]
    return table(["name", "import from", "what it is"], rows)


def _first_line(home: str, name: str) -> str:
    thing = getattr(importlib.import_module(home), name)
    # A constant has the docstring of its type.
    text = inspect.getdoc(thing) if inspect.isclass(thing) or callable(thing) else ""
    return named((text or "").partition("\n\n")[0])


def python_api() -> str:
    """Return a section for each home, with its public names."""
    package, *others = HOMES
    sections = [
        _section(title, f"From `{package}`.", directives(package, list(group))) for title, group in GROUPS.items()
    ]
    sections += [_section(HOMES[home], f"From `{home}`.", directives(home, names(home))) for home in others]
    return "".join([*sections, _section("What calls take and return", "", returned())])


def _section(title: str, text: str, rst: str) -> str:
    return section(2, title, text, f"```{{eval-rst}}\n{rst}```")


def names(home: str) -> list[str]:
    """Return the public names that are described here and nowhere before."""
    homes = list(HOMES)
    earlier = {name for other in homes[: homes.index(home)] for name in importlib.import_module(other).__all__}
    return sorted(set(importlib.import_module(home).__all__) - earlier - _ELSEWHERE, key=str.lower)


def returned() -> str:
    """Return a directive for each of the records."""
    others = [path.rpartition(".") for path in RETURNED]
    return "\n".join(
        [
            directives("jupyter_exec_ext.models", records_of_calls()),
            *(directives(home, [name]) for home, _, name in others),
        ]
    )


def records_of_calls() -> list[str]:
    """Return the names of the plain records that a user of the clients meets."""
    named = {name: getattr(models, name) for name in models.__all__}
    above = {name for group in GROUPS.values() for name in group}
    not_here = above | _SERVERS_OWN | _REQUESTS
    return [name for name, thing in named.items() if inspect.isclass(thing) and name not in not_here]


def directives(home: str, which: list[str]) -> str:
    """Return a directive for each name."""
    module = importlib.import_module(home)
    return "\n".join(_directive(f"{home}.{name}", getattr(module, name)) for name in which)


def _directive(path: str, thing: object) -> str:
    if inspect.isclass(thing):
        return f".. autoclass:: {path}\n   :members:\n   :inherited-members: {', '.join(_FOREIGN)}\n"
    if callable(thing):
        return f".. autofunction:: {path}\n"
    return f".. autodata:: {path}\n   :no-value:\n"
