"""Sessions of ours as ACA tells of its own: to clients, and to whoever manages a pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...models import KernelSpecInfo, Session, SessionState
from ...protocol.records_json import seconds_of, utc_timestamp

PAGE = 300


def session_to_json(
    identifier: str, session: Session, now: float, max_seconds: float | None = None, *, expiry: str = "expireAt"
) -> dict[str, Any]:
    """Return what is told of one session.

    Parameters
    ----------
    now : float
        Seconds after the epoch: what runs is in use.
    max_seconds : float or None
        How old it may become.
    expiry : str
        What the time of its end is called, which is not the same everywhere.
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
    """Return what is told of a pool. What is installed in its sessions, a session is asked."""
    by_name = {spec.name: spec for spec in kernels}
    default = by_name.get(default_kernel)
    return {
        "runtimes": [{"name": language} for language in dict.fromkeys(spec.language for spec in by_name.values())],
        "jupyterKernel": default and {"name": default.name, "description": default.display_name},
    }


def page_of(items: Sequence[dict[str, Any]], skip: int) -> tuple[Sequence[dict[str, Any]], int | None]:
    """Return the part of a list that one answer holds, and how many to skip for what follows, if anything does."""
    end = skip + PAGE
    return items[skip:end], end if end < len(items) else None
