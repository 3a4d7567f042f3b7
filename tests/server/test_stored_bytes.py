"""A token's share of the store, on both hosts: it keeps to it, and others' records stay."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

STORE_BYTES = 16_000_000
SHARE = 1_000_000
NOT_WAITED_FOR = {"Prefer": "respond-async"}
FLOOD = """
import time
for _ in range(40):
    print('x' * 100_000, flush=True)
    time.sleep(0.01)
open('printed', 'w').close()
time.sleep(60)
"""


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("stored")
    with running_host(request.param, home, UNPROTECTED, f"--ExecStore.max_bytes={STORE_BYTES}") as started:
        yield started


def names_of(bearer: Bearer, session: str) -> list[str]:
    answer = bearer.call("GET", f"/sessions/{session}/executions?limit=1000")
    return [execution["id"] for execution in answer.json()["executions"]]


def test_token_beyond_its_share_loses_its_own_oldest_records(host: Host) -> None:
    hostile, other = hostile_and_other(host)
    theirs = other.session()
    kept = [other.run(theirs, "print('y' * 100_000)").json()["id"] for _ in range(5)]
    owners = owner_of(host).session()
    kept_of_owner = [owner_of(host).run(owners, "print('z')").json()["id"]]
    session = hostile.session()
    ran = [hostile.run(session, "print('x' * 200_000)").json() for _ in range(12)]
    assert {execution["state"] for execution in ran} == {"ok"}
    left = names_of(hostile, session)
    assert left == [execution["id"] for execution in ran][-len(left) :]
    assert 1 <= len(left) <= 5
    assert names_of(other, theirs) == kept
    assert names_of(owner_of(host), owners) == kept_of_owner
    assert other.call("GET", f"/executions/{kept[0]}").json()["stdout"] == "y" * 100_000 + "\n"
    assert hostile.call("GET", f"/executions/{ran[0]['id']}").status_code == 404


def hostile_and_other(host: Host) -> tuple[Bearer, Bearer]:
    return mint(host, policy="trusted", max_stored_bytes=SHARE), mint(host, policy="trusted")


def test_running_output_beyond_the_share_is_cut_and_new_executions_are_refused(host: Host) -> None:
    hostile, other = hostile_and_other(host)
    child = mint(hostile, policy="trusted")
    session, childs = hostile.session(), child.session()
    flood = hostile.call("POST", f"/sessions/{session}/executions", json={"code": FLOOD}, headers=NOT_WAITED_FOR).json()
    deadline = time.monotonic() + 30
    # A child's executions are within the same share. It may be full just after one was admitted, whose answer is 507.
    while (answer := child.run(childs, "1")).status_code in (200, 507):
        assert time.monotonic() < deadline
    assert (answer.status_code, answer.json()["code"]) == (429, "policy_limit_reached")
    assert answer.json()["limit"] == {"policy": "trusted", "name": "max_stored_bytes", "value": SHARE}
    assert "cancel" in answer.json()["message"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert other.run(other.session(), "print(1)").json()["stdout"] == "1\n"
    while hostile.call("GET", f"/sessions/{session}/files/printed").status_code == 404:
        assert time.monotonic() < deadline
    cancelled = hostile.call("POST", f"/executions/{flood['id']}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["truncated"]["stdout_bytes"] > 0
    assert cancelled["stdout"].startswith("x" * 100_000)
    assert child.run(childs, "print(2)").json()["stdout"] == "2\n"


def test_token_below_cannot_have_more_than_the_one_above(host: Host) -> None:
    hostile, _ = hostile_and_other(host)
    request = {"name": "x", "scopes": ["executions:read"], "limits": {"max_stored_bytes": SHARE + 1}}
    mint(hostile, ["executions:read"], max_stored_bytes=SHARE)
    broader = hostile.call("POST", "/tokens", json=request)
    # The policy allows it; what is enforced is the lesser of the two.
    assert broader.status_code == 201
    for wrong in (0, -1, "x", 1.5, True):
        refused = hostile.call("POST", "/tokens", json={**request, "limits": {"max_stored_bytes": wrong}})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), wrong


def test_without_a_share_of_its_own_a_token_has_a_tenth(host: Host) -> None:
    token = mint(host, policy="trusted")
    session = token.session()
    ran = [token.run(session, "print('x' * 300_000)").json()["id"] for _ in range(10)]
    left = names_of(token, session)
    assert left == ran[-len(left) :]
    assert STORE_BYTES // 20 <= len(left) * 300_000 <= STORE_BYTES // 10
