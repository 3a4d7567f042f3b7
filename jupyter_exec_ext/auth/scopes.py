"""Scopes of tokens: their names and descriptions, for routes, tokens and the documentation."""

from __future__ import annotations

SCOPES: dict[str, str] = {
    "sessions:create": "start a session with a kernel of its own",
    "sessions:read": "list the caller's sessions and read them",
    "sessions:delete": "shut a session down",
    "sessions:checkpoint": "keep the state of a session, go back to it, and branch",
    "kernels:attach": "make a session of a kernel that the server already runs, such as a notebook's",
    "executions:create": "run code in a session",
    "executions:read": "list and read executions and their events",
    "executions:control": "interrupt, restart and cancel; answer input()",
    "files:read": "list and download the files of a session",
    "files:write": "upload and delete the files of a session",
    "ports:use": "open ports of programs in a session, and send requests to them",
    "tokens:create": "create tokens that may do no more than the caller's own; list, rotate and revoke them",
    "pool:read": "read how loaded the server is, as a pool of servers does",
}

ALL_SCOPES = frozenset(SCOPES)


def require_scope(name: str) -> str:
    """Return `name` if there is such a scope, so that a misspelt name fails.

    Raises
    ------
    ValueError
        If there is no such scope.
    """
    if name not in SCOPES:
        raise ValueError(f"no scope {name!r}; there are {', '.join(SCOPES)}")
    return name
