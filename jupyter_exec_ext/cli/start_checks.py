"""Checks of ``jupyter exec serve`` before it serves: not as root, and not with a mistake in the policies."""

from __future__ import annotations

import os

from .messages import UsageError


def refuse_root() -> None:
    """Refuse to serve as root.

    Raises
    ------
    UsageError
        If the user is root.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        raise UsageError(
            "you are root, so the code of every client would have all rights on this machine; start the server as "
            "another user, or add --allow-root if that is intended (as in a container)"
        )


def refuse_policies(problem: str) -> None:
    """Refuse to serve with policies that have a mistake: every request would be answered with 503.

    Parameters
    ----------
    problem : str
        The mistake; empty without one.

    Raises
    ------
    UsageError
        If there is a mistake.
    """
    if problem:
        raise UsageError(f"nothing is served: {problem}")
