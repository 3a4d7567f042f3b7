"""Names of the tables and ways that `benchmarks.pool` measures, for the goals. Pure."""

from __future__ import annotations

POOL, PROXY, DIRECT = "through the pool", "through the Hub's proxy", "directly"
WARM_TABLE = "warm `print(1)` on a server of a pool"
FRESH_TABLE = "fresh session to first `print(1)` on a server of a pool"
FRESH_RUN_TABLE = f"{FRESH_TABLE}, in one request"
UP_TABLE, DOWN_TABLE = "file up", "file down"
MEMORY_TABLE, MEMORY = "growth of the pool's process (PSS)", "the pool's process"
