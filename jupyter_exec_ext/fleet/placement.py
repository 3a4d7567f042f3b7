"""Placement of sessions on a pool's servers, and the number of servers to run: decisions without clock or I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

#: A server on which a session could not be created gets no other one for this long.
FAILED_SECONDS = 30.0
# Names of the pool's servers are also the part of ids that says which server made them: at most 16 of these characters.
_NAME = re.compile(r"[wp][0-9a-z]{1,15}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
# 2026-01-01 as Unix time: keeps names short.
_FIRST_SECOND = 1_767_225_600


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A server as the placement sees it.

    Parameters
    ----------
    name : str
        The server's name.
    sessions : int
        Its sessions, as it last counted them.
    coming : int
        Sessions on their way to it, which it has not counted yet.
    is_open : bool
        Whether it takes new sessions: it is ready and not draining.
    free : int, optional
        How many more sessions it takes by its own limits, as it last counted them.
    failed_at_seconds : float, optional
        When a session could not be created there, the last time.
    empty_since_seconds : float, optional
        Since when it has had no session; None if it has one.
    """

    name: str
    sessions: int = 0
    coming: int = 0
    is_open: bool = True
    free: int | None = None
    failed_at_seconds: float | None = None
    empty_since_seconds: float | None = None

    def count_free(self, sessions_per_server: int, now_seconds: float) -> int:
        """Return how many more sessions can be placed there; 0 if it is closed or has failed just now."""
        has_failed = self.failed_at_seconds is not None and now_seconds - self.failed_at_seconds < FAILED_SECONDS
        if has_failed or not self.is_open:
            return 0
        free = sessions_per_server - self.sessions if self.free is None else self.free
        return max(0, min(free, sessions_per_server - self.sessions) - self.coming)


def choose(
    servers: Iterable[ServerSnapshot], sessions_per_server: int, now_seconds: float, excluded: Collection[str] = ()
) -> str | None:
    """Return the server for the next session, or None if no server can take it.

    It is the one with the fewest sessions, those on their way included. Closed and excluded servers and those that have
    failed in the last `FAILED_SECONDS` are left out. Of several, the first by name is taken.
    """
    fitting = [
        (server.sessions + server.coming, server.name)
        for server in servers
        if server.name not in excluded and server.count_free(sessions_per_server, now_seconds)
    ]
    return min(fitting)[1] if fitting else None


@dataclass(frozen=True, slots=True)
class ServerBounds:
    """Bounds on the number of servers; see the settings of the same names."""

    min_servers: int
    max_servers: int
    sessions_per_server: int
    spare_sessions: int
    idle_server_seconds: float


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Number of servers to start, and the ones to drain and stop; one of both is empty."""

    start: int = 0
    stop: tuple[str, ...] = ()


def plan_servers(
    servers: Sequence[ServerSnapshot], starting: int, waiting: int, bounds: ServerBounds, now_seconds: float
) -> ServerPlan:
    """Return the next step to the number of servers that is needed.

    Parameters
    ----------
    servers : sequence of ServerSnapshot
        All servers that run. Closed ones give no room, but count as running.
    starting : int
        Further servers that are starting; each is expected to have room.
    waiting : int
        Requests that wait for a place.
    bounds : ServerBounds
        The bounds.
    now_seconds : float
        The time of the clock of `ServerSnapshot`.
    """
    per_server = bounds.sessions_per_server
    usable = sum(server.is_open for server in servers) + starting
    room = sum(server.count_free(per_server, now_seconds) for server in servers) + starting * per_server
    wanted = bounds.spare_sessions + waiting
    start = max(bounds.min_servers - usable, -((room - wanted) // per_server), 0)
    if start:
        return ServerPlan(start=max(0, min(start, bounds.max_servers - len(servers) - starting)))
    stop = []
    for server in sorted(servers, key=lambda server: (server.empty_since_seconds or 0.0, server.name)):
        free = server.count_free(per_server, now_seconds)
        if (
            server.is_open
            and server.empty_since_seconds is not None
            and not server.coming
            and now_seconds - server.empty_since_seconds >= bounds.idle_server_seconds
            and usable > bounds.min_servers
            and room - free >= wanted
        ):
            usable, room = usable - 1, room - free
            stop.append(server.name)
    return ServerPlan(stop=tuple(stop))


def make_server_name(at_seconds: int) -> str:
    """Return the name of a server that starts at a second of Unix time: ``w`` and the seconds since 2026 in base 36."""
    number, letters = at_seconds - _FIRST_SECOND, ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        letters = _DIGITS[digit] + letters
    return f"w{letters}"


def personal_server_name(account: str) -> str:
    """Return the name of an account's own server."""
    return f"p{hashlib.sha256(account.encode()).hexdigest()[:10]}"


def is_pool_server(name: str) -> bool:
    """Return whether the name is that of a server of the pool, not one that a person has made."""
    return _NAME.fullmatch(name) is not None


def is_personal_server(name: str) -> bool:
    """Return whether the name is that of one account's server, which may be started again."""
    return name.startswith("p")
