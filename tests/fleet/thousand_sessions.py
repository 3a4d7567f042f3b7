"""1,000 live sessions on four servers, each on a machine of its own: ``python -m tests.fleet.thousand_sessions``.

Each session keeps a number while the pool and the Hub's proxy are restarted, and is asked for it at the end. Then one
server is killed while all sessions run code. The machines are namespaces of this one (`tests.support.namespaces`); that
needs root. Nothing else should use much memory meanwhile.

Forked kernels share memory, and are not isolated from each other. So each principal has a server of its own. Sandboxed
kernels are isolated, so principals share servers, and share no memory, so that fewer fit.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

from jupyter_exec_ext import AsyncExecClient
from jupyter_exec_ext.client import JupyterConnectionInfo
from jupyter_exec_ext.errors import ExecError, PoolFull, Unavailable
from jupyter_exec_ext.models import Execution, ServerLoad
from jupyter_exec_ext.protocol.record_ids import parse_id
from tests.support.full_record import Result, note_end
from tests.support.namespaces import running_network
from tests.support.pools import POOL_USER, PoolHost, running_pool
from tests.support.waiting import wait_until

SERVERS = 4
STEP = 250
MOST_SESSIONS = 1000
#: Of the machine's memory, with everything else that runs on it.
MEMORY_SHARE = 0.8
#: Of one kernel in 10**6 bytes; no goal has been set for sandboxed ones.
MAX_PSS_MB = {"forked": 16.0, "sandboxed": math.inf}
SAMPLED_OF_EACH_SERVER = 25
# They show how much memory a session takes. Kernels of one server share pages, so fewer would show more.
_FIRST_SESSIONS = 200
_AT_ONCE = 16
_PROGRESS_SECONDS = 10.0
_START_SECONDS = 120.0
# Of all sessions at once; time for the requests, and for the news that a server is gone.
_RUN_SECONDS, _RUN_SECONDS_PER_SESSION = 30.0, 0.06
_PSS_CODE = "print([line.split()[1] for line in open('/proc/self/smaps_rollup') if line.startswith('Pss:')][0])"
T = TypeVar("T")
R = TypeVar("R")


class HeldSession(NamedTuple):
    """A session, the number that it keeps, and the name of the server that has it."""

    number: int
    session: Any
    server: str


class Report:
    """Figures, and the ones that do not hold; each is printed when it comes."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []
        self.result = Result([])

    def add(self, what: str, figure: object, *, holds: bool = True) -> None:
        """Add a figure."""
        self._rows.append((what, f"{figure}" if holds else f"**{figure}**"))
        print(f"{what}: {figure}{'' if holds else '   DOES NOT HOLD'}", flush=True)
        if not holds:
            self.result.problems.append(f"{what}: {figure}")

    def page(self, command: str) -> str:
        """Return the page about the figures, in Markdown."""
        memory = f"{psutil.virtual_memory().total / 2**30:.1f} GiB"
        holds = "Everything holds." if self.result.passed else "Bold figures do not hold."
        lines = [
            "# 1,000 sessions in a pool of servers",
            "",
            f"Written by `{command}`: {self.result.ended} UTC, {self.result.seconds / 60:.0f} minutes.",
            f"Commit {self.result.commit}, Linux {platform.release()}, Python {platform.python_version()},",
            f"{psutil.cpu_count()} processors, {memory}. {holds}",
            "",
            "| what | figure |",
            "| --- | --- |",
            *(f"| {what} | {figure} |" for what, figure in self._rows),
        ]
        return "\n".join(lines) + "\n"


