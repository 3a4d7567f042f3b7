"""The error codes, from the tree of errors."""

from __future__ import annotations

import inspect

from jupyter_exec_ext.errors import ClientError, ExecError

from .markdown import code, named, table


def errors_of_servers() -> str:
    """Return the table of the codes that a server sends, by status."""
    sent = sorted((error for error in ExecError.codes().values() if error.status), key=lambda error: error.status)
    return table(
        ["code", "status", "exception", "is a", "meaning"],
        [[code(e.code), str(e.status), code(e.__name__), code(_parent(e)), _meaning(e)] for e in sent],
    )


def errors_of_clients() -> str:
    """Return the table of the codes that a client raises by itself."""
    raised = [error for error in ExecError.codes().values() if issubclass(error, ClientError)]
    return table(
        ["code", "exception", "is a", "meaning"],
        [[code(e.code), code(e.__name__), code(_parent(e)), _meaning(e)] for e in raised],
    )


def _parent(error: type[ExecError]) -> str:
    return error.__bases__[0].__name__


def _meaning(error: type[ExecError]) -> str:
    return named(inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0])
