"""A pool whose servers are jobs on two nodes of a Slurm cluster, as `docs/admin/slurm.md` says. Runs in full only."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient, ExecSession
from jupyter_exec_ext.protocol.record_ids import parse_id
from tests.docs.admin import page
from tests.fleet.test_lost_machines import (
    COUNT,
    ENDED_SECONDS,
    TOLD_SECONDS,
    check_all_lost,
    clients_of_one_server,
    code_of,
    start_all,
)
from tests.fleet.test_pool_outages import ALL, check_runs_and_streams, kill_hub
from tests.support.full import only_in_full
from tests.support.howto_pages import Recipe
from tests.support.pools import POOL_USER, RECIPE, PoolHost, running_pool
from tests.support.slurm import USABLE, SlurmCluster, running_cluster
from tests.support.waiting import wait_until

# Slurm looks at time limits every 30 s.
_LIMIT_SECONDS = 75.0
# Slurm may place a new server on the silent node at first. The Hub gives it up, and the pool starts another one.
_REPLACED_SECONDS = 240.0
_POLICY = """'--ExecEngine.policies={"many": {"base": "trusted", "isolation": "sandbox"}}'"""
_SETTINGS = {
    "min_servers": 2,
    "max_servers": 4,
    "spare_sessions": 0,
    "idle_server_seconds": 10.0,  # a server more starts while one is silent
    "policies": {"custom:exec:run": "many"},
}
Note = Callable[[str, object], None]
pytestmark = [
    pytest.mark.needs("Slurm", "configurable-http-proxy", "sandbox"),
    pytest.mark.timeout(600),
    only_in_full,
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running_cluster(tmp_path_factory.mktemp("slurm"), ["node1", "node2"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pool(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHost]:
    home, etc = tmp_path_factory.mktemp("pool"), tmp_path_factory.mktemp("etc")
    account = home / POOL_USER
    account.mkdir()
    passwd = etc / "passwd"
    passwd.write_text(f"{Path('/etc/passwd').read_text()}{POOL_USER}:x:0:0::{account}:/bin/bash\n")
    # The Hub and the pool know the cluster's names, and the Hub knows the account, which is the one of the tests here.
    mounts = f"mount --bind {passwd} /etc/passwd && mount --bind {cluster.home / 'hosts'} /etc/hosts"
    prefix = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    environment = {"SLURM_CONF": str(cluster.configuration)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        recipe = write_recipe(etc, home)
        with running_pool(home, _SETTINGS, [_POLICY], environment, recipe=recipe, prefix=prefix) as pool:
            yield pool


def write_recipe(etc: Path, home: Path) -> Path:
    """Write the Hub's configuration, which is the example's and the page's, and return its path."""
    places = {
        "/opt/jupyterhub/bin": sysconfig.get_path("scripts"),
        "hub.cluster.example.org": "hub",
        "/var/lib/exec-pool": f"{home}/jobs",
    }
    Recipe(page("slurm"), None, places).write("/etc/jupyterhub/slurm_config.py", etc / "slurm_config.py")
    recipe = etc / "recipe.py"
    recipe.write_text(
        f"load_subconfig({str(RECIPE)!r})\nload_subconfig({str(etc / 'slurm_config.py')!r})\n"
        "c.BatchSpawnerBase.exec_prefix = ''  # the tests have no sudo\n"
    )
    return recipe


@pytest.fixture(autouse=True)
def _servers_on_both_nodes(pool: PoolHost, cluster: SlurmCluster) -> None:
    """Start each test with one server on each node."""
    nodes = cluster.network.machines
    for node in nodes:
        node.join()
        if "drain" in cluster.state_of(node):
            cluster.set_state(node, "resume")
    wait_until(lambda: all(cluster.state_of(node) in USABLE for node in nodes), 120)
    wait_until(lambda: pool.states() == {"ready": 2}, _REPLACED_SECONDS)
    first, second = server_names(pool)
    if job_and_node(pool, cluster, first)[1] == job_and_node(pool, cluster, second)[1]:
        drain(pool, first)
        wait_until(lambda: first not in server_names(pool) and pool.states() == {"ready": 2}, _REPLACED_SECONDS)


