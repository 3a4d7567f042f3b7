"""Full-scale tests: ``python -m tests.full [PART …]``. A commit runs a tenth of each; this runs all of it.

Parts are chosen by name; without any, all run, which takes hours. The machine should do nothing else meanwhile, since
some figures are times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from tests.adapters.__main__ import environment_for
from tests.hostile.attacker import Outcome
from tests.hostile.campaign import Campaign, Figures, campaign_directory
from tests.hostile.corpus import Case, choose
from tests.hostile.server import Limits
from tests.hostile.two_tokens import RUNS, SECONDS, run_two_tokens
from tests.support.full import VARIABLE
from tests.support.full_record import (
    REPORT_OPTIONS,
    Result,
    note_end,
    note_second_run,
    read_failed_tests,
    read_figures,
    read_record,
    write_record,
)

ROOT = Path(__file__).parent.parent
#: How many servers are started one after the other on what hostile kernels have left behind.
STARTS = 100
_PROGRESS_SECONDS = 10.0
_EXAMPLES = """
examples:
  python -m tests.full --list                        what there is
  python -m tests.full corpus --record corpus.json   one part, with its figures in corpus.json and corpus.md
  python -m tests.full --record all.json             all parts; stopped and given again, it goes on where it was
  python -m tests.full --failed --record all.json    only the tests that failed, once they are mended
  python -m tests.full corpus --cases 'endless_*' --starts 2
                                                     some cases, to look into a failure
  python -m tests.full two-tokens --seconds 60       a short run of a long part
  python -m tests.full 'variants-*'                  all parts of that name
"""


@dataclass(frozen=True)
class Options:
    """How much of the parts is run.

    Parameters
    ----------
    cases : list of Case
        Hostile cases.
    starts : int
        Servers of the corpus.
    seconds : float
        Length of the two-token run.
    tests : tuple of str
        Pytest's ids of the only tests that are run, of a part that is one of pytest's; empty for all.
    """

    cases: list[Case]
    starts: int = STARTS
    seconds: float = SECONDS
    tests: tuple[str, ...] = ()


class Progress:
    """Prints how many cases have run, and each that failed, at most one line in ten seconds beside those.

    Parameters
    ----------
    total : int
        How many cases there are.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._next_at = time.monotonic() + _PROGRESS_SECONDS

    def report(self, outcome: Outcome) -> None:
        """Count a case."""
        self._done += 1
        if outcome.problem:
            print(f"  {outcome.name}: {outcome.problem}", flush=True)
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _PROGRESS_SECONDS
            print(f"  {self._done} of {self._total} cases; now {outcome.name}", flush=True)


def _result_of(figures: Figures) -> Result:
    return Result(figures.violations(), figures.as_json())


def run_corpus(options: Options) -> Result:
    """Run each case once, in parts: each part on a server of its own, which is terminated while hostile code runs."""
    starts = max(1, min(options.starts, len(options.cases)))
    progress = Progress(len(options.cases))
    with campaign_directory() as home:
        campaign = Campaign(home, Limits(), report=progress.report)
        for number in range(starts):
            campaign.round(options.cases[number::starts])
        campaign.check_records()
    return _result_of(campaign.figures)


def run_beside_another(options: Options) -> Result:
    """Run the corpus with one token for ten minutes, and `1 + 1` with another one."""
    cases = [case for case in options.cases if case.kind == "sandbox"]
    figures = run_two_tokens(cases, Limits(), seconds=options.seconds, report=Progress(len(cases)).report)
    result = _result_of(figures)
    if options.seconds >= SECONDS and figures.others_runs < RUNS:
        result.problems.append(f"the other token had {figures.others_runs} runs; at least {RUNS}")
    return result


def _run_pytest(paths: Sequence[str], **environment: str) -> Callable[[Options], Result]:
    def run(options: Options) -> Result:
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report.xml")
            # Arguments that are no paths choose among tests, and all that were chosen before are chosen again.
            chosen = [*(a for a in paths if not a.startswith("tests/")), *options.tests] if options.tests else paths
            command = [sys.executable, "-m", "pytest", "-q", "-s", f"--junitxml={report}", *REPORT_OPTIONS, *chosen]
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, VARIABLE: "1", **environment}, check=False)
            figures, failed = read_figures(report), read_failed_tests(report)
        if done.returncode == 0:
            return Result([], figures)
        # 1 says that tests failed; after another code, they were not all.
        tests = failed if done.returncode == 1 else []
        problems = [f"{test} failed" for test in tests] or [f"pytest ended with {done.returncode}; see above"]
        return Result(problems, figures, failed_tests=tests)

    return run


