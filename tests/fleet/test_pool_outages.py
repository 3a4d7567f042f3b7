"""Runs and streams through a pool while its parts are killed: 10 of each client, whole afterwards. In full only."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import psutil
import pytest

from jupyter_exec_ext import AsyncExecClient, CodeBlock, ExecClient, JupyterCodeExecutor
from jupyter_exec_ext.models import StreamEvent
from tests.support.blocking_client import Blocking, LoopThread
from tests.support.full import only_in_full
from tests.support.pools import PoolHost, running_pool
from tests.support.waiting import wait_until

COUNT = 10
#: With both clients, and runs of the executor, which has no streams.
ALL = 5 * COUNT
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.needs("sandbox"),
    pytest.mark.timeout(600),
    only_in_full,
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHost]:
    settings = {"min_servers": 2, "max_servers": 2, "spare_sessions": 0, "policies": {"custom:exec:run": "many"}}
    policy = '--ExecEngine.policies={"many": {"base": "trusted", "isolation": "sandbox"}}'
    with running_pool(tmp_path_factory.mktemp("pool"), settings, [policy], has_own_proxy=True) as pool:
        wait_until(lambda: pool.states()["ready"] == 2, 60)
        yield pool


def kill_hub(pool: PoolHost, seconds: float) -> None:
    hub = pool.hub
    assert hub is not None
    old = psutil.Process(hub.process.pid)
    command, environment, directory = hub.process.args, old.environ(), old.cwd()
    hub.process.kill()
    hub.process.wait()
    time.sleep(seconds)
    with hub.log.open("ab") as log:
        hub.process = subprocess.Popen(command, env=environment, cwd=directory, stdout=log, stderr=log)
    wait_until(hub.answers, 60)


def kill_proxy(pool: PoolHost, seconds: float) -> None:
    assert pool.proxy is not None and pool.hub is not None
    hub = pool.hub
    pool.proxy.stop()
    time.sleep(seconds)
    pool.proxy.start()
    wait_until(hub.answers, 60)


def collect(session: Any, code: str) -> str:
    """Return what a stream printed; its events have all numbers once."""
    events = list(session.stream(code))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


async def check_runs_and_streams(pool: PoolHost, fault: Callable[[PoolHost, float], None], seconds: float) -> None:
    """Check that runs and streams of all clients are whole, in the middle of which a fault lasts for some seconds."""
    await asyncio.to_thread(_check, pool, fault, seconds)


def _check(pool: PoolHost, fault: Callable[[PoolHost, float], None], seconds: float) -> None:
    number = round(10 * (seconds + 10))
    code = f"import time\nfor i in range({number}):\n    print(i, flush=True)\n    time.sleep(0.1)"
    printed = "".join(f"{n}\n" for n in range(number))
    with ExitStack() as stack:
        loop = stack.enter_context(closing(LoopThread()))
        client = stack.enter_context(ExecClient(pool.info))
        clients: list[Any] = [client, stack.enter_context(Blocking(AsyncExecClient(pool.info), loop))]
        sessions = [[stack.enter_context(each.session()) for _ in range(2 * COUNT)] for each in clients]
        executors = [stack.enter_context(JupyterCodeExecutor(pool.info, timeout=600)) for _ in range(COUNT)]
        threads = stack.enter_context(ThreadPoolExecutor(ALL))
        runs = [threads.submit(session.run, code) for own in sessions for session in own[:COUNT]]
        streams = [threads.submit(collect, session, code) for own in sessions for session in own[COUNT:]]
        block = [CodeBlock(code, "python")]
        blocks = [threads.submit(executor.execute_code_blocks, block) for executor in executors]
        wait_until(lambda: pool.figures()["running"] == ALL, 60)
        fault(pool, seconds)
        assert [run.result().stdout for run in runs] == [printed] * 2 * COUNT
        assert [stream.result() for stream in streams] == [printed] * 2 * COUNT
        assert [(block.result().exit_code, block.result().output) for block in blocks] == [(0, printed)] * COUNT
        # Nothing ran twice.
        found = [client.get_session(record.id) for record in client.list_sessions()]
        assert [len(session.list_executions()) for session in found] == [1] * ALL
    print(f"\n{fault.__name__} {seconds:g} s: {ALL} of {ALL} whole")


@pytest.mark.parametrize(
    ("kill", "seconds"),
    [
        *((PoolHost.restart, seconds) for seconds in (0.0, 5.0)),
        *((kill_proxy, seconds) for seconds in (0.3, 1.0, 5.0, 20.0)),
        *((kill_hub, seconds) for seconds in (5.0, 40.0, 120.0)),
    ],
)
async def test_runs_and_streams_are_whole(pool: PoolHost, kill: Any, seconds: float) -> None:
    await check_runs_and_streams(pool, kill, seconds)
