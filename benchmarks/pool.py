"""A pool of servers beside the Hub's proxy and the server itself: warm and fresh runs, files, and the pool's memory.

    python -m benchmarks.pool                  everything, into docs/contributing/performance/pool.md
    python -m benchmarks.pool --quick          a little of everything, to see that it works

It starts a JupyterHub, its proxy and a pool with one server, and reaches this server in three ways. Each way has the
same policy, isolated kernels and the same client, and they take turns. It needs what the tests of the pool need.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.client import AsyncExecSession
from jupyter_exec_ext.models import Execution, StreamEvent
from tests.support.pools import POOL_USER, PoolHost, running_pool

from .bench import WrongAnswerError
from .goals import POOL_GOALS
from .interleave import interleaved
from .machine import description, load_average
from .peers import ROOT
from .pool_tables import (
    DIRECT,
    DOWN_TABLE,
    FRESH_RUN_TABLE,
    FRESH_TABLE,
    MEMORY,
    MEMORY_TABLE,
    POOL,
    PROXY,
    UP_TABLE,
    WARM_TABLE,
)
from .processes import settle
from .report import goals_text, machine_text, table_text
from .results import Results

OUTPUT = ROOT / "docs" / "contributing" / "performance" / "pool.md"
_MIB = 2**20
_POLICY = "benchmark"
_SERVER_OPTIONS = (
    f"--ExecEngine.policies={{'{_POLICY}': {{'base': 'trusted', 'isolation': 'sandbox'}}}}",
    "--ExecEngine.pool_size=4",
    "--ExecEngine.max_session_bytes=0",
)
_LINES_PER_SECOND, _LINE_BYTES = 20, 1000
_SAMPLE_SECONDS = 0.1


def warm(clients: dict[str, ExecClient], rounds: int, results: Results) -> None:
    """Measure runs in sessions that are there."""
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(client.session()) for name, client in clients.items()}
        turns = {name: partial(_timed_run, partial(session.run, "print(1)")) for name, session in sessions.items()}
        results.add(WARM_TABLE, "ms", interleaved(turns, rounds, warm_up=min(20, rounds)))


def fresh(clients: dict[str, ExecClient], rounds: int, results: Results) -> None:
    """Measure fresh sessions to their first result, in two requests and in one."""

    def in_two_requests(client: ExecClient) -> float:
        began = time.perf_counter()
        session = client.session()
        _check(session.run("print(1)"))
        seconds = time.perf_counter() - began
        session.close()
        return seconds * 1e3

    turns = {name: partial(in_two_requests, client) for name, client in clients.items()}
    results.add(FRESH_TABLE, "ms", interleaved(turns, rounds, 2, settle))
    turns = {name: partial(_timed_run, partial(client.run, "print(1)")) for name, client in clients.items()}
    results.add(FRESH_RUN_TABLE, "ms", interleaved(turns, rounds, 2, settle))


def files(clients: dict[str, ExecClient], rounds: int, mebibytes: int, home: Path, results: Results) -> None:
    """Measure a file up and down."""
    source = home / "source"
    source.write_bytes(os.urandom(mebibytes * _MIB))
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(client.session()) for name, client in clients.items()}
        uploads = {name: partial(_timed, partial(session.upload, source)) for name, session in sessions.items()}
        results.add(UP_TABLE, "ms", interleaved(uploads, rounds, 1))
        target = home / "target"
        downloads = {
            name: partial(_timed, partial(session.download, source.name, target)) for name, session in sessions.items()
        }
        results.add(DOWN_TABLE, "ms", interleaved(downloads, rounds, 1))
    if target.read_bytes() != source.read_bytes():
        raise WrongAnswerError("a file came back with other bytes")
    results.notes[UP_TABLE] = results.notes[DOWN_TABLE] = f"{mebibytes} MiB"


def memory(pool: PoolHost, streams: int, mebibytes: int, seconds: int, home: Path, results: Results) -> None:
    """Measure by how much the pool's process grows while streams and an upload pass through it at once."""
    source = home / "large"
    with source.open("wb") as file:
        file.truncate(mebibytes * _MIB)
    lines = seconds * _LINES_PER_SECOND
    code = (
        "import time\nuntil = time.monotonic()\n"
        f"for _ in range({lines}):\n    print('x' * {_LINE_BYTES - 1})\n"
        f"    until += {1 / _LINES_PER_SECOND}\n    time.sleep(max(0, until - time.monotonic()))"
    )
    process = psutil.Process(pool.process.pid)
    settle()
    before = peak = process.memory_full_info().pss
    is_over = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not is_over.wait(_SAMPLE_SECONDS):
            peak = max(peak, process.memory_full_info().pss)

    async def use() -> None:
        async with AsyncExecClient(pool.info) as client:
            sessions = [await client.session() for _ in range(streams + 1)]
            running = [asyncio.ensure_future(_count_characters(session, code)) for session in sessions[1:]]
            await sessions[0].upload(source)
            if any(stream.done() for stream in running):
                raise WrongAnswerError("streams ended before the upload; let them be longer")
            if {await stream for stream in running} != {lines * _LINE_BYTES}:
                raise WrongAnswerError("a stream through the pool was not whole")
            for session in sessions:
                await session.close()

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        asyncio.run(use())
    finally:
        is_over.set()
        sampling.join()
    results.add(MEMORY_TABLE, "MiB", {MEMORY: [(peak - before) / _MIB]})
    results.notes[MEMORY_TABLE] = (
        f"{streams} streams of {_LINES_PER_SECOND} lines of {_LINE_BYTES} bytes a second, and an upload of {mebibytes} "
        f"MiB at the same time; before it, the process had {before / _MIB:.0f} MiB"
    )