def _ignored(folders: Sequence[str]) -> list[str]:
    return [f"--ignore=tests/{folder}" for folder in folders]


def _run_each(*runs: Callable[[Options], Result]) -> Callable[[Options], Result]:
    def run(options: Options) -> Result:
        return Result([problem for each in runs for problem in each(options).problems])

    return run


def _run_module(name: str, **environment: str) -> Callable[[Options], Result]:
    def run(options: Options) -> Result:
        done = subprocess.run([sys.executable, "-m", name], cwd=ROOT, env={**os.environ, **environment}, check=False)
        return Result([] if done.returncode == 0 else [f"{name} ended with {done.returncode}; see above"])

    return run


def _run_cancellations(options: Options) -> Result:
    environment = {**os.environ, VARIABLE: "1"}
    commands = [
        [sys.executable, "-m", "pytest", "-q", "-s", "tests/client/test_cancellation.py"],
        [str(environment_for("mcp")), "-m", "pytest", "-q", "-s", "tests/adapters/mcp/test_mcp_ends.py"],
    ]
    ends = [subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode for command in commands]
    return Result([] if not any(ends) else ["pytest found failures; see above"])


@dataclass(frozen=True)
class Part:
    """A part that can be chosen."""

    about: str
    takes: str
    run: Callable[[Options], Result]


