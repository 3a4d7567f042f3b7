"""Clients whose server is killed, stopped by the Hub, or cut off the network: 10 runs and 10 streams. In full only.

Each server runs on a machine of its own (`tests.support.namespaces`). A client with ``outage_seconds=0`` is told of a
silent server by the error `ServerUnreachable`. One that waits, as by default, goes on when the server is back, or gets
the state `server_lost` when the server is given up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from jupyter_exec_ext import AsyncExecClient
from jupyter_exec_ext.errors import ExecError, ServerUnreachable, SessionEnded
from jupyter_exec_ext.protocol.record_ids import parse_id
from tests.support.busy_clients import KINDS, BusyClient, Outcome
from tests.support.full import only_in_full
from tests.support.namespaces import Machine, Network, running_network
from tests.support.pools import POOL_USER, PoolHost, running_pool
from tests.support.waiting import wait_until

COUNT = len(KINDS)
TOLD_SECONDS, ENDED_SECONDS = 10.0, 40.0
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.needs("sandbox"),
    pytest.mark.needs("network namespaces"),
    pytest.mark.timeout(600),
    only_in_full,
]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    # One machine more than servers, for the server that takes the place of a lost one.
    with running_network(tmp_path_factory.mktemp("network"), ["m1", "m2", "m3"]) as network:
        yield network


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[PoolHost]:
    settings = {"min_servers": 2, "max_servers": 2, "spare_sessions": 0, "policies": {"custom:exec:run": "many"}}
    policy = '--ExecEngine.policies={"many": {"base": "trusted", "isolation": "sandbox"}}'
    with running_pool(tmp_path_factory.mktemp("pool"), settings, [policy], network=network) as pool:
        yield pool


@pytest.fixture
def pool(running: PoolHost, network: Network) -> PoolHost:
    """The pool with two ready servers, without sessions."""
    for machine in network.machines:
        machine.join()
    wait_until(lambda: running.states() == {"ready": 2}, 120)
    return running


@asynccontextmanager
async def clients_of_one_server(pool: PoolHost, outage_seconds: float = 60.0) -> AsyncIterator[list[BusyClient]]:
    """Open clients, one of each of `KINDS` on one server; those that get a session on the other one are left idle."""
    with ThreadPoolExecutor(COUNT) as threads:
        clients: list[BusyClient] = []
        chosen: list[BusyClient] = []
        try:
            while len(chosen) < COUNT:
                client = BusyClient(KINDS[len(chosen)], pool.info, outage_seconds, threads)
                clients.append(client)
                await client.open()
                if client.server == clients[0].server:
                    chosen.append(client)
            yield chosen
        finally:
            for client in clients:
                await client.close()
            async with AsyncExecClient(pool.info) as owner:
                for record in await owner.list_sessions():
                    await (await owner.get_session(record.id)).close()


def code_of(seconds: float) -> tuple[str, str]:
    """Return code that prints for some time and notes in a file that it has run, and the text that it prints."""
    number = round(10 * seconds)
    code = "import time\nopen('ran', 'a').write('x')\n"
    code += f"for i in range({number}):\n    print(i, flush=True)\n    time.sleep(0.1)"
    return code, "".join(f"{n}\n" for n in range(number))


async def start_all(clients: list[BusyClient], code: str) -> list[asyncio.Task[Outcome]]:
    """Start the code in all clients, and return once it runs."""
    tasks = [asyncio.ensure_future(client.run(code)) for client in clients]
    await asyncio.sleep(2.0)  # into the middle of them
    assert not any(task.done() for task in tasks)
    return tasks


def machine_of(pool: PoolHost, network: Network, server: str) -> Machine:
    pid = pool.pid_of(server)
    (machine,) = [machine for machine in network.machines if pid in {p.pid for p in machine.processes()}]
    return machine


def kill(pool: PoolHost, network: Network, server: str) -> None:
    psutil.Process(pool.pid_of(server)).kill()


def stop_by_hub(pool: PoolHost, network: Network, server: str) -> None:
    assert pool.hub is not None
    pool.hub.api("DELETE", f"/users/{POOL_USER}/servers/{server}")


def cut(pool: PoolHost, network: Network, server: str) -> None:
    machine_of(pool, network, server).cut()


async def check_all_lost(pool: PoolHost, clients: list[BusyClient]) -> None:
    """Check that the sessions of lost clients have ended, and that new ones start elsewhere."""
    async with AsyncExecClient(pool.info, outage_seconds=0) as client:
        for each in clients:
            with pytest.raises(SessionEnded):
                await client.get_session(each.session_id)
        async with client.session() as session:
            parsed = parse_id(session.id)
            assert parsed is not None and parsed.server_name != clients[0].server
            assert (await session.run("print(1)")).stdout == "1\n"


@pytest.mark.parametrize(
    ("end", "most_seconds"), [(kill, TOLD_SECONDS), (stop_by_hub, TOLD_SECONDS), (cut, ENDED_SECONDS)]
)
async def test_runs_on_a_lost_server_end_as_server_lost(
    pool: PoolHost, network: Network, end: Callable[..., None], most_seconds: float
) -> None:
    async with clients_of_one_server(pool) as clients:
        tasks = await start_all(clients, code_of(60)[0])
        began_at = time.monotonic()
        await asyncio.to_thread(end, pool, network, clients[0].server)
        ended_after: list[float] = []
        for task in tasks:
            task.add_done_callback(lambda _: ended_after.append(time.monotonic() - began_at))
        outcomes = await asyncio.gather(*tasks)
        print(f"\n{end.__name__}: {Counter(outcome.state for outcome in outcomes)} after {max(ended_after):.1f} s")
        assert [outcome.state for outcome in outcomes] == ["server_lost"] * COUNT
        assert max(ended_after) <= most_seconds
        await check_all_lost(pool, clients)


async def test_clients_that_do_not_wait_are_told_of_a_silent_server(pool: PoolHost, network: Network) -> None:
    async with clients_of_one_server(pool, outage_seconds=0) as clients:
        tasks = await start_all(clients, code_of(60)[0])
        began_at = time.monotonic()
        machine_of(pool, network, clients[0].server).cut()
        outcomes = await asyncio.gather(*tasks)
        told_after = time.monotonic() - began_at
        # For an executor that is stopped, a server that cannot be reached is no error.
        await asyncio.gather(*(client.close() for client in clients if client.kind == "executor run"))
        async with AsyncExecClient(pool.info, outage_seconds=0) as client:
            ends = await asyncio.gather(*(ask_until_ended(client, each.session_id) for each in clients))
        ended_after = time.monotonic() - began_at
        told = Counter(outcome.state for outcome in outcomes)
        print(f"\ncut: {told} after {told_after:.1f} s, {Counter(ends)} after {ended_after:.1f} s")
        assert told == {"ServerUnreachable": COUNT} and told_after <= TOLD_SECONDS
        assert ends == ["SessionEnded"] * COUNT and ended_after <= ENDED_SECONDS
        await check_all_lost(pool, clients)


async def ask_until_ended(client: AsyncExecClient, session_id: str) -> str:
    """Ask for a session as long as its server may come back, and return the class of the error that follows."""
    while True:
        try:
            await client.get_session(session_id)
        except ServerUnreachable as error:
            await asyncio.sleep(error.retry_after_seconds or 0.0)
        except ExecError as error:
            return type(error).__name__


@pytest.mark.parametrize("seconds", [3.0, 9.0, 20.0])
async def test_runs_and_streams_outlive_a_cut(pool: PoolHost, network: Network, seconds: float) -> None:
    code, printed = code_of(seconds + 6)
    async with clients_of_one_server(pool) as clients:
        tasks = await start_all(clients, code)
        machine = machine_of(pool, network, clients[0].server)
        machine.cut()
        await asyncio.sleep(seconds)  # the outage
        machine.join()
        began_at = time.monotonic()
        outcomes = await asyncio.gather(*tasks)
        whole = [outcome[:2] == ("ok", printed) for outcome in outcomes]
        print(f"\ncut of {seconds:g} s: {sum(whole)} of {COUNT} whole, {time.monotonic() - began_at:.1f} s after it")
        assert whole == [True] * COUNT, [outcome for outcome in outcomes if outcome[:2] != ("ok", printed)]
        assert [await how_often_it_ran(pool, client) for client in clients] == [(1, "x")] * COUNT


async def how_often_it_ran(pool: PoolHost, client: BusyClient) -> tuple[int, Any]:
    async with AsyncExecClient(pool.info) as observer:
        session = await observer.get_session(client.session_id)
        executions = await session.list_executions()
        return len(executions), (await session.read_file("ran")).decode()
