"""The error codes, from the tree of errors."""

from __future__ import annotations

import inspect

from jupyter_exec_ext.errors import ClientError, ExecError

from .markdown import code, prose, section, table


def errors() -> str:
    """Return the codes that a server sends, and those that a client raises by itself."""
    known = ExecError.codes().values()
    sent = sorted((error for error in known if error.status), key=lambda error: error.status)
    raised = [error for error in known if issubclass(error, ClientError)]
    return section(
        2,
        "What a server answers",
        table(
            ["code", "status", "exception", "is a", "meaning"],
            [[code(e.code), str(e.status), code(e.__name__), code(_parent(e)), _meaning(e)] for e in sent],
        ),
    ) + section(
        2,
        "What a client raises by itself",
        table(
            ["code", "exception", "is a", "meaning"],
            [[code(e.code), code(e.__name__), code(_parent(e)), _meaning(e)] for e in raised],
        ),
    )


def _parent(error: type[ExecError]) -> str:
    return error.__bases__[0].__name__


def _meaning(error: type[ExecError]) -> str:
    return prose(inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0])
