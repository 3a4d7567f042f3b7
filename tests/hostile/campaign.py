"""The corpus against real servers, round by round: each round is a server's life, from its start to SIGTERM.

All rounds share one directory, as servers of one user do. So whatever the tricks of one round have left behind is there
when the next server starts.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import psutil

from jupyter_exec_ext.system.removal import remove_tree
from tests.support.hosts import Host
from tests.support.machine_speed import other_sessions_p99_seconds

from .attacker import Attacker, Outcome, mint_hostile
from .bystander import Bystander, percentile
from .corpus import KINDS, Case, choose
from .server import (
    MAX_KERNEL_BYTES,
    MAX_LOG_BYTES,
    MAX_STOP_SECONDS,
    MAX_STORE_BYTES,
    MIB,
    Gauge,
    Limits,
    log_file,
    log_sizes,
    running_server,
    terminate,
)

#: What runs when a server is terminated, one for each kind of kernel.
_AT_THE_END = ("endless_prints_deaf", "shutdown_refused", "endless_large_improper")
#: How many of the other session's latest records are looked at after each start; at the end it is all of them.
_LOOKED_AT = 200


@dataclass
class Figures:
    """What a campaign has measured."""

    outcomes: list[Outcome] = field(default_factory=list)
    starts: int = 0
    stop_seconds: list[float] = field(default_factory=list)
    log_bytes: list[int] = field(default_factory=list)
    session_log_bytes: int = 0
    growth_bytes: int = 0
    memory_bytes: int = 0
    store_bytes: int = 0
    others_seconds: list[float] = field(default_factory=list)
    others_runs: int = 0
    others_failures: list[str] = field(default_factory=list)
    others_missing: int = 0
    hostile_kernels: int = 1

    def as_json(self) -> dict[str, object]:
        """Return the figures for a report."""
        slowest = max(self.outcomes, key=lambda each: each.seconds, default=None)
        return {
            "cases": len(self.outcomes),
            "problems": [f"{each.name}: {each.problem}" for each in self.outcomes if each.problem],
            "slowest_case": f"{slowest.name}: {slowest.seconds:.1f} s" if slowest else "",
            "states": {state: n for state in sorted(self._states()) if (n := self._states().count(state))},
            "slowest_delete_seconds": round(max((each.delete_seconds for each in self.outcomes), default=0.0), 2),
            "starts": self.starts,
            "slowest_stop_seconds": round(max(self.stop_seconds, default=0.0), 2),
            "largest_log_bytes": max(self.log_bytes, default=0),
            "all_logs_bytes": sum(self.log_bytes),
            "session_lines_bytes": self.session_log_bytes,
            "memory_growth_mib": self.growth_bytes // MIB,
            "memory_most_mib": self.memory_bytes // MIB,
            "store_most_mib": self.store_bytes // MIB,
            "others_runs": self.others_runs,
            "others_median_ms": round(1000 * percentile(self.others_seconds, 0.5), 1),
            "others_p99_ms": round(1000 * percentile(self.others_seconds, 0.99), 1),
            "others_slowest_ms": round(1000 * max(self.others_seconds, default=0.0), 1),
            "others_failures": self.others_failures[:10],
            "others_missing": self.others_missing,
        }

    def _states(self) -> list[str]:
        return [each.state for each in self.outcomes]

    def violations(self, *, waits: bool = True) -> list[str]:
        """Return which bounds do not hold.

        Parameters
        ----------
        waits : bool
            Whether to look at how long others waited, which on a busy machine says more of that than of the server.
        """
        found = [f"{each.name}: {each.problem}" for each in self.outcomes if each.problem]
        checks = [
            (max(self.stop_seconds, default=0.0), MAX_STOP_SECONDS, "seconds from SIGTERM to the server's end"),
            (max(self.log_bytes, default=0), MAX_LOG_BYTES, "bytes in a server's log, without lines about sessions"),
            (self.growth_bytes, self.hostile_kernels * MAX_KERNEL_BYTES, "bytes by which the server's memory grew"),
            (self.store_bytes, MAX_STORE_BYTES + MIB, "bytes in the store"),
            (
                percentile(self.others_seconds, 0.99) if waits else 0.0,
                other_sessions_p99_seconds() if waits else 0.0,
                "seconds, 99 of 100 of another session's runs",
            ),
            (self.others_missing, 0, "records of another session that are missing"),
        ]
        found += [f"{value:,.6g} {what}; at most {most:,.6g}" for value, most, what in checks if value > most]
        return found + self.others_failures


@contextmanager
def campaign_directory() -> Iterator[Path]:
    """Make a directory with a short path; at the end, remove it with whatever is in it and works there."""
    home = Path(tempfile.mkdtemp(prefix="jex"))
    try:
        yield home
    finally:
        _kill_processes_of(home)
        remove_tree(home, move_aside=False, seconds=60.0)


def _kill_processes_of(home: Path) -> None:
    """Kill what kernels without isolation have left running: a child outlives a kernel that ends by itself."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == str(home):
                process.kill()