@pytest.fixture
def note(record_property: Note) -> Note:
    """Note a figure for the record of `tests.full`, and print it."""

    def note_figure(name: str, value: object) -> None:
        print(f"\n{name}: {value}", flush=True)
        record_property(name, value)

    return note_figure


def server_names(pool: PoolHost) -> list[str]:
    return [row["name"] for row in pool.figures()["servers"]]


def job_and_node(pool: PoolHost, cluster: SlurmCluster, name: str) -> tuple[str, str]:
    """Return a server's job and the name of its node."""
    assert pool.hub is not None
    job = pool.hub.api("GET", f"/users/{POOL_USER}")["servers"][name]["state"]["job_id"]
    return job, cluster.node_of(job).name


def server_of(session: ExecSession) -> str:
    parsed = parse_id(session.id)
    assert parsed is not None
    return parsed.server_name


def drain(pool: PoolHost, name: str) -> None:
    """Drain a server with the command, as the page says."""
    assert pool.hub is not None
    token = pool.home / "admin.token"
    token.touch(mode=0o600)
    token.write_text(pool.hub.token_of("grace", f"access:servers!user={POOL_USER}"))
    url = f"{pool.hub.hub_url.removesuffix('hub/')}user/{POOL_USER}/{name}/"
    command = [sys.executable, "-m", "jupyter_exec_ext.cli", "drain", url, "--token-file", str(token)]
    subprocess.run(command, check=True, timeout=60)


# --- whole runs ---


@pytest.mark.parametrize(
    ("about", "kill", "seconds"),
    [
        ("pool", PoolHost.restart, 0.0),
        ("pool", PoolHost.restart, 5.0),
        ("proxy", PoolHost.kill_proxy, 1.0),
        ("Hub", kill_hub, 5.0),
        ("Hub", kill_hub, 40.0),
    ],
)
async def test_runs_and_streams_are_whole(pool: PoolHost, about: str, kill: Any, seconds: float, note: Note) -> None:
    await check_runs_and_streams(pool, kill, seconds)
    note(f"{about} killed, back after {seconds:g} s", f"{ALL} of {ALL} runs and streams whole")


async def test_runs_and_streams_are_whole_after_a_cut(pool: PoolHost, cluster: SlurmCluster, note: Note) -> None:
    def cut_node(_: PoolHost, seconds: float) -> None:
        cluster.network.machines[0].cut()
        time.sleep(seconds)
        cluster.network.machines[0].join()

    await check_runs_and_streams(pool, cut_node, 9.0)
    note("a node cut off for 9 s", f"{ALL} of {ALL} runs and streams whole")


async def test_runs_and_streams_are_whole_on_a_drained_node(pool: PoolHost, cluster: SlurmCluster, note: Note) -> None:
    node = cluster.network.machines[0]

    def drain_node(_: PoolHost, seconds: float) -> None:
        cluster.set_state(node, "drain")
        wait_until(lambda: cluster.state_of(node) == "draining", seconds)

    await check_runs_and_streams(pool, drain_node, 5.0)
    note("a node drained by scontrol", f"{ALL} of {ALL} runs and streams whole")


def test_drained_server_is_replaced_on_another_node(pool: PoolHost, cluster: SlurmCluster, note: Note) -> None:
    with ExecClient(pool.info) as client:
        session = client.session()
        session.run("x = 1")
        old = server_of(session)
        job, node = job_and_node(pool, cluster, old)
        cluster.set_state(cluster.machine(node), "drain")
        assert f"/user/{POOL_USER}/{old}/" in (pool.home / POOL_USER / f"jupyterhub_slurmspawner_{job}.log").read_text()
        drain(pool, old)
        wait_until(lambda: pool.states() == {"draining": 1, "ready": 2}, _REPLACED_SECONDS)
        others = set(server_names(pool)) - {old}
        assert {job_and_node(pool, cluster, name)[1] for name in others} == {"node1", "node2"} - {node}
        started = [client.session() for _ in range(4)]
        assert {server_of(each) for each in started} == others
        assert session.run("x").text == "1"
        for each in (session, *started):
            each.close()
    wait_until(lambda: job not in cluster.jobs(), 60)
    note("a server drained on a drained node", "its session goes on, new ones lie on the other node, its job ends")


# --- ends of jobs ---


