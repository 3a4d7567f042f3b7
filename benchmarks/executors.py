"""Executors of agent frameworks: from making one to its first result, and a warm run; ours and theirs, interleaved.

    python -m benchmarks.executors [--rounds N] [--runs N] [--only NAME ...]

Each framework runs in a process and an environment of its own, which is made in `.bench/` when first needed; our
package is in one with the frameworks of its adapters. The time is taken in that process, after its imports. Servers run
already; an executor's kernel starts within the measurement. Containers are left out: an executor that is made for one
gets the same Kernel Gateway without it.

Rows are compared where code runs in a process of the same kind: in a kernel of a server, in a kernel that the agent's
process starts, or, without any isolation, in the agent's process itself.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from .peers import PeerError, Worker, environment

CODE = "print(6 * 7)"
ANSWER = "42"
WARM_UP_ROUNDS = 2
PACKAGES = (
    "ipykernel jupyter_client jupyter_server pyautogen autogen-ext smolagents langchain-core langchain-experimental"
)

SERVER = "in a kernel of a server that runs already"
OWN = "in a kernel that the agent's process starts"
NONE = "in the agent's process, without a kernel"


@dataclass(frozen=True)
class Contender:
    """An executor: where its worker has it, what it is called in the report, and where its code runs."""

    worker: str
    name: str
    label: str
    place: str

    @property
    def is_ours(self) -> bool:
        """Whether it is one of ours."""
        return self.worker == "ours"


CONTESTANTS = (
    Contender("ours", "server", "JupyterCodeExecutor", SERVER),
    Contender("ours", "autogen", "adapters.autogen.JupyterCodeExecutor", SERVER),
    Contender("ours", "smolagents", "adapters.smolagents.JupyterPythonExecutor", SERVER),
    Contender("ours", "langchain", "adapters.langchain.JupyterCodeTool", SERVER),
    Contender("autogen02", "gateway", "AutoGen 0.2 JupyterCodeExecutor", SERVER),
    Contender("autogen07", "docker_jupyter", "autogen-ext DockerJupyterCodeExecutor", SERVER),
    Contender("smolagents126", "gateway", "smolagents DockerExecutor", SERVER),
    Contender("ours", "embedded", "EmbeddedIPythonCodeExecutor", OWN),
    Contender("autogen02", "embedded", "AutoGen 0.2 EmbeddedIPythonCodeExecutor", OWN),
    Contender("autogen07", "nbclient", "autogen-ext JupyterCodeExecutor", OWN),
    Contender("smolagents126", "local", "smolagents LocalPythonExecutor", NONE),
    Contender("langchain_repl", "repl", "LangChain PythonREPLTool", NONE),
)


@dataclass(frozen=True)
class Times:
    """What was measured of one contender, in seconds."""

    first: list[float]
    warm: list[float]


def seconds_of(worker: Worker, verb: str, contender: Contender) -> float:
    """Let a worker do something with an executor, and return how long it took."""
    seconds, text = worker.ask([verb, contender.name, CODE])
    if text.strip() != ANSWER:
        raise PeerError(f"{contender.label} gave {text!r} for {CODE}")
    return float(seconds)


def measure(
    contenders: Iterable[Contender], workers: Mapping[str, Worker], rounds: int, runs: int
) -> dict[Contender, Times]:
    """Make every executor once a round, then run it in turns with the others, in another order each round."""
    order = list(contenders)
    shuffle = random.Random(0).shuffle  # the same orders in every run of the benchmark
    times = {contender: Times([], []) for contender in order}
    for number in range(WARM_UP_ROUNDS + rounds):
        counted = number >= WARM_UP_ROUNDS
        shuffle(order)
        for contender in order:
            seconds = seconds_of(workers[contender.worker], "first", contender)
            if counted:
                times[contender].first.append(seconds)
        for _ in range(runs):
            for contender in order:
                seconds = seconds_of(workers[contender.worker], "run", contender)
                if counted:
                    times[contender].warm.append(seconds)
        for contender in order:
            workers[contender.worker].ask(["close", contender.name, ""])
    return times


def rows(times: Mapping[Contender, Times], place: str) -> list[str]:
    """Return the lines about one place, with the ratios to the fastest of ours there, or of all."""
    there = {contender: found for contender, found in times.items() if contender.place == place}
    ours = [found for contender, found in there.items() if contender.is_ours] or list(there.values())
    if not ours:
        return []
    first = min(statistics.median(found.first) for found in ours)
    warm = min(statistics.median(found.warm) for found in ours)
    return [
        f"{'*' if contender.is_ours else ' '} {contender.label:42}"
        f"{columns(found.first, first)}{columns(found.warm, warm)}"
        for contender, found in there.items()
    ]


def columns(seconds: list[float], floor: float) -> str:
    """Return the median and the quartiles in milliseconds, and the ratio of the median to another."""
    low, median, high = (value * 1e3 for value in statistics.quantiles(seconds, n=4, method="inclusive"))
    return f"{median:9.2f} {f'{low:.1f}-{high:.1f}':>13}{median / (floor * 1e3):7.2f}"


def report(times: Mapping[Contender, Times], rounds: int, runs: int) -> None:
    """Print a table for each place."""
    print(f"medians and quartiles in ms of {rounds} executors and {rounds * runs} warm runs; * is ours;")
    print("x is the ratio to the fastest of ours in the same place")
    for place in (SERVER, OWN, NONE):
        if lines := rows(times, place):
            print(f"\n{place:44}    first     quartiles      x     warm     quartiles      x")
            print("\n".join(lines))


def main() -> int:
    """Run and report."""
    workers = sorted({contender.worker for contender in CONTESTANTS})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="measured executors of each kind (default: 20)")
    parser.add_argument("--runs", type=int, default=10, help="warm runs of each of them (default: 10)")
    parser.add_argument("--only", nargs="+", choices=workers, default=workers, help="leave the other environments out")
    args = parser.parse_args()
    if args.rounds < 2 or args.runs < 1:
        parser.error("quartiles take two rounds, and a warm run")
    chosen = [contender for contender in CONTESTANTS if contender.worker in args.only]
    try:
        with ExitStack() as stack:
            running = {
                name: stack.enter_context(Worker(environment(name), "-m", f"benchmarks.peers.executors.{name}"))
                for name in args.only
            }
            print(f"Python {platform.python_version()}, {os.cpu_count()} processors, {platform.platform()}")
            for name, worker in running.items():
                found = worker.ask(["versions", "", PACKAGES])
                print(f"  {name}: {', '.join(f'{package} {version}' for package, version in found.items())}")
            times = measure(chosen, running, args.rounds, args.runs)
    except PeerError as error:
        print(f"executors: {error}", file=sys.stderr)
        return 1
    report(times, args.rounds, args.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
