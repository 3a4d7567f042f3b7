"""Users of a full pool who wait for places: each gets its share. Runs in full only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import psutil
import pytest
import requests

from tests.support.full import only_in_full
from tests.support.pools import PoolHost, running_pool
from tests.support.waiting import wait_until

USERS = ("alice", "bob", "grace")
PLACES, SHARE = 12, 4
pytestmark = [
    pytest.mark.needs("configurable-http-proxy"),
    pytest.mark.needs("sandbox"),
    pytest.mark.timeout(300),
    only_in_full,
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHost]:
    settings: dict[str, Any] = {"min_servers": 2, "max_servers": 2, "sessions_per_server": PLACES // 2}
    settings["policies"] = {"custom:exec:run": "many"}
    policy = '--ExecEngine.policies={"many": {"base": "trusted", "isolation": "sandbox"}}'
    with running_pool(tmp_path_factory.mktemp("pool"), settings, [policy]) as pool:
        wait_until(lambda: pool.states()["ready"] == 2, 60)
        yield pool


def test_users_who_wait_get_no_more_than_their_share_and_one(pool: PoolHost) -> None:
    assert pool.hub is not None
    headers = {user: {"Authorization": f"Bearer {pool.hub.token_of(user)}"} for user in USERS}
    url = f"{pool.info.url}exec/v1/sessions"

    def create(user: str) -> str:
        answer = requests.post(url, headers={**headers[user], "Prefer": "wait=120"}, timeout=150)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def end(user: str, session_id: str) -> None:
        assert requests.delete(f"{url}/{session_id}", headers=headers[user], timeout=60).status_code == 204

    # Alice has all places, and asks for as many again before the others ask.
    held = [("alice", create("alice")) for _ in range(PLACES)]
    asked: dict[Future[str], str] = {}
    with ThreadPoolExecutor(len(USERS) * PLACES) as threads:
        for number, user in enumerate(USERS, 1):
            asked |= {threads.submit(create, user): user for _ in range(PLACES)}
            wait_until(lambda asking=number: len(pool_connections(pool)) >= asking * PLACES)  # type: ignore[misc]
        got: Counter[str] = Counter()
        while asked:
            end(*held.pop(0))
            (done, *_), _ = wait(asked, 60, return_when=FIRST_COMPLETED)
            user = asked.pop(done)
            got[user] += 1
            held.append((user, done.result()))
            if sum(got.values()) >= PLACES:  # none of Alice's first ones is left
                assert max(Counter(user for user, _ in held).values()) <= SHARE + 1
            assert max(got.values()) <= sum(got.values()) / len(USERS) + 1
    print(f"\nplaces by user: {dict(got)}")
    assert got == dict.fromkeys(USERS, PLACES)
    for user, session_id in held:
        end(user, session_id)


def pool_connections(pool: PoolHost) -> list[object]:
    """Return the connections of clients to the pool."""
    connections = psutil.Process(pool.process.pid).net_connections("tcp")
    return [one for one in connections if one.laddr.port == pool.info.port and one.status == psutil.CONN_ESTABLISHED]
