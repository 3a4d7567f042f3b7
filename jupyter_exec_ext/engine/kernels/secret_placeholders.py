"""Placeholders of secrets: the texts that kernels have in their environment in the place of values."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable

# Sessions end with the server's process, and so may their placeholders.
_KEY = secrets.token_bytes(32)


def placeholders(session_id: str, names: Iterable[str]) -> dict[str, str]:
    """Return the placeholders of a session by the names of the secrets; a program cannot guess those of another one.

    They follow from the session's id, so that a pooled kernel has them before its session begins, and a restarted one
    has the same.
    """
    return {name: f"jupyter-exec-secret-{_digest(session_id, name)}" for name in names}


def _digest(session_id: str, name: str) -> str:
    return hmac.new(_KEY, f"{session_id} {name}".encode(), hashlib.sha256).hexdigest()[:40]
