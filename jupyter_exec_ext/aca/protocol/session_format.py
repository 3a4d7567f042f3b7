"""Sessions and pools in the ACA protocol: written by a server of ours, and read from a service's answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UnexpectedAnswer
from ...models import KernelSpecInfo, Session, SessionState
from ...protocol.records_json import seconds_of, utc_timestamp

PAGE = 300


@dataclass(frozen=True, slots=True)
class ACASessionInfo:
    """A session of a pool.

    Parameters
    ----------
    identifier : str
        The name that its client chose.
    created_at, last_accessed_at, expires_at : str
        UTC times in ISO 8601, as the service writes them; empty if it gives none.
    """

    identifier: str
    created_at: str = ""
    last_accessed_at: str = ""
    expires_at: str = ""


def session_info_from_json(data: Any) -> ACASessionInfo:
    """Read a service's description of a session; raises `UnexpectedAnswer` if it has no identifier."""
    if not isinstance(data, dict) or not isinstance(data.get("identifier"), str):
        raise UnexpectedAnswer("the service described a session without an identifier")
    return ACASessionInfo(
        identifier=data["identifier"],
        created_at=str(data.get("createdAt") or ""),
        last_accessed_at=str(data.get("lastAccessedAt") or ""),
        expires_at=str(data.get("expireAt") or data.get("expiresAt") or ""),  # the service uses both words
    )


def session_to_json(
    identifier: str, session: Session, now: float, max_seconds: float | None = None, *, expiry: str = "expireAt"
) -> dict[str, Any]:
    """Return the description of one session.

    Parameters
    ----------
    now : float
        Seconds since the epoch: the last access of a session that runs code.
    max_seconds : float or None
        Highest age of a session.
    expiry : str
        Name of the field for the time of its end; operations differ in it.
    """
    in_use = session.state is not SessionState.IDLE
    accessed = now if in_use else seconds_of(session.last_activity_at)
    idle = session.idle_timeout_seconds
    ends = [accessed + idle] if idle else []
    if max_seconds is not None:
        ends.append(seconds_of(session.created_at) + max_seconds)
    return {
        "identifier": identifier,
        "etag": session.id,
        "createdAt": session.created_at,
        "lastAccessedAt": utc_timestamp(accessed),
        expiry: utc_timestamp(min(ends)) if ends else None,
    }


def metadata_to_json(default_kernel: str, kernels: Iterable[KernelSpecInfo]) -> dict[str, Any]:
    """Return the description of a pool. It lists no packages: code in a session can."""
    by_name = {spec.name: spec for spec in kernels}
    default = by_name.get(default_kernel)
    return {
        "runtimes": [{"name": language} for language in dict.fromkeys(spec.language for spec in by_name.values())],
        "jupyterKernel": default and {"name": default.name, "description": default.display_name},
    }


def page_of(items: Sequence[dict[str, Any]], skip: int) -> tuple[Sequence[dict[str, Any]], int | None]:
    """Return one page of a list, and the `skip` of the next page, None after the last."""
    end = skip + PAGE
    return items[skip:end], end if end < len(items) else None
