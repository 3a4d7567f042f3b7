"""Time limits of an MCP caller's sessions: MCP's defaults, or the shorter ones of the caller's policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..auth.caller import Caller

_SHORTEST_INTERVAL_SECONDS = 0.5


def choose_shortest(seconds: float, limits: Iterable[float | None]) -> float:
    """Return a default time, or the shortest of the limits if that is shorter."""
    return min([seconds, *(limit for limit in limits if limit is not None)])


def idle_seconds_of(caller: Caller, default_seconds: float) -> float:
    """Return how long a session that MCP makes may be unused."""
    return choose_shortest(default_seconds, (policy.max_idle_seconds for policy in caller.policies))


def renewal_seconds_of(caller: Caller, default_seconds: float) -> float:
    """Return how often the sessions of a client that is there are renewed, so that none ends as unused."""
    return max(_SHORTEST_INTERVAL_SECONDS, idle_seconds_of(caller, default_seconds) / 3)
