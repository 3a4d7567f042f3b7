"""Scopes and expiry of a new token, which never exceed those of its creator."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..errors import InvalidRequest, TokenTooBroad
from ..models import StoredToken
from .scopes import SCOPES


def scopes_within(asked: Sequence[str] | None, allowed: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that are asked for.

    Raises
    ------
    InvalidRequest
        If there are none, or one is unknown.
    TokenTooBroad
        If one is not allowed.
    """
    if not asked:
        raise InvalidRequest(f"'scopes' is missing: a list of what the token may do, from {', '.join(SCOPES)}")
    for name in asked:
        if name not in SCOPES:
            raise InvalidRequest(f"there is no scope {name[:64]!r}; there are {', '.join(SCOPES)}")
        if name not in allowed:
            raise TokenTooBroad(f"the scope {name!r} is not among the caller's own")
    return tuple(name for name in SCOPES if name in asked)


def expiry_within(
    asked_seconds: float | None, above: StoredToken | None, default_seconds: float, max_seconds: float, now: float
) -> float:
    """Return when a token expires, in seconds since the epoch: never after the token above it.

    Parameters
    ----------
    asked_seconds : float or None
        Time from now on; None for `default_seconds`, or less.
    above : StoredToken or None
        The token that it was created with.
    now : float
        The time, in seconds since the epoch.

    Raises
    ------
    TokenTooBroad
        If a longer time is asked for.
    """
    latest = now + max_seconds
    if above is not None and not above.is_of_hub:  # the Hub decides how long its own is good
        latest = min(latest, above.expires_at_seconds)
    if asked_seconds is None:
        return min(now + default_seconds, latest)
    if now + asked_seconds > latest:
        whose = "the token above is good for" if above is not None else "max_token_seconds is"
        message = f"'expires_in_seconds' is {asked_seconds:.0f}, and {whose} {latest - now:.0f} s; ask for less"
        raise TokenTooBroad(message)
    return now + asked_seconds
