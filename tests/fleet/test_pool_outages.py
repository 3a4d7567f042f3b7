"""Runs and streams through a pool while its parts are killed: 10 of each, whole afterwards. Runs in full only."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from jupyter_exec_ext import AsyncExecClient
from jupyter_exec_ext.models import StreamEvent
from tests.support.full import only_in_full
from tests.support.pools import PoolHost, running_pool
from tests.support.waiting import wait_until

COUNT = 10
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
    with running_pool(tmp_path_factory.mktemp("pool"), settings, [policy]) as pool:
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


async def collect(session: Any, code: str) -> str:
    """Return what a stream printed; its events have all numbers once."""
    events = [event async for event in session.stream(code)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


async def check_runs_and_streams(pool: PoolHost, fault: Callable[[PoolHost, float], None], seconds: float) -> None:
    """Check that runs and streams are whole, in the middle of which a fault lasts for some seconds."""
    number = round(10 * (seconds + 4))
    code = f"import time\nfor i in range({number}):\n    print(i, flush=True)\n    time.sleep(0.1)"
    printed = "".join(f"{n}\n" for n in range(number))
    async with AsyncExecClient(pool.info) as client:
        sessions = [await client.session() for _ in range(2 * COUNT)]
        runs = [asyncio.ensure_future(session.run(code)) for session in sessions[:COUNT]]
        streams = [asyncio.ensure_future(collect(session, code)) for session in sessions[COUNT:]]
        await asyncio.sleep(1.0)  # into the middle of them
        await asyncio.to_thread(fault, pool, seconds)
        assert [(await run).stdout for run in runs] == [printed] * COUNT
        assert [await stream for stream in streams] == [printed] * COUNT
        # Nothing ran twice, and nothing is left that runs.
        assert [len(await session.list_executions()) for session in sessions] == [1] * (2 * COUNT)
        for session in sessions:
            await session.close()
    print(f"\n{fault.__name__} {seconds:g} s: {2 * COUNT} of {2 * COUNT} whole")


@pytest.mark.parametrize(
    ("kill", "seconds"),
    [
        (PoolHost.restart, 0.0),
        (PoolHost.restart, 5.0),
        (PoolHost.kill_proxy, 1.0),
        (kill_hub, 5.0),
        (kill_hub, 40.0),
        (kill_hub, 120.0),
    ],
)
async def test_runs_and_streams_are_whole(pool: PoolHost, kill: Any, seconds: float) -> None:
    await check_runs_and_streams(pool, kill, seconds)
