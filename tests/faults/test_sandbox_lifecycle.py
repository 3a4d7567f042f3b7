"""Sandboxes that are started and ended at random moments; see `test_faults` for the scale."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.isolation.common.leftovers import MARK
from tests.support.full import SCALE
from tests.support.hosts import running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.sandbox_leftovers import (
    TRACE,
    Watch,
    at_last,
    bwraps,
    directories_of,
    groups_of,
    inner_of,
    namespace_of,
    processes_in,
    processes_with,
    server_name,
)

WORKERS = 3
# Most of a start happens within a few milliseconds, so half of the kills come that early.
SETUP_SECONDS, EARLY_SECONDS, LATE_SECONDS = 0.02, 0.06, 0.4


QUIET = logging.getLogger("sandboxes.of.test")
QUIET.setLevel(logging.CRITICAL + 1)


class Starter:
    """Starts kernels and ends them at a random moment, in one of several ways."""

    def __init__(self, watch: Watch, work: Path) -> None:
        self.watch = watch
        self.work = work
        self.went: Counter[str] = Counter()

    def manager(self) -> AsyncKernelManager:
        file = str(self.work.parent / f"kernel-{secrets.token_hex(4)}.json")
        manager = AsyncKernelManager(kernel_name="boxed", context=zmq.asyncio.Context(), connection_file=file)
        manager.log = QUIET  # most starts fail here
        return manager

    def start(self, manager: AsyncKernelManager) -> asyncio.Task[None]:
        starting = asyncio.ensure_future(manager.start_kernel(cwd=str(self.work), env=self.env))
        starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return starting

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, TRACE: self.watch.trace}

    async def one_that_runs(self) -> None:
        """Start a kernel and end it when it is there."""
        manager = self.manager()
        await self.start(manager)
        await manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)

    async def one(self, rng: random.Random) -> None:
        """Start a kernel and end it."""
        manager = self.manager()
        starting = self.start(manager)
        ways = [self.cancel, self.cancel_and_forget, self.kill, self.kill_outer, self.kill_inner, self.shut_down]
        way = rng.choice(ways)
        if way in (self.kill_outer, self.kill_inner) and rng.random() < 0.5:
            await asyncio.to_thread(wait_for_another, rng.uniform(0, SETUP_SECONDS))
        else:
            await self.a_moment(rng)
        self.note(way.__name__, manager)
        try:
            await way(manager, starting)
        finally:
            manager.context.destroy(linger=0)

    def note(self, way: str, manager: AsyncKernelManager) -> None:
        self.went[way] += 1
        self.went["of a running kernel"] += manager.has_kernel
        self.watch.note(getattr(manager.provisioner, "kernel_pid", None))

    async def a_moment(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0, rng.choice([EARLY_SECONDS, LATE_SECONDS])))

    async def cancel(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        starting.cancel()
        await asyncio.wait([starting])
        await manager.shutdown_kernel(now=True)

    async def cancel_and_forget(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        starting.cancel()
        await asyncio.wait([starting])

    async def kill(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        if manager.provisioner is not None:
            await manager.provisioner.kill()
        await asyncio.wait([starting])
        await manager.shutdown_kernel(now=True)

    async def kill_outer(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        """Kill bubblewrap's own processes, whosever they are, as an administrator or a lack of memory might."""
        await self.kill_from_outside(manager, starting, bwraps())

    async def kill_inner(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        """Kill the inits inside."""
        await self.kill_from_outside(manager, starting, [pid for bwrap in bwraps() for pid in inner_of(bwrap)])

    async def kill_from_outside(
        self, manager: AsyncKernelManager, starting: asyncio.Task[None], victims: Iterable[int]
    ) -> None:
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        await asyncio.wait([starting])
        await manager.shutdown_kernel(now=True)

    async def shut_down(self, manager: AsyncKernelManager, starting: asyncio.Task[None]) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):  # each of the two calls says that the manager is ready
            await manager.shutdown_kernel(now=True)
        await asyncio.wait([starting])
        await manager.shutdown_kernel(now=True)

    # --- a thread whose loop ends ---

    def thread_that_ends(self, rng: random.Random) -> None:
        """Start a kernel in a loop that ends, with its thread, while the kernel starts or soon after."""
        manager = self.manager()
        kept = []  # tasks are not, by themselves

        async def until_then() -> None:
            kept.append(self.start(manager))
            await self.a_moment(rng)

        if rng.random() < 0.5:
            asyncio.run(until_then())  # which cancels what has not ended
        else:
            loop = asyncio.new_event_loop()
            loop.run_until_complete(until_then())
            loop.close()  # which does not
        self.note("thread_that_ends", manager)
        manager.context.destroy(linger=0)

    def in_thread(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        for number in range(count):
            if number % 4 == 3:
                thread = threading.Thread(target=self.thread_that_ends, args=(rng,))
                thread.start()
                thread.join()
            else:
                asyncio.run(self.one(rng))
            gc.collect()

    async def in_main(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            await self.one(rng)


def wait_for_another(seconds: float) -> None:
    """Wait until a process of bubblewrap's is there that was not, and a moment more."""
    there, give_up_at = set(bwraps()), time.monotonic() + LATE_SECONDS
    while time.monotonic() < give_up_at and not set(bwraps()) - there:
        pass
    kill_at = time.monotonic() + seconds
    while time.monotonic() < kill_at:
        pass


@pytest.fixture
def starter(tmp_path: Path) -> Starter:
    add_kernelspec(tmp_path, "boxed", "sandbox-provisioner")
    work = tmp_path / "work"
    work.mkdir()
    return Starter(Watch(), work)


def in_use() -> tuple[int, int]:
    """Return how many descriptors and threads there are; bounded pools, which grow by themselves, do not count."""
    gc.collect()
    process = psutil.Process()
    of_pool = [thread for thread in threading.enumerate() if thread.name.startswith(("asyncio_", "kernel-provisioner"))]
    return process.num_fds(), process.num_threads() - len(of_pool)


@pytest.mark.needs("sandbox")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.timeout(120 * SCALE)
async def test_sandboxes_that_are_ended_at_random_moments_leave_nothing(
    starter: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 30 * SCALE
    await starter.one_that_runs()  # the first one makes threads that stay
    in_use_before = in_use()
    began = time.monotonic()
    each = count // (WORKERS + 1)
    with ThreadPoolExecutor(WORKERS) as pool:
        work = [pool.submit(starter.in_thread, each, seed) for seed in range(1, WORKERS + 1)]
        await starter.in_main(count - each * WORKERS, WORKERS + 1)
        await asyncio.to_thread(lambda: [done.result() for done in work])
    took = time.monotonic() - began
    gc.collect()  # what was forgotten ends with its manager
    left = await asyncio.to_thread(starter.watch.left_at_last)
    at_the_end = in_use()
    with capsys.disabled():
        went = ", ".join(f"{way} {number}" for way, number in sorted(starter.went.items()))
        print(f"\nsandboxes: {count} starts ended at random in {took:.0f} s ({went}); {left or 'nothing'} left;")
        print(f"descriptors and threads {in_use_before}, then {at_the_end}")
    assert left == {}
    assert all(abs(now - before) <= 2 for now, before in zip(at_the_end, in_use_before, strict=True))


# --- a server that is killed ---


def of_server(name: str, namespaces: set[str], kernels: list[int]) -> dict[str, object]:
    """Return what runs of a server's sandboxes."""
    found = {
        "bubblewrap": processes_with(f"{MARK}={name}"),
        "in their namespaces": processes_in(namespaces),
        "kernels": [pid for pid in kernels if psutil.pid_exists(pid)],
    }
    return {what: pids for what, pids in found.items() if pids}


@pytest.mark.needs("sandbox")
@pytest.mark.timeout(180)
def test_a_killed_server_leaves_no_sandbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten kernels in a loop: none is left within 3 s, and the next server removes what else they had."""
    options = ["--ExecEngine.default_isolation=sandbox", "--ExecEngine.pool_size=0"]
    with running_host("server", tmp_path, *options) as host, ExecClient(host.info) as client:
        sessions = [client.session() for _ in range(10)]
        handles = [session.submit("print('now', flush=True)\nwhile True: pass") for session in sessions]
        for handle in handles:
            next(event for event in handle.events() if event.type == "stream")
        name = server_name(host.pid)
        kernels = [child.pid for child in psutil.Process(host.pid).children(recursive=True)]
        namespaces = {namespace_of(pid) for pid in kernels} - {namespace_of(os.getpid())}
        assert len(namespaces) == 10
        assert len(of_server(name, namespaces, kernels)["bubblewrap"]) == 20  # type: ignore[arg-type]
        assert len(directories_of(name)) == 10
        host.process.kill()
        began = time.monotonic()
        host.process.wait()
        left = at_last(lambda: of_server(name, namespaces, kernels), 3.0)
        took = time.monotonic() - began
    assert left == {}
    assert directories_of(name)  # nobody was there to remove them
    with running_host("server", tmp_path, *options) as host, ExecClient(host.info) as client:
        after = [*directories_of(name), *groups_of(name)]
        with client.session() as session:
            assert session.run("1").ok
    with capsys.disabled():
        print(f"\nsandboxes: a server with 10 kernels in a loop was killed; 0 left after {took:.2f} s;", end=" ")
        print(f"{len(after)} of their directories and control groups left after the next start")
    assert after == []
