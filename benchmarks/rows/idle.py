"""Cost of many idle sessions: to each execution beside them, and in processor time while nobody asks for anything."""

from __future__ import annotations

import time
from dataclasses import replace

from ..bench import Bench, Handle, prints
from ..contender_table import ASYNC_CLIENT, Contender, of_ours
from ..processes import cpu_seconds, settle

IDLE = 200
ONE, MANY = "1 session on its server", "200 sessions on its server"
RUN_TABLE = "warm `print(1)` beside idle sessions"
CPU_TABLE = "processor used by 200 idle sessions and their server"
_WATCHED_SECONDS = 20.0


def kernels_here(bench: Bench) -> str:
    """Return which kernels to take: those of the fork server where there is one, for the memory they do not need."""
    return "fork" if of_ours("load", "fork").place.missing() is None else "plain"  # type: ignore[union-attr]


def measure(bench: Bench) -> None:
    """Measure on two servers in turns, one of which has the idle sessions."""
    number = bench.scaled(IDLE, 3)
    kernels = kernels_here(bench)
    session = of_ours(ASYNC_CLIENT, kernels)
    place = session.place
    assert place is not None
    one = replace(session, label=ONE)
    many = replace(session, label=MANY, place=replace(place, name="many"))
    bench.results.notes[RUN_TABLE] = f"kernels: {kernels}; on a server of its own each, in turns"
    with bench.servers([one, many]) as servers:
        load = Handle(bench, Contender("idle sessions", "ours", "load", many.place), servers)
        load.make(sessions=number - 1)
        handles = [Handle(bench, contender, servers) for contender in (one, many)]
        for handle in handles:
            handle.make()
        load.call("spread", "print(1)", number - 1, 1, "1")
        settle()
        samples = bench.interleave(
            handles, lambda handle: handle.timed("run", prints("1"), "print(1)"), bench.times(7.5), warm_up=20
        )
        bench.results.add(RUN_TABLE, "ms", samples)
        assert many.place is not None
        bench.results.add(CPU_TABLE, "%", {kernels: [idle_percent(bench, servers[many.place].process.pid)]})
        for handle in handles:
            handle.close()
        load.close()


def idle_percent(bench: Bench, pid: int) -> float:
    """Return how much of one processor a process and its descendants use while nobody asks for anything."""
    settle()
    used, began = cpu_seconds(pid), time.perf_counter()
    time.sleep(bench.scaled(int(_WATCHED_SECONDS), 1))
    return (cpu_seconds(pid) - used) / (time.perf_counter() - began) * 100
