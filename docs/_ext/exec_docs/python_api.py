"""The public Python names, as directives for autodoc."""

from __future__ import annotations

import importlib
import inspect

from jupyter_exec_ext.models import OutputEvent
from jupyter_exec_ext.wire.native import EVENT_TYPES

from .markdown import section

# Bases whose methods say nothing about our names.
_FOREIGN = ("object", "Exception", "str", "Enum", "tuple", "Protocol")

# Where public names are, and what a reader looks for there. A name that several have is described at the first.
HOMES = {
    "jupyter_exec_ext": "To be imported from the package itself",
    "jupyter_exec_ext.client": "Sessions, executions and the rest of the clients",
    "jupyter_exec_ext.executors": "More of the executors",
}

_EVENTS: tuple[type[OutputEvent], ...] = (OutputEvent, *EVENT_TYPES.values())
# Records that calls take and return. They are described, too, so that a reader finds what is in them; to be imported
# from where they are described.
RETURNED = (
    "jupyter_exec_ext.models.Execution",
    "jupyter_exec_ext.models.ExecutionState",
    "jupyter_exec_ext.models.ErrorInfo",
    "jupyter_exec_ext.models.Truncation",
    "jupyter_exec_ext.models.SpooledOutput",
    "jupyter_exec_ext.models.FileInfo",
    "jupyter_exec_ext.models.Approval",
    "jupyter_exec_ext.models.Decision",
    "jupyter_exec_ext.models.Session",
    "jupyter_exec_ext.models.SessionState",
    "jupyter_exec_ext.models.KernelSpecInfo",
    "jupyter_exec_ext.models.Token",
    "jupyter_exec_ext.models.IssuedToken",
    *(f"jupyter_exec_ext.models.{event.__name__}" for event in _EVENTS),
    "jupyter_exec_ext.models.TextContent",
    "jupyter_exec_ext.models.ImageContent",
    "jupyter_exec_ext.client.access_tokens.AccessTokenLike",
    "jupyter_exec_ext.client.transfers.FileListing",
    "jupyter_exec_ext.client.sync.StandardExecSession",
    "jupyter_exec_ext.client.aio.AsyncStandardExecSession",
    "jupyter_exec_ext.wire.aca_results.RunResult",
    "jupyter_exec_ext.wire.aca_results.RunStatus",
    "jupyter_exec_ext.wire.aca_files.ACAFile",
    "jupyter_exec_ext.wire.aca_session_info.ACASessionInfo",
    "jupyter_exec_ext.executors.cancelling.CancellationToken",
)


def python_api() -> str:
    """Return a section for each home, with its public names."""
    sections = [_section(title, f"From `{home}`.", directives(home, names(home))) for home, title in HOMES.items()]
    return "".join([*sections, _section("What calls take and return", "", returned())])


def _section(title: str, text: str, rst: str) -> str:
    return section(2, title, text, f"```{{eval-rst}}\n{rst}```")


def names(home: str) -> list[str]:
    """Return the public names that are described here and nowhere before."""
    homes = list(HOMES)
    earlier = {name for other in homes[: homes.index(home)] for name in importlib.import_module(other).__all__}
    return sorted(set(importlib.import_module(home).__all__) - earlier - {"__version__"}, key=str.lower)


def returned() -> str:
    """Return a directive for each of the records."""
    return "\n".join(directives(home, [name]) for home, _, name in (path.rpartition(".") for path in RETURNED))


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
