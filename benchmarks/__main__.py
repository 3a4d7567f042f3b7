"""Benchmarks beside named peers, in one run: fresh sessions, warm runs, floods, memory and more.

    python -m benchmarks                           everything, into docs/contributing/performance/; --list names it
    python -m benchmarks --quick                   everything with little of each, to see that it works
    python -m benchmarks --rows first warm         some of it
    python -m benchmarks --no-peers --rows warm    ours and the floors alone, without installing anything

Peers get virtual environments of their own in `.bench/`, with the versions in `benchmarks/peers/*.txt`, made when
first needed. What cannot be installed is left out, and the report says so. Every contender runs in a process of its
own, which takes the times; a wrong result of ours ends the run. Before it: `pip install -e '.[benchmarks]'`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .bench import Bench, WrongAnswerError
from .goals import GOALS
from .machine import description, load_average
from .peers import ENVIRONMENTS, ROOT, PeerError
from .peers import versions as peer_versions
from .plot import svg
from .report import goals_text, markdown
from .results import Results
from .rows import ROWS

OUTPUT = ROOT / "docs" / "contributing" / "performance"
PARTIAL = ENVIRONMENTS / "report"
PEERS = ("autogen02", "autogen07", "kernel_gateway", "mcp", "nbmodel", "smolagents126")


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=f"some of {', '.join(ROWS)}")
    add(
        "--rounds",
        type=int,
        default=20,
        help="rounds of a usual row; slow ones get fewer, quick ones more (default: 20)",
    )
    add("--quick", action="store_true", help="two rounds of everything, with few sessions; the figures mean nothing")
    add("--list", action="store_true", help="say what the rows measure, and what must hold, and do nothing")
    add("--without", nargs="+", choices=PEERS, default=[], metavar="PEER", help=f"leave out some of {', '.join(PEERS)}")
    add("--no-peers", action="store_true", help="leave them all out")
    add(
        "--output",
        type=Path,
        help="a directory for report.md, report.json and plot.svg (default: docs/contributing/performance after a "
        "whole run, else .bench/report)",
    )
    add(
        "--server-option",
        action="append",
        default=[],
        metavar="=OPTION",
        help="for our servers, such as --server-option=--ExecEngine.pool_size=4; can be repeated",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; 1 if one of ours failed or gave a wrong result, after what came before is reported."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if args.list:
        print(listing())
        return 0
    machine = description()
    results = Results()
    without = frozenset(PEERS if args.no_peers else args.without)
    began = time.monotonic()
    with Bench(results, args.rounds, args.quick, without, args.server_option) as bench:
        failed = measure(bench, args.rows)
    machine |= {"load_average_after": load_average(), "peers": peer_versions(sorted(set(PEERS) - without))}
    machine["seconds"] = round(time.monotonic() - began)
    command = shlex.join(["python", "-m", "benchmarks", *(sys.argv[1:] if arguments is None else arguments)])
    text = markdown(results, machine, GOALS, command)
    is_complete = not (failed or args.quick or without or set(args.rows) != set(ROWS))
    target = args.output or (OUTPUT if is_complete else PARTIAL)
    write(target, text, results, machine)
    print(text if args.quick else goals_text(results, GOALS))
    bench.say(f"the report is in {target}" if is_complete else f"a report of what was measured is in {target}")
    return int(failed)


def measure(bench: Bench, rows: Sequence[str]) -> bool:
    """Measure rows, and return whether one of them failed, after which there are no more."""
    for name in rows:
        bench.say(f"{name} ...")
        began = time.monotonic()
        try:
            ROWS[name](bench)
        except (PeerError, WrongAnswerError, KeyboardInterrupt) as error:
            print(f"benchmarks: {name}: {str(error) or 'interrupted'}", file=sys.stderr)
            return True
        bench.results.seconds[name] = round(time.monotonic() - began, 1)
        bench.say(f"{name}: {bench.results.seconds[name]:.0f} s")
    return False


def write(target: Path, text: str, results: Results, machine: dict[str, Any]) -> None:
    """Write the three files."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "report.md").write_text(text)
    content: dict[str, Any] = {
        "machine": machine,
        "left_out": results.left_out,
        "failures": results.failures,
        "notes": results.notes,
        "seconds": results.seconds,
    }
    goals = [{"goal": goal.what, "bound": goal.bound, "reached": goal.figure(results)} for goal in GOALS]
    content |= {"goals": goals, "series": [one.as_json() for one in results.series]}
    (target / "report.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
    (target / "plot.svg").write_text(svg(results))


def listing() -> str:
    """Return what the rows measure, and what must hold."""
    rows = [f"  {name:10} {first_line(function.__module__)}" for name, function in ROWS.items()]
    return "\n".join(["rows:", *rows, "", "must hold:", *(f"  {goal.bound:>10}  {goal.what}" for goal in GOALS)])


def first_line(module: str) -> str:
    """Return what a module says that it is."""
    return (sys.modules[module].__doc__ or "").partition("\n")[0]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are stopped then, too
    sys.exit(main())
