"""Warm round trip: a trivial run in a session that exists.

Each turn is a few runs in a row, as of an agent that is at work. The first of them, after the turns of all the others,
is told apart: TCP acknowledges at once what comes after a pause, so that a path that waits for delayed acknowledgements
does not wait then.
"""

from __future__ import annotations

from ..bench import Bench, Handle, prints
from ..contender_table import (
    ASYNC_CLIENT,
    CLIENT,
    DIRECT,
    DIRECT_ASYNC,
    EXECUTOR,
    MCP_ENDPOINT,
    PEERS,
    POST_AIOHTTP,
    POST_REQUESTS,
    SMOLAGENTS,
    of_ours,
)

PASS_TABLE, PRINT_TABLE = "warm `pass`", "warm `print(1)`"
PAUSED = ", the first after a second or more"
_BURST = 5
CONTESTANTS = (
    of_ours(CLIENT),
    of_ours(CLIENT, "fork"),
    of_ours(CLIENT, "sandbox"),
    of_ours(ASYNC_CLIENT),
    of_ours(ASYNC_CLIENT, "fork"),
    of_ours(MCP_ENDPOINT),
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
    """Measure both, a few runs in a row at each turn."""
    with bench.made(bench.available(CONTESTANTS)) as handles:
        for table, code, expected in ((PASS_TABLE, "pass", ""), (PRINT_TABLE, "print(1)", "1")):

            def burst(handle: Handle, code: str = code, expected: str = expected) -> list[float]:
                check = prints("1" if handle.contender in FLOORS else expected)
                return [handle.timed("run", check, code) for _ in range(_BURST)]

            bursts = bench.interleave(handles, burst, bench.times(2), warm_up=4)
            following = {name: [time for times in found for time in times[1:]] for name, found in bursts.items()}
            bench.results.add(table, "ms", following)
            bench.results.add(
                f"{table}{PAUSED}", "ms", {name: [times[0] for times in found] for name, found in bursts.items()}
            )