async def _count_characters(session: AsyncExecSession, code: str) -> int:
    """Return how much a stream printed; a kernel on a busy machine complains on stderr."""
    events = [event async for event in session.stream(code) if isinstance(event, StreamEvent)]
    return sum(len(event.text) for event in events if event.name == "stdout")


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _timed_run(run: Callable[[], Execution]) -> float:
    began = time.perf_counter()
    execution = run()
    milliseconds = (time.perf_counter() - began) * 1e3
    _check(execution)
    return milliseconds


def _check(execution: Execution) -> None:
    if execution.stdout != "1\n":
        raise WrongAnswerError(f"print(1) ended as {execution.state.value} and printed {execution.stdout!r}")


def ways_to(pool: PoolHost) -> dict[str, tuple[str, str]]:
    """Return the address of the pool's server and a token for it, by way."""
    assert pool.hub is not None and pool.info.token is not None
    (row,) = pool.figures()["servers"]
    server = psutil.Process(pool.pid_of(row["name"]))
    direct = server.environ()["JUPYTERHUB_SERVICE_URL"]
    owner = pool.hub.token_of(POOL_USER, f"access:servers!user={POOL_USER}")
    with ExecClient(direct, owner) as client:
        token = client.tokens.create("benchmark", sorted(ALL_SCOPES - {"kernels:attach"}), policy=_POLICY).text
    hub = pool.hub.info
    proxy = f"http://{hub.host}:{hub.port}/user/{POOL_USER}/{row['name']}/"
    return {POOL: (pool.info.url, pool.info.token), PROXY: (proxy, token), DIRECT: (direct, token)}


def measure(rounds: int, file_rounds: int, *, quick: bool) -> Results:
    """Start all that is needed, and return the samples."""
    results = Results()
    settings = {"min_servers": 1, "max_servers": 1, "policies": {"custom:exec:run": _POLICY}}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)))
        pool = stack.enter_context(running_pool(home, settings, _SERVER_OPTIONS))
        clients = {name: stack.enter_context(ExecClient(*way)) for name, way in ways_to(pool).items()}
        warm(clients, rounds, results)
        fresh(clients, rounds, results)
        files(clients, file_rounds, 1 if quick else 64, home, results)
        streams, mebibytes, seconds = (2, 16, 10) if quick else (64, 1024, 60)
        memory(pool, streams, mebibytes, seconds, home, results)
    return results


def main() -> int:
    """Measure, write the page and print what must hold; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pool", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=150, help="rounds of runs (default: 150)")
    parser.add_argument("--file-rounds", type=int, default=40, help="rounds of files (default: 40)")
    parser.add_argument("--quick", action="store_true", help="two rounds of all; the figures mean nothing")
    parser.add_argument("--output", type=Path, help=f"the page (default: {OUTPUT.relative_to(ROOT)})")
    args = parser.parse_args()
    machine, began = description(), time.monotonic()
    rounds, file_rounds = (2, 2) if args.quick else (args.rounds, args.file_rounds)
    results = measure(rounds, file_rounds, quick=args.quick)
    machine |= {"load_average_after": load_average(), "seconds": round(time.monotonic() - began)}
    output = args.output or (None if args.quick else OUTPUT)
    if output is not None:
        output.write_text(page(results, machine, shlex.join(["python", "-m", "benchmarks.pool", *sys.argv[1:]])))
    print(goals_text(results, POOL_GOALS))
    return 0 if all(goal.holds(results) for goal in POOL_GOALS) else 1


def page(results: Results, machine: dict[str, object], command: str) -> str:
    """Return the page."""
    about = (
        f"Made by `{command}`. One server of a pool is reached through the pool, through the Hub's proxy and directly, "
        "with the same client and policy and isolated kernels. The ways take turns, so compare ratios; the times are "
        "one machine's."
    )
    tables = [table_text(table, series, results.notes.get(table)) for table, series in results.tables()]
    parts = ["# Pool of servers", about, machine_text(machine), goals_text(results, POOL_GOALS), *tables]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
