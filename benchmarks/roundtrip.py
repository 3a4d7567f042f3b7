"""Warm round trips: ours, AutoGen 0.2's executor on a stock gateway, and a bare loop, interleaved in one run.

    python -m benchmarks.roundtrip [--rounds N]
    python -m benchmarks.roundtrip --tokens          with the owner's token and with a scoped one, and nothing else

Prints medians and 99th percentiles in milliseconds, and the ratios that the project promises.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from jupyter_exec_ext import AsyncExecClient, CodeBlock, ExecClient, JupyterCodeExecutor, LocalJupyterServer

from .direct import DirectLoop
from .peers import Peer

CODES = ("1+1", "print(1)")
WARM_UP_ROUNDS = 20


def measure(contestants: dict[str, Callable[[str], float]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Run every contestant once a round, so that a slow moment of the machine hits all alike."""
    times: dict[str, dict[str, list[float]]] = {code: {name: [] for name in contestants} for code in CODES}
    for number in range(WARM_UP_ROUNDS + rounds):
        for code in CODES:
            for name, run in contestants.items():
                seconds = run(code)
                if number >= WARM_UP_ROUNDS:
                    times[code][name].append(seconds)
    return times


def timed(run: Callable[[str], object]) -> Callable[[str], float]:
    """Return a function that runs code and returns the seconds."""

    def timed_run(code: str) -> float:
        began = time.perf_counter()
        run(code)
        return time.perf_counter() - began

    return timed_run


def report(times: dict[str, dict[str, list[float]]]) -> None:
    """Print a table and the ratios of medians."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, {platform.platform()}")
    print(", ".join(f"{name} {version(name)}" for name in ("jupyter_client", "ipykernel", "jupyter_server", "tornado")))
    for code, by_name in times.items():
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        floor, autogen = medians["direct loop"], medians["AutoGen 0.2"]
        print(f"\n{code:40}  median ms    p99 ms   x direct   AutoGen x")
        for name, values in by_name.items():
            p99 = statistics.quantiles(values, n=100)[98]
            median = medians[name]
            print(f"  {name:38}  {median * 1e3:9.2f} {p99 * 1e3:9.2f} {median / floor:10.2f} {autogen / median:11.1f}")


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="measured rounds (default: 200)")
    parser.add_argument("--tokens", action="store_true", help="measure only what a scoped token costs")
    args = parser.parse_args()
    if args.tokens:
        from .tokens import compare

        compare(args.rounds)
        return 0
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(LocalJupyterServer(log_file=str(logs / "gateway.log"), log_level="ERROR"))
        session = stack.enter_context(stack.enter_context(ExecClient(server)).session())
        executor = stack.enter_context(JupyterCodeExecutor(server))
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        run_async = loop.run_until_complete

        async def open_async() -> AsyncExecClient:
            return AsyncExecClient(server)

        client = run_async(open_async())
        async_session = run_async(client.session())
        direct = DirectLoop()
        stack.callback(direct.close)
        autogen = stack.enter_context(Peer("autogen02"))
        contestants = {
            "direct loop": direct.run,
            "ExecClient": timed(session.run),
            "AsyncExecClient": timed(lambda code: run_async(async_session.run(code))),
            "JupyterCodeExecutor": timed(lambda code: executor.execute_code_blocks([CodeBlock(code, "python")])),
            "AutoGen 0.2": autogen.run,
        }
        times = measure(contestants, args.rounds)
        run_async(async_session.close())
        run_async(client.close())
    report(times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
