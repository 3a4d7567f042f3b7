"""Refusal of ``jupyter exec serve`` to serve as root unless that is allowed."""

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
