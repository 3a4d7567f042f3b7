"""Names of the tables that `benchmarks.pool` writes and of the ways that it measures; `goals` uses them. Pure."""

from __future__ import annotations

POOL, PROXY, DIRECT = "through the pool", "through the Hub's proxy", "directly"
WARM_TABLE = "warm `print(1)` on a server of a pool"
FRESH_TABLE = "fresh session to first `print(1)` on a server of a pool"
FRESH_RUN_TABLE = f"{FRESH_TABLE}, in one request"
UP_TABLE, DOWN_TABLE = "file up", "file down"
MEMORY_TABLE, MEMORY = "growth of the pool's process (PSS)", "the pool's process"