class Trial:
    """Sessions on a running pool.

    Parameters
    ----------
    pool : PoolHost
        The pool.
    clients : sequence of AsyncExecClient
        One of each principal.
    """

    def __init__(self, pool: PoolHost, clients: Sequence[AsyncExecClient]) -> None:
        assert pool.hub is not None
        self._pool = pool
        self._clients = clients
        self._owner_token = pool.hub.token_of(POOL_USER)
        self.held: list[HeldSession] = []

    async def open_until(self, total: int) -> None:
        """Start sessions until there are so many; each gets its number."""
        await run_each("sessions started", self._open_one, range(len(self.held), total))

    async def _open_one(self, number: int) -> None:
        session = await start_session(self._clients[number % len(self._clients)])
        parsed = parse_id(session.id)
        assert parsed is not None
        self.held.append(HeldSession(number, session, parsed.server_name))
        execution = await session.run(f"mine = {number}")
        assert execution.ok, execution

    @property
    def by_server(self) -> dict[str, list[HeldSession]]:
        """The sessions of each server."""
        found: dict[str, list[HeldSession]] = {}
        for held in self.held:
            found.setdefault(held.server, []).append(held)
        return found

    async def measure_pss(self) -> list[float]:
        """Return the memory of a sample of kernels of each server, in MB."""
        sample = [held for of_one in self.by_server.values() for held in spread(of_one, SAMPLED_OF_EACH_SERVER)]
        runs = await run_each("kernels measured", lambda held: held.session.run(_PSS_CODE), sample)
        return [int(run.stdout) * 1024 / 1e6 for run in runs]

    async def ask_all(self) -> Counter[str]:
        """Ask all sessions for their numbers, and return how many gave which kind of answer."""
        return Counter(await run_each("sessions asked", self.ask, self.held))

    async def ask(self, held: HeldSession, before: str = "") -> str:
        """Ask a session for its number, after other code; return the kind of its answer."""
        try:
            return answer_of(held, await held.session.run(f"{before}print(mine)"))
        except ExecError as error:
            return type(error).__name__

    def owner_of(self, server: str) -> AsyncExecClient:
        """Return a client of one server, without the pool."""
        assert self._pool.hub is not None
        port, path = self._pool.hub.info.port, f"/user/{POOL_USER}/{server}/"
        return AsyncExecClient(JupyterConnectionInfo("127.0.0.1", False, port, self._owner_token, base_url=path))

    async def count_misplaced(self) -> int:
        """Return how many sessions are not on the server that their id names, by what the servers say."""
        misplaced = 0
        for server, held in self.by_server.items():
            async with self.owner_of(server) as owner:
                has = {record.id for record in await owner.list_sessions()}
            misplaced += sum(each.session.id not in has for each in held)
        return misplaced

    async def read_loads(self) -> list[ServerLoad]:
        """Return the servers' own figures."""
        loads = []
        for server in self.by_server:
            async with self.owner_of(server) as owner:
                loads.append(await owner.load())
        return loads


async def start_session(client: AsyncExecClient) -> Any:
    """Start a session; wait while a server for it is started."""
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            session = await client.session()
        except (PoolFull, Unavailable) as error:
            if time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(error.retry_after_seconds or 1.0)
        else:
            session.detach()
            return session


async def run_each(label: str, call: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Return the results of calls, some at a time, and print how far they are."""
    chosen = [*items]
    places, done, next_at = asyncio.Semaphore(_AT_ONCE), 0, time.monotonic() + _PROGRESS_SECONDS

    async def run(item: T) -> R:
        nonlocal done, next_at
        async with places:
            result = await call(item)
        done += 1
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _PROGRESS_SECONDS
            free = psutil.virtual_memory().available / 2**30
            print(f"  {done} of {len(chosen)} {label}; {free:.1f} GiB of memory available", flush=True)
        return result

    return await asyncio.gather(*map(run, chosen))


def answer_of(held: HeldSession, execution: Execution) -> str:
    """Return the kind of a session's answer to the question for its number."""
    if not execution.ok:
        return execution.state.value
    return "right" if execution.stdout == f"{held.number}\n" else "wrong"


def written(counts: Counter[str]) -> str:
    """Return counts as text."""
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common())


def spread(items: Sequence[T], number: int) -> Iterator[T]:
    """Yield some items at about the same distances; all if there are not more."""
    step = max(1.0, len(items) / number)
    return (items[int(n * step)] for n in range(min(number, len(items))))


