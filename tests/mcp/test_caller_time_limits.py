"""Times of callers: MCP's defaults, and those of policies."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.auth.caller import Bound, Caller
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.mcp.caller_time_limits import idle_seconds_of, renewal_seconds_of


@pytest.mark.parametrize(
    ("limits", "idle", "renewal"),
    [((), 600.0, 200.0), ((None, 3600.0), 600.0, 200.0), ((6.0, 60.0), 6.0, 2.0), ((0.001,), 0.001, 0.5)],
)
def test_sessions_of_a_client_that_is_there_are_renewed_within_their_idle_time(
    limits: tuple[float | None, ...], idle: float, renewal: float
) -> None:
    caller = Caller("token:a", bounds=tuple(Bound("token:a", Policy(max_idle_seconds=limit)) for limit in limits))
    assert (idle_seconds_of(caller, 600.0), renewal_seconds_of(caller, 600.0)) == (idle, renewal)
