"""Many sessions at once, each with the next `print(1)` as soon as the last one has ended."""

from __future__ import annotations

from dataclasses import replace

from ..bench import Bench, Handle
from ..contender_table import ASYNC_CLIENT, WEBSOCKET, of_ours

LEVELS = (1, 4, 16, 64)
_RUNS_AT_LEAST = 64
OURS = replace(of_ours(ASYNC_CLIENT), kind="load")
THEIRS = replace(WEBSOCKET, kind="load")


def rate_table(level: int) -> str:
    """Return the name of the table of executions a second."""
    return f"{level} session{'s' if level > 1 else ''} at once, `print(1)`: executions a second"


def time_table(level: int) -> str:
    """Return the name of the table of single executions."""
    return f"{level} session{'s' if level > 1 else ''} at once, `print(1)`: one execution"


def measure(bench: Bench) -> None:
    """Measure all levels, in the same kernels."""
    levels = [level for level in LEVELS if level <= bench.scaled(max(LEVELS), 4)]
    with bench.made(bench.available([OURS, THEIRS]), sessions=max(levels)) as handles:
        for level in levels:
            runs = max(2, bench.scaled(_RUNS_AT_LEAST, 4) // level)

            def spread(handle: Handle, level: int = level, runs: int = runs) -> tuple[float, list[float]]:
                answer = handle.call("spread", "print(1)", level, runs, "1")
                return level * runs / answer["seconds"], [seconds * 1e3 for seconds in answer["runs"]]

            found = bench.interleave(handles, spread, bench.times(0.5))
            times = {name: [time for _, runs in turns for time in runs] for name, turns in found.items()}
            bench.results.add(
                rate_table(level), "runs/s", {name: [rate for rate, _ in turns] for name, turns in found.items()}
            )
            bench.results.add(time_table(level), "ms", times)