class Campaign:
    """The rounds on one directory.

    Parameters
    ----------
    home : Path
        The directory.
    lanes : sequence of str
        Kinds of kernels that are hostile at once; those of the same kind have one token.
    report : callable
        Gets each outcome.
    """

    def __init__(
        self,
        home: Path,
        limits: Limits,
        *,
        lanes: Sequence[str] = KINDS,
        report: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.figures = Figures(hostile_kernels=len(lanes))
        self._home = home
        self._limits = limits
        self._lanes = lanes
        self._report = report
        self._token = secrets.token_hex(16)
        self._attackers: list[Attacker] = []
        self._bystander: Bystander | None = None

    def round(self, cases: Sequence[Case], *, seconds: float = 0.0) -> None:
        """Start a server, run cases on it, terminate it while hostile code runs, and note the figures.

        Parameters
        ----------
        cases : sequence of Case
            What is run; each once.
        seconds : float
            How long to go on with the cases again, once all have run.
        """
        with running_server(self._home, self._limits, self._token) as host:
            bystander = self._greet(host)
            with Gauge(host) as gauge:
                self._attack(cases, time.monotonic() + seconds)
                for attacker, name in zip(self._attackers, _AT_THE_END, strict=False):
                    left = attacker.leave_running(choose([f"{name}@{attacker.kind}"])[0])
                    if left.problem:
                        self.figures.outcomes.append(left)
                        self._report(left)
                bystander.stop()
                gauge.measure_store()
                self.figures.stop_seconds.append(terminate(host))
            self._note(gauge, bystander)

    def _greet(self, host: Host) -> Bystander:
        """Check that a new server serves our API and has the records of those before it."""
        if self._bystander is None:
            self._bystander = Bystander(host)
            tokens = {kind: mint_hostile(host, kind) for kind in self._lanes}
            self._attackers = [Attacker(host, tokens[kind], kind, self._limits) for kind in self._lanes]
        missing = self._bystander.missing_records(host, most=_LOOKED_AT)
        self.figures.others_missing = max(self.figures.others_missing, len(missing))
        self._bystander.start(host)
        self.figures.starts += 1
        for attacker in self._attackers:
            attacker.move_to(host)
        return self._bystander

    def _attack(self, cases: Sequence[Case], until: float) -> None:
        with ThreadPoolExecutor(len(self._attackers)) as threads:
            work = [
                threads.submit(self._play, attacker, self._share_of(number, cases), until)
                for number, attacker in enumerate(self._attackers)
            ]
        for each in work:
            each.result()

    def _share_of(self, number: int, cases: Sequence[Case]) -> list[Case]:
        """Return the cases of a lane; lanes of one kind share those of that kind."""
        kind = self._lanes[number]
        alike = [lane for lane, other in enumerate(self._lanes) if other == kind]
        return [case for case in cases if case.kind == kind][alike.index(number) :: len(alike)]

    def _play(self, attacker: Attacker, cases: Sequence[Case], until: float) -> None:
        for case in cases:
            self._play_one(attacker, case)
        for case in cycle(cases):
            if time.monotonic() > until:
                return
            self._play_one(attacker, case)

    def _play_one(self, attacker: Attacker, case: Case) -> None:
        outcome = attacker.play(case)
        self.figures.outcomes.append(outcome)
        self._report(outcome)

    def _note(self, gauge: Gauge, bystander: Bystander) -> None:
        figures = self.figures
        sizes = log_sizes(log_file(self._home).read_bytes())
        figures.log_bytes.append(sizes.other_bytes)
        figures.session_log_bytes += sizes.session_bytes
        figures.growth_bytes = max(figures.growth_bytes, gauge.growth_bytes)
        figures.memory_bytes = max(figures.memory_bytes, gauge.memory_most_bytes)
        figures.store_bytes = max(figures.store_bytes, gauge.store_most_bytes)
        figures.others_seconds = bystander.waits_seconds
        figures.others_runs = len(bystander.runs)
        figures.others_failures = bystander.failures

    def check_records(self) -> None:
        """Start a server once more, and check that it has all records of the other session."""
        assert self._bystander is not None
        with running_server(self._home, self._limits, self._token) as host:
            self.figures.starts += 1
            missing = len(self._bystander.missing_records(host))
            self.figures.others_missing = max(self.figures.others_missing, missing)
