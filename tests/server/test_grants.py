"""Grants of kernels: who can do what with whose kernel, cell by cell, and how fast the right ends; on both hosts."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.server.test_openapi import check
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.change_feeds import Watcher
from tests.support.full import scaled
from tests.support.hosts import Host, running_host

pytestmark = pytest.mark.every_place

POLICIES = {
    "boxed": {"isolation": "sandbox"},
    "small": {"max_memory_bytes": 3 * 1024**3},
    "other": {"kernelspecs": ["another"]},
    "asks": {"approval": {"when": ["shell"], "timeout_seconds": 60}},
}
AGENT = ALL_SCOPES - {"kernels:attach", "tokens:create"}
MOST_SECONDS = 1.0
COUNTS = "import time\nfor i in range(100_000):\n    print(i, flush=True)\n    time.sleep(0.01)"
# It catches every interrupt until the person ends it.
STUBBORN = """\
import time
go_on = True
while go_on:
    try:
        while go_on:
            print('on', flush=True)
            time.sleep(0.02)
    except KeyboardInterrupt:
        pass
"""


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that lets scoped tokens use no kernel without isolation."""
    options = [f"--ExecEngine.policies={json.dumps(POLICIES)}", "--ExecEngine.default_isolation=none"]
    with running_host(request.param, tmp_path_factory.mktemp("grants"), *options) as host:
        yield host


@pytest.fixture(scope="module")
def owner(host: Host) -> Bearer:
    return owner_of(host)


@pytest.fixture
def notebook(host: Host) -> Iterator[Any]:
    """A person's kernel, with a client of Jupyter's own API."""
    with ExecClient(host.owner) as client, client.standard_session() as session:
        yield session


def grant(owner: Bearer, token: Bearer, kernel_id: str, **request: Any) -> str:
    """Grant a kernel to a token; return the grant's id."""
    created = owner.call("POST", "/grants", json={"token_id": token.id, "kernel_id": kernel_id, **request})
    assert created.status_code == 201, created.text
    check(created.json(), "KernelGrant")
    return str(created.json()["id"])


def attach(by: Bearer, kernel_id: str) -> requests.Response:
    return by.call("POST", "/sessions", json={"kernel_id": kernel_id})