def count_fitting(pss_mb: float, used_mb: float) -> int:
    """Return how many sessions fit: `MOST_SESSIONS`, or the largest multiple of `STEP`."""
    room_mb = MEMORY_SHARE * psutil.virtual_memory().total / 1e6 - used_mb
    return max(STEP, min(MOST_SESSIONS, int(room_mb / pss_mb) // STEP * STEP))


@contextmanager
def running_pool_of_machines(kernels: str) -> Iterator[PoolHost]:
    """Start a pool whose servers are on machines, with room for all sessions; there is a machine more than servers."""
    is_forked = kernels == "forked"
    policy = '{"held": {"base": "trusted", "isolation": "%s"}}' % ("none" if is_forked else "sandbox")
    limits = {"max_sessions": 0, "session_idle_timeout_seconds": 0, "allow_unprotected_tokens": is_forked}
    options = [f"--ExecEngine.{name}={value}" for name, value in limits.items()]
    settings = {
        "tenancy": "own" if is_forked else "isolated",
        "min_servers": 0 if is_forked else SERVERS,
        "max_servers": SERVERS,
        "spare_sessions": 0,
        "sessions_per_server": MOST_SESSIONS,
        "policies": {"custom:exec:run": "held"},
    }
    with tempfile.TemporaryDirectory(prefix="jex", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        with (
            running_network(home, [f"m{number}" for number in range(1, SERVERS + 2)]) as network,
            running_pool(home, settings, [*options, f"--ExecEngine.policies={policy}"], network=network) as pool,
        ):
            if not is_forked:  # an own server starts with its principal's first session
                wait_until(lambda: pool.states() == {"ready": SERVERS}, _START_SECONDS)
            yield pool


async def run_trial(pool: PoolHost, sessions: int | None, minutes: float, most_pss_mb: float, report: Report) -> None:
    """Run the trial, and add its figures to the report."""
    assert pool.hub is not None
    async with AsyncExitStack() as stack:
        clients = []
        for number in range(SERVERS):
            pool.hub.api("POST", f"/users/agent{number}")
            info = JupyterConnectionInfo("127.0.0.1", False, pool.info.port, pool.hub.token_of(f"agent{number}"))
            clients.append(await stack.enter_async_context(AsyncExecClient(info)))
        trial = Trial(pool, clients)
        used_mb = psutil.virtual_memory().used / 1e6
        await trial.open_until(min(_FIRST_SESSIONS, sessions or _FIRST_SESSIONS))
        first = statistics.mean(await trial.measure_pss())
        total = sessions or count_fitting(first, used_mb)
        print(f"{total} sessions; the first take {first:.1f} MB each", flush=True)
        began = time.monotonic()
        await trial.open_until(total)
        report.add("live sessions", total)
        counts = sorted(map(len, trial.by_server.values()))
        report.add("of each server", ", ".join(map(str, counts)), holds=len(counts) == SERVERS)
        report.add("minutes to start them", f"{(time.monotonic() - began) / 60:.1f}")
        await hold(pool, minutes, report)
        answers = await trial.ask_all()
        report.add(f"right answers after {minutes:g} minutes", answers["right"], holds=answers["right"] == total)
        misplaced = await trial.count_misplaced()
        report.add("on a wrong server", misplaced, holds=not misplaced)
        await report_memory(trial, used_mb, most_pss_mb, report)
        await kill_a_server(pool, trial, report)


async def hold(pool: PoolHost, minutes: float, report: Report) -> None:
    """Wait; kill the pool after a third of the time and start it again, and kill the Hub's proxy after two thirds."""
    assert pool.hub is not None
    for what, restart in (("pool", pool.restart), ("proxy", pool.kill_proxy), ("", None)):
        print(f"  {minutes / 3:.1f} minutes until the next step", flush=True)
        await asyncio.sleep(minutes * 60 / 3)
        if restart is not None:
            began = time.monotonic()
            await asyncio.to_thread(restart)
            await asyncio.to_thread(wait_until, pool.hub.answers, _START_SECONDS)
            report.add(f"the {what} was killed, and was back after", f"{time.monotonic() - began:.1f} s")


async def report_memory(trial: Trial, used_mb: float, most_pss_mb: float, report: Report) -> None:
    """Add the memory of kernels: of a sample each, and of all by the servers' and the machine's own figures."""
    sample, total = await trial.measure_pss(), len(trial.held)
    report.add("PSS of a kernel, median", f"{statistics.median(sample):.1f} MB")
    largest = max(sample)
    report.add(f"PSS of a kernel, largest of {len(sample)}", f"{largest:.1f} MB", holds=largest <= most_pss_mb)
    loads = await trial.read_loads()
    all_mb = sum(load.kernels_pss_bytes for load in loads) / 1e6
    report.add("PSS of all kernels and warm ones, by their servers", f"{all_mb / total:.1f} MB each")
    used, allowed = max((load.descriptors_used or 0, load.descriptors_allowed) for load in loads)
    report.add("descriptors of a server, most", f"{used} of {allowed}")
    used_mb = psutil.virtual_memory().used / 1e6 - used_mb
    report.add("memory of the machine, servers included", f"{used_mb / total:.1f} MB each")


async def kill_a_server(pool: PoolHost, trial: Trial, report: Report) -> None:
    """Kill a server while all sessions run code; exactly its sessions are told, and the others go on."""
    lost, killed = next(iter(trial.by_server.items()))
    seconds = _RUN_SECONDS + _RUN_SECONDS_PER_SESSION * len(trial.held)
    code = f"import time; time.sleep({seconds})\n"
    runs = {held: asyncio.ensure_future(trial.ask(held, code)) for held in trial.held}
    await asyncio.to_thread(wait_until, lambda: pool.figures()["running"] == len(runs), seconds)
    psutil.Process(pool.pid_of(lost)).kill()
    began = time.monotonic()
    await asyncio.wait([runs[held] for held in killed])
    told_seconds = time.monotonic() - began
    told = Counter([await runs[held] for held in killed])
    others = [held for held in trial.held if held.server != lost]
    untouched = Counter([await runs[held] for held in others])
    report.add(
        f"runs on a killed server that ended as server_lost (of {len(killed)})",
        written(told),
        holds=told == {"server_lost": len(killed)},
    )
    report.add("time until all were told", f"{told_seconds:.1f} s", holds=told_seconds <= 10)
    report.add(f"runs on the others (of {len(others)})", written(untouched), holds=untouched == {"right": len(others)})
    answers = await trial.ask_all()
    expected = {"SessionEnded": len(killed), "right": len(others)}
    report.add("answers of all sessions afterwards", written(answers), holds=answers == expected)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 1 if something does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fleet.thousand_sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, metavar="N", help=f"how many; {MOST_SESSIONS} by default, or what fits")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="how long they live (%(default)g)")
    parser.add_argument("--kernels", choices=[*MAX_PSS_MB], default="forked", help="%(default)s by default")
    parser.add_argument("--record", type=Path, metavar="FILE.md", help="the page to write")
    given = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection for each session; servers inherit it
    report, began = Report(), time.monotonic()
    with running_pool_of_machines(given.kernels) as pool:
        report.add("kernels", given.kernels)
        asyncio.run(run_trial(pool, given.sessions, given.minutes, MAX_PSS_MB[given.kernels], report))
    note_end(report.result, time.monotonic() - began)
    if given.record is not None:
        words = [f"--kernels {given.kernels}", f"--sessions {given.sessions}" if given.sessions else ""]
        words.append(f"--minutes {given.minutes:g}")
        command = " ".join(["python -m tests.fleet.thousand_sessions", *filter(None, words)])
        given.record.write_text(report.page(command))
    return 0 if report.result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