async def test_server_drains_before_its_time_limit(pool: PoolHost, cluster: SlurmCluster, note: Note) -> None:
    code, printed = code_of(60)
    async with clients_of_one_server(pool) as clients:
        tasks = await start_all(clients, code)
        name = clients[0].server
        cluster.run("scontrol", "update", f"JobId={job_and_node(pool, cluster, name)[0]}", "TimeLimit=60")
        began_at = time.monotonic()
        await asyncio.to_thread(wait_until, lambda: pool.states()["draining"] == 1, _LIMIT_SECONDS)
        drained_after = time.monotonic() - began_at
        outcomes = await asyncio.gather(*tasks)
        assert [outcome[:2] for outcome in outcomes] == [("ok", printed)] * COUNT
        await asyncio.to_thread(wait_until, lambda: name not in server_names(pool), 60)
        await check_all_lost(pool, clients)
        await asyncio.to_thread(wait_until, lambda: pool.states() == {"ready": 2}, _REPLACED_SECONDS)
    note("an hour before a time limit", f"drained after {drained_after:.0f} s, {COUNT} of {COUNT} whole")


def kill(pool: PoolHost, cluster: SlurmCluster, job: str) -> None:
    cluster.run("scancel", "--batch", "--signal=KILL", job)  # the server alone, at first


def cancel(pool: PoolHost, cluster: SlurmCluster, job: str) -> None:
    cluster.run("scancel", job)


def reach_time_limit(pool: PoolHost, cluster: SlurmCluster, job: str) -> None:
    cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_until(lambda: cluster.state_of_job(job) != "RUNNING", _LIMIT_SECONDS + 60)


def cut(pool: PoolHost, cluster: SlurmCluster, job: str) -> None:
    cluster.node_of(job).cut()


@pytest.mark.parametrize(
    ("about", "end", "states"),
    [
        ("a server's process killed", kill, {"server_lost"}),
        # Slurm ends the kernels at the same time; an executor's result is an error then.
        ("a job cancelled", cancel, {"kernel_died", "error", "server_lost"}),
        ("a time limit reached", reach_time_limit, {"kernel_died", "error", "server_lost"}),
        ("a node cut off for good", cut, {"server_lost"}),
    ],
)
async def test_clients_of_a_job_that_has_ended_are_told(
    pool: PoolHost,
    cluster: SlurmCluster,
    about: str,
    end: Callable[[PoolHost, SlurmCluster, str], None],
    states: set[str],
    note: Note,
) -> None:
    async with clients_of_one_server(pool) as clients:
        name = clients[0].server
        job = job_and_node(pool, cluster, name)[0]
        node = cluster.node_of(job)
        tasks = await start_all(clients, code_of(300)[0])
        await asyncio.to_thread(end, pool, cluster, job)
        began_at = time.monotonic()
        told = Counter(outcome.state for outcome in await asyncio.gather(*tasks))
        told_after = time.monotonic() - began_at
        await asyncio.to_thread(wait_until, lambda: name not in server_names(pool), 60)
        ended_after = time.monotonic() - began_at
        note(about, f"{dict(told)} after {told_after:.1f} s; sessions ended after {ended_after:.1f} s")
        assert set(told) <= states and told_after <= ENDED_SECONDS
        await check_all_lost(pool, clients)
    await asyncio.to_thread(wait_until, lambda: pool.states() == {"ready": 2}, _REPLACED_SECONDS)
    replaced_after = time.monotonic() - began_at
    node.join()
    await asyncio.to_thread(wait_until, lambda: job not in cluster.jobs(), 60)
    note(f"{about}: replaced", f"after {replaced_after:.0f} s")


async def test_clients_that_do_not_wait_are_told_of_a_silent_node(
    pool: PoolHost, cluster: SlurmCluster, note: Note
) -> None:
    async with clients_of_one_server(pool, outage_seconds=0) as clients:
        node = cluster.node_of(job_and_node(pool, cluster, clients[0].server)[0])
        tasks = await start_all(clients, code_of(60)[0])
        began_at = time.monotonic()
        node.cut()
        told = Counter(outcome.state for outcome in await asyncio.gather(*tasks))
        told_after = time.monotonic() - began_at
        node.join()
        note("a node cut off, clients that do not wait", f"{dict(told)} after {told_after:.1f} s")
        assert told == {"ServerUnreachable": COUNT} and told_after <= TOLD_SECONDS