_PARTS_OF_THEIR_OWN = (
    *("contract", "faults", "hostile", "browser", "docs/admin", "mcp", "fleet", "slurm", "checkpoints", "packages"),
)
# Every other test in all its variants, of which a commit has one, in parts by folder.
_FOLDERS_IN_FULL = {
    "adapters": ("aca", "adapters"),
    "clients": ("client", "cli", "executors"),
    "servers": ("server", "auth", "containment", "standard_api", "session_ports"),
    "engine": ("engine", "forkserver", "in_kernel", "isolation", "store"),
    "documentation": ("docs", "framework_pages"),
}
_RESTORED = "sync-restored or restored-sync or restored-async"  # the order of a test's parameters varies
_MCP_ENDPOINT = ("endpoint", "gone_clients", "matrix", "restarts")
_MCP_PARTS = (*_MCP_ENDPOINT, "conformance", "figures")
PARTS = {
    "corpus": Part("every hostile message and file, in kernels of all three kinds, on 100 servers", "1 h", run_corpus),
    "two-tokens": Part("one token hostile for ten minutes, another one beside it", "15 min", run_beside_another),
    "faults": Part(
        "injected faults, ten times as many as with a commit (docs/contributing/faults.md)",
        "75 min",
        _run_pytest(["tests/faults", "tests/engine/test_states.py"]),
    ),
    "cuts": Part(
        "1,000 connections cut at random, and proxies that are down for up to 20 s",
        "10 min",
        _run_pytest(
            ["tests/faults/test_cuts.py", "tests/client/test_outages.py", "tests/client/test_hub_outages.py"],
        ),
    ),
    "cancellations": Part(
        "1,000 cancelled calls, and 2,000 cancellations and 200 ends of the MCP program",
        "90 min",
        _run_cancellations,
    ),
    "contract": Part(
        "the contract suite on every host, through both clients",
        "75 min",
        _run_pytest(["tests/contract", "-k", f"not ({_RESTORED})"]),
    ),
    "contract-restored": Part(
        "the contract suite on sessions that are restored before each case",
        "10 min",
        _run_pytest(["tests/contract", "-k", _RESTORED]),
    ),
    "contract-sandbox": Part(
        "the contract suite with kernels in sandboxes",
        "25 min",
        _run_pytest(["tests/contract", "-k", "sync-server or async-gateway"], EXEC_TEST_ISOLATION="sandbox"),
    ),
    "contract-landlock": Part(
        "the contract suite with kernels under Landlock",
        "25 min",
        _run_pytest(["tests/contract", "-k", "sync-server or async-gateway"], EXEC_TEST_ISOLATION="landlock"),
    ),
    "environments": Part(
        "adapters in all their frameworks, all clients of Azure's sessions, and binder/ as repo2docker uses it",
        "20 min",
        _run_each(*map(_run_module, ("tests.adapters", "tests.aca_clients", "tests.binder"))),
    ),
    "standard-clients": Part(
        "unmodified clients of Jupyter's kernels API, each in its own environment with a scoped token",
        "10 min",
        _run_module("tests.standard_clients"),
    ),
    "framework-pages": Part(
        "the pages of frameworks and MCP clients, from their install lines in fresh environments",
        "30 min",
        _run_module("tests.framework_pages"),
    ),
    "newcomer": Part(
        "the README and both tutorials as written, in a fresh clone and environment, in bash, zsh and dash",
        "15 min",
        _run_module("tests.newcomer"),
    ),
    **{
        f"variants-{name}": Part(
            f"every other test of {', '.join(folders)}, in all variants: hosts, clients and images",
            "40 min",
            _run_pytest([f"tests/{folder}" for folder in folders] + _ignored(_PARTS_OF_THEIR_OWN)),
        )
        for name, folders in _FOLDERS_IN_FULL.items()
    },
    "variants-others": Part(
        "the tests of all other folders, in all variants: hosts, clients and images",
        "20 min",
        _run_pytest(_ignored([*_PARTS_OF_THEIR_OWN, *chain(*_FOLDERS_IN_FULL.values())])),
    ),
    "browser": Part(
        "the front end in JupyterLab and Notebook 7, with as many sessions as it is to hold",
        "10 min",
        _run_module("tests.browser", **{VARIABLE: "1"}),
    ),
    "administration": Part(
        "the administrators' pages: reverse proxies, containers, Prometheus, and each recipe",
        "5 min",
        _run_pytest(["tests/docs/admin"]),
    ),
    "servers": Part(
        "servers of every kind that executors are used with, one with a gateway behind it among them",
        "5 min",
        _run_pytest(["tests/executors/test_any_server.py"]),
    ),
    "jupyter-suite": Part(
        "Jupyter Server's own tests: of kernels at exec/jupyter with a scoped token, and of all with and without us",
        "15 min",
        _run_module("tests.jupyter_suite"),
    ),
    "peers": Part(
        "AutoGen's own tests of its executors, on this package's",
        "10 min",
        _run_module("tests.peers"),
    ),
    "mcp-clients": Part(
        "four clients of the Model Context Protocol, its Inspector and our program, on every host and behind nginx",
        "20 min",
        _run_pytest(["tests/mcp", *(f"--ignore=tests/mcp/test_{name}.py" for name in _MCP_PARTS)]),
    ),
    "mcp-conformance": Part(
        "the conformance suite of the Model Context Protocol, both revisions",
        "3 min",
        _run_pytest(["tests/mcp/test_conformance.py"]),
    ),
    "mcp-endpoint": Part(
        "the endpoint of the Model Context Protocol on both hosts: rights, tools, tasks, and clients that are gone",
        "10 min",
        _run_pytest([f"tests/mcp/test_{name}.py" for name in _MCP_ENDPOINT]),
    ),
    "mcp-figures": Part(
        "1,000 cancelled calls of the Model Context Protocol, 100 killed clients, and 200 clients at once",
        "15 min",
        _run_pytest(["tests/mcp/test_figures.py"]),
    ),
    "mcp-messages": Part(
        "10,000 messages of the Model Context Protocol that no client would send",
        "5 min",
        _run_pytest(["tests/faults/test_fuzz_mcp.py"]),
    ),
    "packages": Part(
        "packages of sessions: as typed, by the API on both hosts, from an index through the proxy, and their times",
        "5 min",
        _run_pytest(["tests/packages"]),
    ),
    "pool": Part(
        "a pool of servers at a JupyterHub: parts killed, machines cut off, bursts, a full pool, turns, identifiers",
        "45 min",
        _run_pytest(["tests/fleet"]),
    ),
    "pool-sessions": Part(
        "1,000 live sessions on four servers with a network each, while the pool, the proxy and a server are killed",
        "30 min",
        _run_module("tests.fleet.thousand_sessions"),
    ),
    "slurm": Part(
        "a pool whose servers are jobs on two nodes of a Slurm cluster: parts killed, drains, cuts, and ends of jobs",
        "20 min",
        _run_pytest(["tests/slurm"]),
    ),
    "checkpoints": Part(
        "21 notebooks restored to earlier cells at random, 1,000 runs beside those of branches, and a long chain",
        "10 min",
        _run_pytest(["tests/checkpoints"]),
    ),
    **{
        f"checkpoint-histories-{batch}": Part(
            f"200 random histories of checkpoints, restores and branches beside their models: batch {batch} of 5",
            "10 min",
            _run_pytest(["tests/engine/sessions/test_checkpoint_histories.py"], EXEC_TEST_HISTORIES=str(batch)),
        )
        for batch in range(1, 6)
    },
    "removal": Part(
        "removal of hostile directory trees in their full size, with each Python that is installed",
        "10 min",
        _run_pytest(["tests/system/test_removal.py"]),
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.full",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}, or names with *; all of them by default"
    )
    parser.add_argument("--list", action="store_true", help="list the parts, with what each takes, and run none")
    parser.add_argument(
        "--cases",
        action="append",
        default=[],
        metavar="PATTERN",
        help="run only those hostile cases, by name with *: a trick ('endless_*'), or a trick in a kind of kernel "
        "('*@sandbox'); may be given more than once",
    )
    parser.add_argument("--starts", type=int, default=STARTS, help="servers that the corpus is run on (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long the two-token run lasts at least (%(default)g)"
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="run only the tests that failed, of the parts in the record; one whose tests all pass now has passed",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE.json",
        help="keep the results in a file, and a page for readers beside it; a part that has passed in it is not run "
        "again unless it is named",
    )
    return parser


def _list_parts() -> None:
    for name, part in PARTS.items():
        print(f"{name:22} {part.takes:>7}  {part.about}")


def _table(results: dict[str, Result]) -> str:
    lines = [f"\n{'part':22} {'result':8} {'time':>8}"]
    for name, result in results.items():
        lines.append(f"{name:22} {'ok' if result.passed else 'FAILED':8} {result.seconds:7.0f}s")
        lines += [f"    {key} {value}" for key, value in result.shown_figures().items()]
        lines += [f"    does not hold: {problem}" for problem in result.problems]
    return "\n".join(lines)


def _write(record: Path | None, results: Mapping[str, Result]) -> None:
    if record is not None:
        write_record(record, {name: results[name] for name in PARTS if name in results})


def _run_failed(results: Mapping[str, Result], names: Sequence[str], options: Options, record: Path) -> None:
    for name in names:
        result = results.get(name)
        if result is None or not result.failed_tests:
            continue
        print(f"{name}: its {len(result.failed_tests)} failed tests", flush=True)
        note_second_run(result, PARTS[name].run(replace(options, tests=tuple(result.failed_tests))))
        _write(record, results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 1 if something does not hold."""
    parser = _parser()
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if not any(fnmatch(part, name) for part in PARTS)]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    cases = choose(given.cases)
    if not cases:
        parser.error(f"no case is named {' or '.join(given.cases)}; tests/hostile has the names")
    if given.list:
        _list_parts()
        return 0
    if given.failed and given.record is None:
        parser.error("--failed needs --record, which has the tests that failed")
    options = Options(cases, given.starts, given.seconds)
    try:
        results = {} if given.record is None else read_record(given.record)
    except ValueError as error:
        parser.error(str(error))
    named = [part for name in given.parts for part in PARTS if fnmatch(part, name)]
    if given.failed:
        _run_failed(results, named or list(PARTS), options, given.record)
        print(_table(results))
        return 0 if all(result.passed for result in results.values()) else 1
    left = named or [name for name in PARTS if name not in results or not results[name].passed]
    for name in left:
        print(f"{name}: {PARTS[name].about} (about {PARTS[name].takes})", flush=True)
        began = time.monotonic()
        results[name] = PARTS[name].run(options)
        note_end(results[name], time.monotonic() - began)
        _write(given.record, results)  # after each part: what was measured is not lost with the next one
    print(_table(results))
    return 0 if all(result.passed for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
