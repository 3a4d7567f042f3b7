"""F17: the server's wall clock jumps by an hour (libfaketime), and no time limit cares; see `test_faults`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import ExecutionState
from tests.support.bearers import mint, owner_of
from tests.support.full import IS_FULL
from tests.support.hosts import Host, running_host
from tests.support.outside_parts import FAKETIME, require_part

LIMIT_SECONDS = 3.0
Jump = Callable[[float], None]


@pytest.fixture(scope="module")
def faked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Jump]]:
    require_part("libfaketime")
    home = tmp_path_factory.mktemp("clock")
    offset = home / "offset"

    def jump(seconds: float) -> None:
        offset.write_text(f"{seconds:+.0f}")

    jump(0)
    env = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    idle = ("--ExecEngine.session_idle_timeout_seconds=60",)
    with running_host("server", home, *idle, env=env) as host:
        yield host, jump


@pytest.mark.parametrize("seconds", [3600.0, -3600.0] if IS_FULL else [-3600.0])
def test_f17_a_clock_that_jumps_changes_no_time_limit(faked: tuple[Host, Jump], seconds: float) -> None:
    host, jump = faked
    jump(0)
    with ExecClient(host.info) as client, client.session() as session:
        before = session.run("'kept'; kept = 1")
        limited = session.submit("import time; time.sleep(60)", timeout_seconds=LIMIT_SECONDS)
        began = time.monotonic()
        jump(seconds)
        record = limited.result(30)
        assert record.state is ExecutionState.TIMEOUT
        assert abs(time.monotonic() - began - LIMIT_SECONDS) <= 1.0
        unlimited = session.run("time.sleep(1); print(kept)", timeout_seconds=30)  # neither it nor its session ended
        assert unlimited.stdout == "1\n"
    first, last = (datetime.fromisoformat(e.created_at.replace("Z", "+00:00")) for e in (before, unlimited))
    assert abs((last - first).total_seconds() - seconds) < 60, "the server's clock did not jump"


def test_f17_a_token_that_was_seen_expired_stays_so(faked: tuple[Host, Jump]) -> None:
    host, jump = faked
    jump(0)
    seen, unseen = (mint(host, ["sessions:read"], expires_in_seconds=1800) for _ in range(2))
    assert seen.call("GET", "/sessions").status_code == 200
    jump(3600)
    answer = seen.call("GET", "/sessions")
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")
    jump(0)
    assert unseen.call("GET", "/sessions").status_code == 200  # the clock did jump back, and this one is good
    for _ in range(3):
        answer = seen.call("GET", "/sessions")
        assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")
    assert owner_of(host).call("GET", f"/tokens/{seen.id}").json()["expired"] is True
    assert seen.id not in [token["id"] for token in owner_of(host).call("GET", "/tokens").json()["tokens"]]


def test_f17_a_secret_that_was_replaced_at_once_does_not_come_back(faked: tuple[Host, Jump]) -> None:
    host, jump = faked
    jump(0)
    old = mint(host, ["sessions:read"], expires_in_seconds=7200)
    assert owner_of(host).call("POST", f"/tokens/{old.id}/rotate", json={}).status_code == 200
    assert old.call("GET", "/sessions").status_code == 401
    jump(-3600)
    assert old.call("GET", "/sessions").status_code == 401
