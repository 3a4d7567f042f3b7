"""A warm round trip, and nothing else: our clients and our executor beside AutoGen 0.2's and a bare loop, interleaved.

    python -m benchmarks.roundtrip [--rounds N]

Each has a session of its own that is there already, and in turns runs a few times in a row, as an agent does that is at
work. AutoGen's path waits for delayed acknowledgements, which take the same time on every machine; the rest takes the
processor's. So the ratio to AutoGen says as much of the machine as of us, and that of the bare loop is told beside it.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence

from .bench import Bench, Handle, WrongAnswerError, prints
from .contender_table import ASYNC_CLIENT, AUTOGEN, CLIENT, DIRECT, EXECUTOR, Contender, of_ours
from .peers import PeerError
from .results import Results
from .stats import summary

OURS = (of_ours(CLIENT), of_ours(ASYNC_CLIENT), of_ours(EXECUTOR))
CONTESTANTS: tuple[Contender, ...] = (*OURS, AUTOGEN, DIRECT)
# Code, and what its output may be: of a client a contender takes what was printed alone, which a value is not.
CODES = {"1+1": ("2", ""), "print(1)": ("1",)}
MOST_OF_LOOP, LEAST_OF_AUTOGEN = 2.0, 8.0  # what must hold
_RUNS = 5
_WARM_UP_TURNS = 4


def measure(bench: Bench) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each contender's runs, by code."""
    with bench.made(bench.available(CONTESTANTS)) as handles:
        times = {}
        for code, answers in CODES.items():

            def turn(handle: Handle, code: str = code, answers: tuple[str, ...] = answers) -> list[float]:
                checks = [prints(answer) for answer in answers]
                return [handle.timed("run", lambda value: any(c(value) for c in checks), code) for _ in range(_RUNS)]

            turns = bench.interleave(handles, turn, bench.rounds, warm_up=_WARM_UP_TURNS)
            times[code] = {label: [one for some in found for one in some] for label, found in turns.items() if found}
        return times


def table(code: str, times: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the lines about one piece of code."""
    found = {label: summary(samples) for label, samples in times.items()}
    loop, autogen = found[DIRECT.label].median, found[AUTOGEN.label].median
    lines = [f"{f'`{code}`':46}{'median ms':>10}{'p99':>8}{'n':>6}{'/ loop':>8}{'AutoGen /':>11}"]
    for label, one in sorted(found.items(), key=lambda item: item[1].median):
        ratios = f"{one.median / loop:8.2f}{autogen / one.median:11.1f}"
        lines.append(f"{label:46}{one.median:10.2f}{one.p99:8.1f}{one.count:6}{ratios}")
    medians = [found[contender.label].median for contender in OURS]
    of_loop, of_autogen = max(medians) / loop, autogen / max(medians)
    lines.append(f"ours at most {MOST_OF_LOOP:g} x the loop: {_verdict(of_loop <= MOST_OF_LOOP)} ({of_loop:.2f} x)")
    lines.append(
        f"ours at least {LEAST_OF_AUTOGEN:g} x as fast as AutoGen: {_verdict(of_autogen >= LEAST_OF_AUTOGEN)} "
        f"({of_autogen:.1f} x; the loop itself {autogen / loop:.1f} x)"
    )
    return lines


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does NOT hold"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.roundtrip", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help=f"turns of {_RUNS} runs each (default: 20)")
    args = parser.parse_args(arguments)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    results = Results()
    try:
        with Bench(results, args.rounds, quick=False, without=frozenset(), server_options=[]) as bench:
            times = measure(bench)
    except (PeerError, WrongAnswerError) as error:
        print(f"roundtrip: {error}", file=sys.stderr)
        return 1
    missing = [one.label for one in CONTESTANTS if any(one.label not in found for found in times.values())]
    if missing:
        print(f"roundtrip: there is nothing to compare: without {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, {platform.platform()}")
    for code, found in times.items():
        print("", *table(code, found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
