"""How long a session of an agent may be idle: long, or as long as the token's policy lets it."""

from __future__ import annotations

from ..errors import PolicyDenied

#: An agent may wait for a person; its variables should be there when it goes on.
IDLE_TIMEOUT_SECONDS = 24 * 3600.0


def allows_less_idle_time(error: PolicyDenied) -> bool:
    """Whether a session was refused for its idle time alone, so that one with the server's own would not be."""
    return error.limit is not None and error.limit.get("name") == "max_idle_seconds"
