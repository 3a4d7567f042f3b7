"""A run in a session that is there, for what costs nothing by itself: the round trip."""

from __future__ import annotations

from ..bench import Bench, Handle, prints
from ..contestants import (
    ASYNC_CLIENT,
    CLIENT,
    DIRECT,
    DIRECT_ASYNC,
    EXECUTOR,
    PEERS,
    POST_AIOHTTP,
    POST_REQUESTS,
    SMOLAGENTS,
    of_ours,
)

PASS_TABLE, PRINT_TABLE = "warm `pass`", "warm `print(1)`"
CONTESTANTS = (
    of_ours(CLIENT),
    of_ours(CLIENT, "sandbox"),
    of_ours(ASYNC_CLIENT),
    of_ours(EXECUTOR),
    DIRECT,
    DIRECT_ASYNC,
    POST_AIOHTTP,
    POST_REQUESTS,
    *PEERS,
    SMOLAGENTS,
)
FLOORS = {POST_AIOHTTP, POST_REQUESTS}  # which answer the same to everything


def measure(bench: Bench) -> None:
    """Measure both."""
    with bench.made(bench.available(CONTESTANTS)) as handles:
        for table, code, expected in ((PASS_TABLE, "pass", ""), (PRINT_TABLE, "print(1)", "1")):

            def run(handle: Handle, code: str = code, expected: str = expected) -> float:
                return handle.timed("run", prints("1" if handle.contestant in FLOORS else expected), code)

            bench.results.add(table, "ms", bench.interleave(handles, run, bench.times(7.5), warm_up=20))
