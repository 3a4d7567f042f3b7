"""Figures of a pool of four servers: placement of bursts, refusals of a full pool, identifiers. Runs in full only."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from jupyter_exec_ext.protocol.record_ids import parse_id
from tests.support.full import only_in_full
from tests.support.pools import PoolHost, running_pool
from tests.support.waiting import wait_until

SERVERS, PER_SERVER = 4, 55
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.needs("sandbox"),
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


def test_identifiers_have_one_session_each_also_after_a_restart_of_the_pool(pool: PoolHost, http: Any) -> None:
    url = f"{pool.info.url}exec/aca/executions"

    def run(identifier: str, code: str) -> str:
        query = {"api-version": "2025-10-02-preview", "identifier": identifier}
        body = {"code": code, "executionType": "Synchronous", "codeInputType": "Inline"}
        answer = http.post(url, params=query, json=body, timeout=300)
        assert answer.ok, answer.text
        return str(answer.json())

    names = [f"agent-{number:03}" for number in range(200)]
    with ThreadPoolExecutor(20) as threads:
        # Each twice at once: the second must not make another session.
        list(threads.map(lambda name: run(name, f"mine = globals().get('mine', []) + [{name!r}]"), sorted(names * 2)))
        wait_until(lambda: pool.figures()["sessions"] == 200, 30)  # the servers are asked every other second
        pool.process.kill()
        pool.process.wait()
        pool.start()
        found = list(threads.map(lambda name: run(name, "print(*mine)"), names))
    crossed = [name for name, text in zip(names, found, strict=True) if f"{name} {name}" not in text]
    print(f"\n{len(names)} identifiers from 20 threads: {len(crossed)} crossed")
    assert crossed == []
    wait_until(lambda: pool.figures()["sessions"] == 200, 30)