def outcome(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, "" if answer.ok else answer.json()["code"]


def wait_until(is_reached: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait for a state of the server; return how long it took."""
    began = time.monotonic()
    while not is_reached():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


@dataclass
class Matrix:
    """Callers and kernels by name; `granted` and its child have the grant of the kernel `shared`."""

    callers: dict[str, Bearer]
    kernels: dict[str, str]
    grant_id: str


@pytest.fixture
def matrix(host: Host, owner: Bearer, notebook: Any) -> Iterator[Matrix]:
    with ExecClient(host.owner) as client, client.standard_session() as secret, client.session() as session:
        granted = mint(host, name="granted")
        callers = {
            "owner": owner,
            "granted": granted,
            "agent": mint(host, AGENT, name="agent with the usual scopes"),
            "boxed": mint(host, AGENT, "boxed", name="boxed"),
            "child": mint(granted, name="child"),
            "other": mint(host, name="other"),
            "other agent": mint(host, AGENT, name="other agent"),
        }
        kernels = {
            "shared": notebook.id,
            "secret": secret.id,
            "session's": str(session.record.kernel_id),
            "missing": "00000000-0000-0000-0000-000000000000",
        }
        for name in ("agent", "boxed"):
            grant(owner, callers[name], notebook.id)
        yield Matrix(callers, kernels, grant(owner, granted, notebook.id))


# A token that was granted nothing gets the same for every kernel, whether it exists or not.
REFUSED = {"scope": (403, "missing_scope"), "policy": (403, "policy_denied")}


def expected(caller: str, kernel: str) -> tuple[int, str]:
    if caller == "owner":
        return {"session's": (409, "conflict"), "missing": (404, "kernel_not_found")}.get(kernel, (201, ""))
    if kernel == "shared" and caller in ("granted", "agent", "boxed"):
        return (201, "")
    return REFUSED["scope" if caller in ("agent", "boxed", "other agent") else "policy"]


def test_a_grant_opens_one_kernel_to_one_token_and_nothing_else(host: Host, owner: Bearer, matrix: Matrix) -> None:
    wrong: list[object] = []
    for (caller, bearer), (kernel, kernel_id) in itertools.product(matrix.callers.items(), matrix.kernels.items()):
        answer = attach(bearer, kernel_id)
        if outcome(answer) != expected(caller, kernel):
            wrong.append((caller, kernel, answer.status_code, answer.text))
        if answer.status_code == 201:
            session = answer.json()
            done = bearer.run(session["id"], "print(6 * 7)")
            if done.json().get("stdout") != "42\n" or (session["grant_id"] is None) is not (caller == "owner"):
                wrong.append((caller, kernel, done.text, session))
            for name, another in matrix.callers.items():  # nobody else has the session
                if name not in ("owner", caller):
                    told = outcome(another.run(session["id"], "1"))
                    if told != (404, "session_not_found"):
                        wrong.append((caller, kernel, name, told))
            bearer.call("DELETE", f"/sessions/{session['id']}")
    assert wrong == []


def test_a_token_sees_its_own_grants_alone_and_can_make_or_end_none(matrix: Matrix) -> None:
    own = {"owner": 3, "granted": 1, "agent": 1, "boxed": 1, "child": 0, "other": 0, "other agent": 0}
    for name, bearer in matrix.callers.items():
        kernels = [each["kernel_id"] for each in bearer.call("GET", "/grants").json()["grants"]]
        assert kernels.count(matrix.kernels["shared"]) == own[name], name
        if name != "owner":
            assert set(kernels) <= {matrix.kernels["shared"]}
            for kernel_id in matrix.kernels.values():
                request = {"token_id": bearer.id, "kernel_id": kernel_id}
                assert outcome(bearer.call("POST", "/grants", json=request)) == (403, "owner_only")
            for grant_id in (matrix.grant_id, "grt_nothing"):
                assert outcome(bearer.call("DELETE", f"/grants/{grant_id}")) == (403, "owner_only")


def test_the_tokens_other_scopes_and_limits_still_hold(host: Host, owner: Bearer, notebook: Any) -> None:
    reader = mint(host, ["sessions:read"])
    grant(owner, reader, notebook.id)
    assert outcome(attach(reader, notebook.id)) == (403, "missing_scope")
    starter = mint(host, ["sessions:create"])
    grant(owner, starter, notebook.id)
    assert outcome(starter.run(attach(starter, notebook.id).json()["id"], "1")) == (403, "missing_scope")
    few = mint(host, AGENT, max_sessions=1)
    grant(owner, few, notebook.id)
    assert attach(few, notebook.id).status_code == 201
    assert outcome(attach(few, notebook.id)) == (429, "policy_limit_reached")
    asks = mint(host, AGENT, "asks")
    grant(owner, asks, notebook.id)
    path = f"/sessions/{attach(asks, notebook.id).json()['id']}/executions"
    waits = asks.call("POST", path, json={"code": "!ls"}, headers={"Prefer": "respond-async"})
    assert waits.json()["state"] == "awaiting_approval"
    isolated = mint(host, AGENT)
    grant(owner, isolated, notebook.id)
    request = {"kernel_id": notebook.id, "isolation": "landlock"}
    assert outcome(isolated.call("POST", "/sessions", json=request)) == (403, "isolation_required")


def test_what_cannot_be_granted_is_refused(host: Host, owner: Bearer, notebook: Any) -> None:
    parent = mint(host)
    ended = mint(host)
    owner.call("DELETE", f"/tokens/{ended.id}")
    cases = {
        mint(parent).id: (400, "invalid_request"),
        mint(host, policy="small").id: (403, "isolation_required"),
        mint(host, policy="other").id: (403, "policy_denied"),
        ended.id: (401, "token_revoked"),
        "nothing1": (404, "token_not_found"),
    }
    for token_id, code in cases.items():
        request = {"token_id": token_id, "kernel_id": notebook.id}
        assert outcome(owner.call("POST", "/grants", json=request)) == code
    for request in ({}, {"token_id": parent.id}, {"token_id": parent.id, "kernel_id": notebook.id, "more": 1}):
        assert outcome(owner.call("POST", "/grants", json=request)) == (400, "invalid_request")


@pytest.mark.parametrize("code", [COUNTS, STUBBORN], ids=["interruptible", "stubborn"])
def test_revocation_ends_the_tokens_work_within_a_second_and_leaves_the_kernel(
    host: Host, owner: Bearer, notebook: Any, code: str
) -> None:
    notebook.run("x = 1")
    bearer, bystander = mint(host, AGENT), mint(host, AGENT)
    grant(owner, bystander, notebook.id)
    spared = attach(bystander, notebook.id).json()["id"]
    for _ in range(scaled(20, per_commit=1)):
        grant_id = grant(owner, bearer, notebook.id)
        session = attach(bearer, notebook.id).json()["id"]
        path = f"/sessions/{session}/executions"
        begun = [
            bearer.call("POST", path, json={"code": each}, headers={"Prefer": "respond-async"}).json()["id"]
            for each in (code, "never = True")
        ]
        wait_until(lambda begun=begun: _log_size(bearer, begun[0]) > 3)  # type: ignore[misc]
        assert owner.call("DELETE", f"/grants/{grant_id}").status_code == 204
        assert outcome(bearer.run(session, "1")) == (410, "session_ended")
        assert outcome(attach(bearer, notebook.id)) == (403, "missing_scope")
        took = wait_until(lambda session=session: _state(bearer, session) == "ended")  # type: ignore[misc]
        assert took <= MOST_SECONDS
        states = {bearer.call("GET", f"/executions/{execution}").json()["state"] for execution in begun}
        assert states == {"cancelled"}
        if code == STUBBORN:
            _end_stubborn(host, notebook)
        assert notebook.run("print(x, 'never' in globals())").stdout == "1 False\n"
    assert bystander.run(spared, "print(x)").json()["stdout"] == "1\n"


def _log_size(bearer: Bearer, execution_id: str) -> int:
    headers = {"Accept": "application/x-ndjson"}
    with bearer.call("GET", f"/executions/{execution_id}/events", headers=headers, stream=True) as events:
        return sum(1 for _ in itertools.islice(events.iter_lines(), 5))


def _state(bearer: Bearer, session_id: str) -> str:
    return str(bearer.call("GET", f"/sessions/{session_id}").json()["state"])


def _end_stubborn(host: Host, notebook: Any) -> None:
    """Restart the kernel as its person would."""
    url = f"{host.info.url}api/kernels/{notebook.id}/restart"
    assert requests.post(url, headers=host.owner.auth_headers, timeout=60).ok
    notebook.run("x = 1")


@pytest.mark.parametrize("how", ["token", "time", "kernel"])
def test_a_grant_ends_with_its_token_its_time_and_its_kernel(host: Host, owner: Bearer, how: str) -> None:
    with ExecClient(host.owner) as client, client.standard_session() as notebook:
        bearer = mint(host, AGENT)
        grant_id = grant(owner, bearer, notebook.id, **({"expires_in_seconds": 1.5} if how == "time" else {}))
        session = attach(bearer, notebook.id).json()["id"]
        with Watcher(owner) as watcher:
            watcher.wait(lambda event: event.kind == "reset")
            if how == "token":
                owner.call("DELETE", f"/tokens/{bearer.id}")
            elif how == "kernel":
                notebook.close()
            told = watcher.wait(lambda event: event.has("grant", grant_id))
        reason = {"token": "was revoked", "time": "its time is over", "kernel": "the kernel was shut down"}[how]
        assert reason in told.data["grant"]["ended_reason"]
        wait_until(lambda: _state(owner, session) == "ended")
    assert grant_id not in [each["id"] for each in owner.call("GET", "/grants").json()["grants"]]


def test_grants_are_audited_and_void_after_a_restart(tmp_path: Path) -> None:
    store = f"--ExecStore.path={tmp_path / 'store'}"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with running_host("server", tmp_path / "one", store) as host:
        kernels = f"{host.info.url}api/kernels"
        kernel_id = requests.post(kernels, json={}, headers=host.owner.auth_headers, timeout=60).json()["id"]
        bearer = mint(host, AGENT)
        revoked = grant(owner_of(host), bearer, kernel_id)
        owner_of(host).call("DELETE", f"/grants/{revoked}")
        left = grant(owner_of(host), bearer, kernel_id)
        host.process.kill()
        host.process.wait()
    with running_host("server", tmp_path / "two", store) as host:
        assert owner_of(host).call("GET", "/grants").json() == {"grants": []}
        listed = owner_of(host).call("GET", "/grants?ended=true").json()["grants"]
        assert {each["id"]: each["ended_reason"] for each in listed} == {
            revoked: "it was revoked",
            left: "the server was restarted",
        }
        with closing(AuditReader(tmp_path / "store")) as trail:
            records = [line.record() for line in trail.newest(1000)]
    found = {(each.action, each.subject) for each in records if each.kind.value == "grant"}
    assert found == {("created", revoked), ("revoked", revoked), ("created", left), ("ended", left)}
