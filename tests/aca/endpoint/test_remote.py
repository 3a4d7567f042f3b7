"""Kernels that are sessions of a pool, by policy: isolated as `remote`, audited, counted and approved as any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.models import ExecutionState
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.support.aca_pool import TOKEN_VARIABLE, add_kernelspec_of_sessions, credential_of
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

KERNEL = "azure"
RUN_SECONDS = 3
POLICIES = {
    "boxed": {"base": "trusted", "isolation": "sandbox"},
    "far": {"base": "trusted", "isolation": "remote"},
    "asks": {"base": "trusted", "approval": {"when": ["shell"], "timeout_seconds": 60}},
}


@pytest.fixture(scope="module")
def pool(hosts: Any) -> Host:
    started: Host = hosts["pool"]
    return started


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, pool: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with plain kernels and with sessions of the pool, which lets no token use the plain ones unprotected."""
    home = tmp_path_factory.mktemp("remote")
    env = add_kernelspec_of_sessions(home, pool, name=KERNEL, run_seconds=RUN_SECONDS)
    options = [f"--ExecEngine.policies={json.dumps(POLICIES)}", "--ExecEngine.default_isolation=none"]
    with running_host(request.param, home, *options, env=env) as host:
        yield host


def created(by: Bearer, **request: Any) -> dict[str, Any]:
    answer = by.call("POST", "/sessions", json=request)
    assert answer.status_code == 201, answer.text
    session: dict[str, Any] = answer.json()
    return session


def level_of(by: Bearer) -> dict[str, str]:
    """Return how isolated the kernels are that somebody may use."""
    return {spec["name"]: spec["isolation"] for spec in by.call("GET", "/").json()["kernelspecs"]}


def test_sessions_of_a_pool_are_remote_and_the_code_runs_there(host: Host, pool: Host) -> None:
    assert level_of(owner_of(host))[KERNEL] == "remote"
    code = "import os, psutil; print(os.getpid(), sorted(p.pid for p in psutil.Process().parents()))"
    with ExecClient(host.info) as client, client.session(KERNEL) as session:
        result = session.run(code)
        assert (session.record.isolation, result.isolation) == ("remote", "remote")
    parents = result.stdout.partition("[")[2]
    assert str(pool.pid) in parents.strip("]\n").split(", ")


@pytest.mark.parametrize("policy", ["trusted", "boxed", "far"])
def test_a_policy_with_less_or_as_much_isolation_is_content(host: Host, policy: str) -> None:
    bearer = mint(host, policy=policy)
    session = created(bearer, kernel_name=KERNEL)
    assert session["isolation"] == "remote"
    assert bearer.run(session["id"], "print(6 * 7)").json()["stdout"] == "42\n"
    assert bearer.call("DELETE", f"/sessions/{session['id']}").status_code == 204


def test_a_policy_that_requires_remote_kernels_refuses_those_of_this_machine(host: Host) -> None:
    bearer = mint(host, policy="far")
    assert level_of(bearer) == {KERNEL: "remote"}
    answer = bearer.call("POST", "/sessions", json={"kernel_name": "python3"})
    assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required")
    assert answer.json()["limit"] == {"policy": "far", "name": "isolation", "value": "remote"}


def test_a_remote_kernel_can_be_asked_for_and_a_local_one_is_not_taken_for_it(host: Host) -> None:
    owner = owner_of(host)
    assert created(owner, kernel_name=KERNEL, isolation="remote")["isolation"] == "remote"
    assert created(owner, kernel_name=KERNEL, isolation="sandbox")["isolation"] == "remote"
    answer = owner.call("POST", "/sessions", json={"kernel_name": "python3", "isolation": "remote"})
    assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required")


def test_the_trail_tells_what_ran_where_and_has_no_token_of_the_pool(host: Host, pool: Host) -> None:
    bearer = mint(host, policy="far")
    session = created(bearer, kernel_name=KERNEL)["id"]
    execution = bearer.run(session, "print('audited')").json()["id"]
    bearer.call("DELETE", f"/sessions/{session}")
    with closing(AuditReader(host.home / "jupyter_data_dir" / "jupyter_exec_ext")) as trail:
        records = [line.record() for line in trail.newest(1000)]
    found = {(record.action, record.subject): record for record in records}
    assert found["created", session].data["isolation"] == "remote"
    assert found["accepted", execution].data["isolation"] == "remote"
    assert {record.action for record in records if record.subject == execution} >= {"accepted", "ended"}
    assert credential_of(pool).token not in str(records) + host.log_text()


def test_code_in_a_remote_kernel_sees_nothing_of_the_token_that_reached_it(host: Host, pool: Host) -> None:
    code = f"import os; print({TOKEN_VARIABLE!r} in os.environ, dict(os.environ), list(globals().values()))"
    with ExecClient(host.info) as client, client.session(KERNEL) as session:
        seen = session.run(code).stdout
    assert seen.startswith("False")
    assert credential_of(pool).token not in seen


def test_a_quota_on_executions_counts_those_in_remote_kernels(host: Host) -> None:
    bearer = mint(host, policy="far", max_executions_per_minute=2)
    session = created(bearer, kernel_name=KERNEL)["id"]
    assert [bearer.run(session, "1").status_code for _ in range(2)] == [200, 200]
    answer = bearer.run(session, "ran = True")
    assert (answer.status_code, answer.json()["limit"]["name"]) == (429, "max_executions_per_minute")
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize(("decision", "state", "stdout"), [("approve", "ok", "approved\n"), ("reject", "rejected", "")])
def test_code_for_a_remote_kernel_waits_for_its_approval(host: Host, decision: str, state: str, stdout: str) -> None:
    bearer = mint(host, policy="asks")
    session = created(bearer, kernel_name=KERNEL)["id"]
    answer = bearer.call(
        "POST",
        f"/sessions/{session}/executions",
        json={"code": "!true\nprint('approved')"},
        headers={"Prefer": "respond-async"},
    )
    execution = answer.json()
    assert execution["state"] == "awaiting_approval"
    assert owner_of(host).call("POST", f"/approvals/{execution['id']}", json={"decision": decision}).ok
    done = bearer.call("GET", f"/executions/{execution['id']}", headers={"Prefer": "wait=30"}).json()
    assert (done["state"], done["stdout"]) == (state, stdout)


def test_the_services_time_limit_keeps_what_was_printed_and_the_state(host: Host) -> None:
    with ExecClient(host.info) as client, client.session(KERNEL) as session:
        session.run("kept = 1")
        result = session.run("import time; print('printed'); time.sleep(60)")
        assert result.state is not ExecutionState.OK
        assert result.stdout == "printed\n"
        assert session.run("print(kept)").stdout == "1\n"
