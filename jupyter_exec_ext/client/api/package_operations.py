"""Operations on packages: the request that installs them, and the pip command for servers without such an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .request_exchange import segment


def packages_of(session_id: str) -> str:
    """Return the place of a session's packages."""
    return f"sessions/{segment(session_id)}/packages"


def packages_request(packages: Sequence[str]) -> dict[str, Any]:
    """Return the body of a request to install packages."""
    return {"packages": list(packages)}


def pip_code(packages: Sequence[str]) -> str:
    """Return code that installs packages with pip into the environment of a Python kernel."""
    command = f"[__import__('sys').executable, '-m', 'pip', 'install', '--', *{list(packages)!r}]"
    return f"__import__('subprocess').run({command}, check=True) and None"
