"""Branches and restored sessions of a token: its limits hold in them, and its revocation reaches all of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import requests

from tests.support.bearers import Bearer, mint, owner_of
from tests.support.change_feeds import Watcher
from tests.support.hosts import Host
from tests.support.session_processes import ends, marked

ENDLESS = "while True: pass"
NOT_WAITED_FOR = {"Prefer": "respond-async"}
RLIMITS = "from resource import *; print(getrlimit(RLIMIT_AS)[0], getrlimit(RLIMIT_CPU)[0])"


@pytest.fixture
def host(hosts: dict[str, Host]) -> Host:
    return hosts["server"]


def post(bearer: Bearer, path: str, **body: Any) -> Any:
    answer = bearer.call("POST", path, json=body)
    assert answer.ok, answer.text
    return answer.json()


def branch(bearer: Bearer, session_id: str, count: int) -> list[str]:
    """Make branches; return their ids."""
    made = post(bearer, f"/sessions/{session_id}/branches", count=count)
    return [session["id"] for session in made["sessions"]]


def submit(bearer: Bearer, session_id: str, code: str) -> str:
    """Send code without waiting for it; return the id of the execution."""
    path = f"/sessions/{session_id}/executions"
    return str(bearer.call("POST", path, json={"code": code}, headers=NOT_WAITED_FOR).json()["id"])


@pytest.mark.parametrize("revoked", ["itself", "its parent"])
def test_revocation_ends_code_in_all_branches_within_a_second_and_all_processes(host: Host, revoked: str) -> None:
    parent = mint(host, policy="trusted")
    agent, owner = mint(parent, policy="trusted"), owner_of(host)
    session_id = agent.session()
    agent.run(session_id, "x = 1")
    post(agent, f"/sessions/{session_id}/checkpoints")
    branches = branch(agent, session_id, 2)
    sessions = [session_id, *branches, *branch(agent, branches[0], 1)]  # a branch of a branch, too
    post(agent, f"/sessions/{branches[1]}/checkpoints")
    pids = [pid for each in sessions for pid in marked(each)]
    assert len(pids) >= 4  # and the processes of checkpoints
    with Watcher(owner) as watcher:
        watcher.wait(lambda event: event.kind == "reset")
        executions = [submit(agent, each, ENDLESS) for each in sessions]
        for execution_id in executions:
            watcher.wait_for("execution", execution_id, "running")
        token = agent if revoked == "itself" else parent
        assert owner.call("DELETE", f"/tokens/{token.id}").status_code == 204
        revoked_at = time.monotonic()
        took = [watcher.wait_for("execution", each, "token_revoked").at - revoked_at for each in executions]
        assert max(took) < 1.0
        for each in sessions:
            reason = watcher.wait_for("session", each, "ended").data["session"]["ended_reason"]
            assert "revoked" in reason
    assert all(ends(pid, within_seconds=5) for pid in pids)
    assert not any(marked(each) for each in sessions)
    owner.call("DELETE", f"/tokens/{parent.id}")


def test_no_branch_is_left_of_a_token_that_is_revoked_while_they_are_made(host: Host) -> None:
    agent, owner = mint(host, policy="trusted"), owner_of(host)
    session_id = agent.session()
    agent.run(session_id, "x = 1")
    with Watcher(owner) as watcher, ThreadPoolExecutor(1) as pool:
        watcher.wait(lambda event: event.kind == "reset")
        asked = pool.submit(agent.call, "POST", f"/sessions/{session_id}/branches", json={"count": 8})
        watcher.wait(lambda event: event.kind == "session" and event.data["session"]["branch_of"] == session_id)
        assert owner.call("DELETE", f"/tokens/{agent.id}").status_code == 204
        with suppress(requests.RequestException):  # its connection is cut, too
            asked.result(60)
        for each in watcher.ids_of("session"):
            watcher.wait_for("session", each, "ended")
        seen = watcher.ids_of("session")
    live = owner.call("GET", "/sessions").json()["sessions"]
    assert not [session for session in live if session["branch_of"] == session_id or session["id"] == session_id]
    deadline = time.monotonic() + 5
    while any(marked(each) for each in seen):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_limits_on_processes_and_run_time_hold_in_branches_and_after_a_restore(host: Host) -> None:
    limits: dict[str, Any] = {"max_memory_bytes": 4 * 1024**3, "max_cpu_seconds": 77, "max_execution_seconds": 1.0}
    agent = mint(host, policy="trusted", **limits)
    session_id = agent.session()
    agent.run(session_id, "x = 1")
    checkpoint = post(agent, f"/sessions/{session_id}/checkpoints")
    assert post(agent, f"/sessions/{session_id}/restore", checkpoint=checkpoint["id"])["id"] == session_id
    for each in [session_id, *branch(agent, session_id, 2)]:
        assert agent.run(each, RLIMITS).json()["stdout"] == f"{4 * 1024**3} 77\n"
        assert agent.run(each, ENDLESS).json()["state"] == "timeout"
    owner_of(host).call("DELETE", f"/tokens/{agent.id}")


def test_branches_count_in_the_number_of_sessions(host: Host) -> None:
    agent = mint(host, policy="trusted", max_sessions=3)
    session_id = agent.session()
    refused = agent.call("POST", f"/sessions/{session_id}/branches", json={"count": 3})
    assert (refused.status_code, refused.json()["code"]) == (429, "policy_limit_reached")
    branches = branch(agent, session_id, 2)
    assert agent.call("POST", f"/sessions/{branches[0]}/branches").json()["limit"]["name"] == "max_sessions"
    owner_of(host).call("DELETE", f"/tokens/{agent.id}")
