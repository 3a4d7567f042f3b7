"""Many sessions at once, each with the next `print(1)` as soon as the last one has ended."""

from __future__ import annotations

from dataclasses import replace

from ..bench import Bench, Handle
from ..contestants import ASYNC_CLIENT, WEBSOCKET, of_ours
from ..stats import quantile

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
            times: dict[str, list[float]] = {handle.contestant.label: [] for handle in handles}

            def rate(
                handle: Handle, level: int = level, runs: int = runs, times: dict[str, list[float]] = times
            ) -> float:
                answer = handle.call("spread", "print(1)", level, runs, "1")
                times[handle.contestant.label] += [seconds * 1e3 for seconds in answer["runs"]]
                return float(level * runs / answer["seconds"])

            rounds = bench.times(0.5)
            bench.results.add(rate_table(level), "runs/s", bench.interleave(handles, rate, rounds))
            counted = {label: seconds[-rounds * level * runs :] for label, seconds in times.items()}
            bench.results.add(time_table(level), "ms", counted)
            bench.results.notes[time_table(level)] = "; ".join(
                f"{label}: p99 is {quantile(values, 0.99) / quantile(values, 0.5):.2f} of the median"
                for label, values in counted.items()
            )
