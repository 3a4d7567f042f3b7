"""Cost of network rules for the start of sandboxed sessions: without rules against an older commit, and with rules.

    python -m benchmarks.network_start --before f642915~1      n = 300 in turns, and what the servers hold
    python -m benchmarks.network_start --rules                 sessions from the pool, with rules and without

It prints medians with 95 % intervals (bootstrap), and fails if a goal is missed: the ratio of medians without rules
ends below 1.05, a server and its sandboxes hold no further process, thread or descriptor, and rules add at most 15 ms.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host, running_host

from .interleave import interleaved
from .peers import ROOT
from .stats import quantile

_MOST_RATIO, _MOST_ADDED_MS = 1.05, 15.0
_RESAMPLES = 2000
_POLL_SECONDS, _RESTED_LOOKS, _READY_SECONDS = 0.1, 10, 60.0
_SCOPES = ("sessions:create", "sessions:read", "sessions:delete", "executions:create")
_POLICIES = {"plain": {"base": "trusted", "isolation": "sandbox"}}
_RULED = {"ruled": {"base": "trusted", "isolation": "sandbox", "network": ["a.example"]}}


def main() -> int:
    """Run what the command line asks for; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--before", metavar="COMMIT", help="the commit to compare with, before there were rules")
    choice.add_argument("--rules", action="store_true", help="compare sessions with rules with those without")
    parser.add_argument("-n", type=int, default=300, help="rounds that count (300)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as held:
        if args.rules:
            return _compare_rules(Path(directory), args.n, held)
        return _compare_commits(Path(directory), args.before, args.n, held)


def _compare_commits(home: Path, commit: str, rounds: int, held: ExitStack) -> int:
    before = held.enter_context(_worktree(commit, home / "before"))
    agents = {}
    for name, root in (("before", before), ("now", ROOT)):
        options = [f"--ExecEngine.policies={json.dumps(_POLICIES)}", "--ExecEngine.pool_size=0"]
        env = {"PYTHONPATH": str(root)}
        host = held.enter_context(running_host("server", home / name, *options, env=env))
        agents[name] = mint(host, _SCOPES, policy="plain")
    samples = interleaved({name: partial(_start, agent) for name, agent in agents.items()}, rounds, 5)
    counts = {name: _held_with_session(agent) for name, agent in agents.items()}
    low, high = _interval(samples["now"], samples["before"], lambda now, then: now / then)
    ratio = median(samples["now"]) / median(samples["before"])
    print(f"start without rules: {_medians(samples)}; ratio {ratio:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    for name, count in counts.items():
        print(f"{name}: {json.dumps(count)}")
    more = {what: count for what, count in counts["now"].items() if count > counts["before"][what]}
    print(f"more than before: {json.dumps(more) if more else 'nothing'}")
    return int(high >= _MOST_RATIO or bool(more))


def _compare_rules(home: Path, rounds: int, held: ExitStack) -> int:
    options = [f"--ExecEngine.policies={json.dumps(_POLICIES | _RULED)}", "--ExecEngine.pool_size=2"]
    host = held.enter_context(running_host("server", home, *options))
    agents = {policy: mint(host, _SCOPES, policy=policy) for policy in _POLICIES | _RULED}
    for agent in agents.values():  # the first ones make the pool keep their kind
        _start(agent)
    # Two kernels of each kind are ready before each start.
    settle = partial(_until_sandboxes, host, 2 * len(agents))
    samples = interleaved({name: partial(_start, agent) for name, agent in agents.items()}, rounds, 5, settle)
    low, high = _interval(samples["ruled"], samples["plain"], lambda ruled, plain: ruled - plain)
    added = median(samples["ruled"]) - median(samples["plain"])
    print(
        f"start from the pool: {_medians(samples)}; rules add {added:.1f} ms, 95 % interval {low:.1f} to {high:.1f} ms"
    )
    return int(high > _MOST_ADDED_MS)


@contextmanager
def _worktree(commit: str, path: Path) -> Iterator[Path]:
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
    try:
        yield path
    finally:
        subprocess.run([*git, "remove", "--force", str(path)], check=True)


def _start(agent: Bearer) -> float:
    """Start a session, and end it; return the milliseconds of its start."""
    began = time.perf_counter()
    session = agent.session()
    took = (time.perf_counter() - began) * 1000
    agent.call("DELETE", f"/sessions/{session}").raise_for_status()
    return took


def _held_with_session(agent: Bearer) -> dict[str, int]:
    """Return the processes, threads and descriptors of a server with one session, and of its sandbox."""
    session = agent.session()
    agent.run(session, "1").raise_for_status()
    server = psutil.Process(agent.host.process.pid)
    sandbox = server.children(recursive=True)
    counts = {
        "server_threads": server.num_threads(),
        "server_descriptors": server.num_fds(),
        "processes_below": len(sandbox),
        "threads_below": sum(each.num_threads() for each in sandbox),
        "descriptors_below": sum(each.num_fds() for each in sandbox),
    }
    agent.call("DELETE", f"/sessions/{session}").raise_for_status()
    return counts


def _until_sandboxes(host: Host, wanted: int) -> None:
    """Wait until as many sandboxes as are kept ready have used no processor for a second."""
    server = psutil.Process(host.process.pid)
    give_up_at = time.monotonic() + _READY_SECONDS
    seen, rested = (-1.0, 0), 0
    while rested < _RESTED_LOOKS:
        time.sleep(_POLL_SECONDS)
        with suppress(psutil.NoSuchProcess):  # one has ended between two questions
            used = sum(sum(each.cpu_times()[:2]) for each in server.children(recursive=True))
            sandboxes = sum(each.name() == "bwrap" for each in server.children())
            rested = rested + 1 if sandboxes >= wanted and seen == (used, sandboxes) else 0
            seen = used, sandboxes
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"the pool had no {wanted} sandboxes at rest within {_READY_SECONDS:g} s")


def _interval(
    first: Sequence[float], second: Sequence[float], compare: Callable[[float, float], float]
) -> tuple[float, float]:
    """Return the 95 % interval of a comparison of medians, by resampling."""
    chance = random.Random(1)  # no secret: the same samples give the same interval
    found = [
        compare(median(chance.choices(first, k=len(first))), median(chance.choices(second, k=len(second))))
        for _ in range(_RESAMPLES)
    ]
    return quantile(found, 0.025), quantile(found, 0.975)


def _medians(samples: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {median(each):.1f} ms (n = {len(each)})" for name, each in samples.items())


if __name__ == "__main__":
    sys.exit(main())
