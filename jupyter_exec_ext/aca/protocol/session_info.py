"""What an ACA pool tells of a session: when it began, was used last, and will end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UnexpectedAnswer


@dataclass(frozen=True, slots=True)
class ACASessionInfo:
    """A session of a pool.

    Parameters
    ----------
    created_at, last_accessed_at, expires_at : str
        In UTC ISO 8601, as the service writes it; empty where it says nothing.
    """

    identifier: str
    created_at: str = ""
    last_accessed_at: str = ""
    expires_at: str = ""


def session_info_from_json(data: Any) -> ACASessionInfo:
    """Read what is told of a session.

    Raises
    ------
    UnexpectedAnswer
        If it is not about a session.
    """
    if not isinstance(data, dict) or not isinstance(data.get("identifier"), str):
        raise UnexpectedAnswer("what the service told of a session has no identifier")
    return ACASessionInfo(
        identifier=data["identifier"],
        created_at=str(data.get("createdAt") or ""),
        last_accessed_at=str(data.get("lastAccessedAt") or ""),
        expires_at=str(data.get("expireAt") or data.get("expiresAt") or ""),  # the service has both words
    )
