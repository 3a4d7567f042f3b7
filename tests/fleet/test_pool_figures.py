"""Figures of a pool of four servers: placement of bursts, refusals of a full pool, identifiers. Runs in full only."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from jupyter_exec_ext.protocol.record_ids import parse_id
from tests.aca_clients.__main__ import CLIENTS, prepare
from tests.aca_clients.many_identifiers import THREADS
from tests.support.environments import ROOT
from tests.support.full import only_in_full
from tests.support.pools import PoolHost, running_pool
from tests.support.waiting import wait_until

SERVERS, PER_SERVER = 4, 55
#: Other projects' clients of the ACA sessions' protocol, as far as this Python is new enough for them.
OTHERS = [name for name in ("autogen", "langchain") if sys.version_info >= CLIENTS[name].python]
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.needs("sandbox"),
    pytest.mark.needs("curl"),
    pytest.mark.timeout(900),
    only_in_full,
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHost]:
    settings = {
        "min_servers": SERVERS,
        "max_servers": SERVERS,
        "sessions_per_server": PER_SERVER,
        "policies": {"custom:exec:run": "many"},
    }
    policy = '--ExecEngine.policies={"many": {"base": "trusted", "isolation": "sandbox"}}'
    with running_pool(tmp_path_factory.mktemp("pool"), settings, [policy]) as pool:
        wait_until(lambda: pool.states()["ready"] == SERVERS, 120)
        yield pool


@pytest.fixture
def http(pool: PoolHost) -> Iterator[Any]:
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        session.headers.update(pool.info.auth_headers)
        yield session
        url = f"{pool.info.url}exec/v1/sessions"
        with ThreadPoolExecutor(16) as threads:
            ended = [record["id"] for record in session.get(url, timeout=60).json()["sessions"]]
            list(threads.map(lambda session_id: session.delete(f"{url}/{session_id}", timeout=60), ended))
        wait_until(lambda: pool.figures()["sessions"] == 0, 60)


def test_a_burst_is_spread_over_all_servers(pool: PoolHost, http: Any) -> None:
    with ThreadPoolExecutor(100) as threads:
        url = f"{pool.info.url}exec/v1/sessions"
        answers = list(threads.map(lambda _: http.post(url, timeout=300), range(100)))
    assert {answer.status_code for answer in answers} == {201}
    placed = Counter(parse_id(answer.json()["id"]).server_name for answer in answers)  # type: ignore[union-attr]
    print(f"\nsessions by server: {sorted(placed.values())}")
    assert len(placed) == SERVERS and max(placed.values()) <= 27


def test_a_full_pool_refuses_quickly_with_its_limit(pool: PoolHost, http: Any) -> None:
    url = f"{pool.info.url}exec/v1/sessions"
    with ThreadPoolExecutor(16) as threads:
        made = list(threads.map(lambda _: http.post(url, timeout=300).status_code, range(SERVERS * PER_SERVER)))
    assert set(made) == {201}
    times = []
    for _ in range(100):
        began = time.monotonic()
        answer = http.post(url, timeout=60)
        times.append(time.monotonic() - began)
        assert (answer.status_code, answer.json()["code"]) == (429, "pool_full")
        assert answer.json()["limit"]["value"] == SERVERS * PER_SERVER and int(answer.headers["Retry-After"]) > 0
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"\nrefused 100 of 100, p95 {1000 * p95:.1f} ms")
    assert p95 <= 0.05


def run_all(client: str, pool: PoolHost, runs: Sequence[tuple[str, str]]) -> list[str]:
    """Run code of identifiers of the ACA sessions' protocol in `THREADS` threads; return what each has printed."""
    endpoint = f"{pool.info.url}exec/aca"
    if client != "curl":
        given = json.dumps({"endpoint": endpoint, "token": pool.info.token, "runs": runs})
        command = [str(prepare(client)), "-m", "tests.aca_clients.many_identifiers", client]
        done = subprocess.run(command, input=given, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return list(json.loads(done.stdout))

    def run(pair: tuple[str, str]) -> str:
        body = {"code": pair[1], "executionType": "Synchronous", "codeInputType": "Inline"}
        url = f"{endpoint}/executions?api-version=2025-10-02-preview&identifier={pair[0]}"
        command = ["curl", "-sS", "--fail", "-H", "@-", "-H", "Content-Type: application/json", "-d", json.dumps(body)]
        header = f"Authorization: Bearer {pool.info.token}"
        done = subprocess.run([*command, url], input=header, stdout=subprocess.PIPE, text=True, check=True)
        return str(json.loads(done.stdout)["result"]["stdout"])

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(run, runs))


@pytest.mark.parametrize("client", ["curl", *OTHERS])
def test_identifiers_have_one_session_each_also_after_a_restart_of_the_pool(
    pool: PoolHost, http: Any, client: str
) -> None:
    names = [f"agent-{number:03}" for number in range(200)]
    # Each twice at once: the second must not make another session.
    run_all(client, pool, [(name, f"mine = globals().get('mine', []) + [{name!r}]") for name in sorted(names * 2)])
    wait_until(lambda: pool.figures()["sessions"] == 200, 30)  # the servers are asked every other second
    pool.process.kill()
    pool.process.wait()
    pool.start()
    found = run_all(client, pool, [(name, "print(*mine)") for name in names])
    crossed = [name for name, text in zip(names, found, strict=True) if text.strip() != f"{name} {name}"]
    print(f"\n{client}: {len(names)} identifiers from {THREADS} threads: {len(crossed)} crossed")
    assert crossed == []
    wait_until(lambda: pool.figures()["sessions"] == 200, 30)
