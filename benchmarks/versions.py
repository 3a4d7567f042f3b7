"""Two versions of this package beside each other: a warm run, and a session from the pool to its first result.

    python -m benchmarks.versions --before /path/to/older/.venv/bin/python [--rounds 300] [--at-most 1.05]

Each version serves from an environment of its own, and this version's client asks them in turns. The figure is the
ratio of the medians, this version's by the other's, with its 95 percent interval by resampling. The exit status is 1
where the interval ends above ``--at-most``.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from jupyter_exec_ext.client import ExecClient

from .bench import WrongAnswerError
from .interleave import interleaved
from .servers import Server, ours, running
from .stats import quantile, summary

_RESAMPLES = 4000
_WARM_UP_ROUNDS = 10
_POOL_PAUSE_SECONDS = 0.6  # until the pool has made up for what was taken, on a machine of today


def ratio_interval(before: Sequence[float], after: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Return the ratio of the medians, after by before, and the ends of its 95 percent interval (bootstrap)."""
    dice = random.Random(seed)
    ratios = [
        quantile(dice.choices(after, k=len(after)), 0.5) / quantile(dice.choices(before, k=len(before)), 0.5)
        for _ in range(_RESAMPLES)
    ]
    return quantile(after, 0.5) / quantile(before, 0.5), quantile(ratios, 0.025), quantile(ratios, 0.975)


def _prints_1(state: str, stdout: str) -> None:
    if (state, stdout) != ("ok", "1\n"):
        raise WrongAnswerError(f"print(1) is {state} with {stdout!r}")


def _warm(client: ExecClient) -> Callable[[], float]:
    session = client.session()

    def once() -> float:
        began = time.perf_counter()
        done = session.run("print(1)")
        seconds = time.perf_counter() - began
        _prints_1(done.state, done.stdout)
        return seconds * 1000

    return once


def _from_pool(client: ExecClient) -> Callable[[], float]:
    def once() -> float:
        time.sleep(_POOL_PAUSE_SECONDS)
        began = time.perf_counter()
        session = client.session()
        done = session.run("print(1)")
        seconds = time.perf_counter() - began
        _prints_1(done.state, done.stdout)
        session.close()
        return seconds * 1000

    return once


MEASUREMENTS = {"warm run": (_warm, False), "from the pool": (_from_pool, True)}


def measure(name: str, before: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return milliseconds of the version before and of this one."""
    make, pool = MEASUREMENTS[name]
    here = ours(pool=pool)
    with contextlib.ExitStack() as stack:

        def contender(server: Server) -> Callable[[], float]:
            return make(stack.enter_context(ExecClient(server.url, server.token)))

        servers = {
            "before": stack.enter_context(running(replace(here, python=before))),
            "now": stack.enter_context(running(here)),
        }
        found = interleaved({label: contender(one) for label, one in servers.items()}, rounds, _WARM_UP_ROUNDS)
    return found["before"], found["now"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="the Python with the version to compare with")
    parser.add_argument("--rounds", type=int, default=300, help="samples of each (default: 300)")
    parser.add_argument("--at-most", type=float, default=1.05, help="where the interval may end (default: 1.05)")
    parser.add_argument("--only", choices=MEASUREMENTS, help="measure this alone")
    args = parser.parse_args(arguments)
    holds = True
    for name in [args.only] if args.only else MEASUREMENTS:
        before, now = measure(name, args.before, args.rounds)
        ratio, low, high = ratio_interval(before, now)
        holds &= high < args.at_most
        print(
            f"{name}: {summary(before).median:.2f} ms before, {summary(now).median:.2f} ms now; "
            f"{ratio:.3f} ({low:.3f} to {high:.3f}), n = {len(now)}",
            flush=True,
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
