"""The pool of servers: how many there are, and who gets which policy on them."""

from __future__ import annotations

from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # given by traitlets

c.ExecPool.min_servers = 2
c.ExecPool.max_servers = 4
c.ExecPool.sessions_per_server = 50
c.ExecPool.spare_sessions = 10
c.ExecPool.max_sessions_per_principal = 40
# The policy by the scope of the Hub token. The servers' `ExecEngine.policies` has policies of your own.
c.ExecPool.policies = {"custom:exec:run": "default"}
