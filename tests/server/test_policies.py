"""Every limit of a policy, reached on a real server: what is just within it passes, what is just beyond it does not.

Where requests count, fifty come at once and none too many gets through.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec, with_provisioner

AT_ONCE = 50
NOT_WAITED_FOR = {"Prefer": "respond-async"}
SLEEP = "import time; time.sleep(60)"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("policies")
    env = with_provisioner(home, "provisioner-of-tests", "bare-provisioner-of-tests")
    add_kernelspec(home, "boxed", "provisioner-of-tests")
    add_kernelspec(home, "pybare", "bare-provisioner-of-tests")
    options = [
        UNPROTECTED,
        "--ExecEngine.isolation_levels={'provisioner-of-tests': 'sandbox'}",
        "--ExecEngine.policies={'boxed': {'base': 'trusted', 'isolation': 'sandbox', 'kernelspecs': ['boxed', 'py*']}}",
    ]
    with running_host("server", home, *options, env=env) as started:
        yield started


@pytest.fixture
def token(host: Host, request: pytest.FixtureRequest) -> Iterator[Callable[..., Bearer]]:
    """Mint tokens without other limits than those named; whatever they run ends with the test."""
    minted = []

    def make(**limits: Any) -> Bearer:
        minted.append(mint(host, policy="trusted", name=request.node.name[:100], **limits))
        return minted[-1]

    yield make
    for bearer in minted:
        owner_of(host).call("DELETE", f"/tokens/{bearer.id}")


def refused(answer: requests.Response, status: int, code: str, name: str, value: Any, policy: str = "trusted") -> None:
    """Hold a refusal against what every refusal must say."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["limit"] == {"policy": policy, "name": name, "value": value}
    assert policy in answer.json()["message"]
    if "Retry-After" in answer.headers:
        assert 1 <= int(answer.headers["Retry-After"]) <= 61


def at_once(calls: Sequence[Callable[[], requests.Response]]) -> list[requests.Response]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(120) for future in [pool.submit(call) for call in calls]]


def statuses(answers: Sequence[requests.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def submit(bearer: Bearer, session: str, code: str) -> requests.Response:
    return bearer.call("POST", f"/sessions/{session}/executions", json={"code": code}, headers=NOT_WAITED_FOR)


def cancel_all(bearer: Bearer, session: str) -> None:
    for execution in reversed(bearer.call("GET", f"/sessions/{session}/executions").json()["executions"]):
        if execution["state"] in ("queued", "running", "awaiting_approval"):
            bearer.call("POST", f"/executions/{execution['id']}/cancel")


def finished(bearer: Bearer, execution_id: str) -> dict[str, Any]:
    answer = bearer.call("GET", f"/executions/{execution_id}", headers={"Prefer": "wait=30"})
    record: dict[str, Any] = answer.json()
    return record


def ended_session(bearer: Bearer, session: str, within_seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + within_seconds
    while True:
        record: dict[str, Any] = bearer.call("GET", f"/sessions/{session}").json()
        if record["state"] == "ended":
            return record
        assert time.monotonic() < deadline, record
        time.sleep(0.05)


# --- which kernels ---


def test_kernelspecs(host: Host, token: Callable[..., Bearer]) -> None:
    agent = token(kernelspecs=["py*"])
    assert [spec["name"] for spec in agent.call("GET", "/").json()["kernelspecs"]] == ["pybare", "python3"]
    refused(
        agent.call("POST", "/sessions", json={"kernel_name": "boxed"}), 403, "policy_denied", "kernelspecs", ["py*"]
    )
    agent.session(kernel_name="python3")
    none = mint(agent, kernelspecs=[])
    refused(none.call("POST", "/sessions", json={}), 403, "policy_denied", "kernelspecs", [])


@pytest.mark.needs("sandbox")
def test_isolation(host: Host) -> None:
    agent = mint(host, policy="boxed")
    specs = agent.call("GET", "/").json()["kernelspecs"]
    assert {spec["name"]: spec["isolation"] for spec in specs} == {"boxed": "sandbox", "python3": "sandbox"}
    answer = agent.call("POST", "/sessions", json={"kernel_name": "pybare"})
    refused(answer, 403, "isolation_required", "isolation", "sandbox", "boxed")
    session = agent.session(kernel_name="boxed")
    assert agent.call("GET", f"/sessions/{session}").json()["isolation"] == "sandbox"
    remote = mint(agent, isolation="remote")
    answer = remote.call("POST", "/sessions", json={"kernel_name": "boxed"})
    refused(answer, 403, "isolation_required", "isolation", "remote", "boxed")
    assert agent.call("DELETE", f"/sessions/{session}").status_code == 204


def test_without_isolation_a_token_runs_nothing_unless_the_administrator_allows_it(tmp_path: Path) -> None:
    add_kernelspec(tmp_path, "bare", "provisioner-of-tests")
    with running_host("server", tmp_path, env=with_provisioner(tmp_path, "provisioner-of-tests")) as plain:
        agent = mint(plain, policy="trusted")
        answer = agent.call("POST", "/sessions", json={"kernel_name": "bare"})
        assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required")
        assert "allow_unprotected_tokens" in answer.json()["message"]
        assert [spec["name"] for spec in agent.call("GET", "/").json()["kernelspecs"]] == ["python3"]
        names = [spec["name"] for spec in owner_of(plain).call("GET", "/").json()["kernelspecs"]]
        assert names == ["bare", "python3"]


def test_limits_of_a_token_are_short(host: Host) -> None:
    """The record of a token has those of all above it, and is read with each request."""
    env = [f"{'A' * 200}{n}" for n in range(50)]
    request = {"name": "x", "scopes": ["sessions:read"], "limits": {"env": env}}
    refused = owner_of(host).call("POST", "/tokens", json=request)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert "8192 bytes" in refused.json()["message"]
    request["limits"] = {"env": env[:30]}
    assert owner_of(host).call("POST", "/tokens", json=request).status_code == 201


def test_env(host: Host, token: Callable[..., Bearer]) -> None:
    agent = token(env=["MY_*"])
    for env in ({"OTHER": "1"}, {"MY_X": "1", "LD_PRELOAD": "x"}, {"my_x": "1"}):
        refused(agent.call("POST", "/sessions", json={"env": env}), 403, "policy_denied", "env", ["MY_*"])
    session = agent.session(env={"MY_X": "mine"})
    assert agent.run(session, "import os; print(os.environ['MY_X'])").json()["stdout"] == "mine\n"
    path = f"/sessions/{session}/executions"
    other = agent.call("POST", path, json={"code": "1", "env": {"OTHER": "1"}})
    refused(other, 403, "policy_denied", "env", ["MY_*"])
    own = agent.call(
        "POST", path, json={"code": "import os; print(os.environ['MY_X'])", "env": {"MY_X": "for one run"}}
    )
    assert own.json()["stdout"] == "for one run\n"


# Python imports a module to understand the first of them; that one looks for a browser and starts the second.
STARTS = {"PYTHONWARNINGS": "all:0:antigravity.x:0:0"}


def test_no_variable_runs_code_for_a_token_that_may_not(
    host: Host, token: Callable[..., Bearer], tmp_path: Path
) -> None:
    env = {**STARTS, "BROWSER": f'/bin/sh -c "touch {tmp_path}/ran #%s"'}
    asking = token(approval="always")
    refused(asking.call("POST", "/sessions", json={"env": env}), 403, "policy_denied", "env", ["*"])
    without = mint(host, ALL_SCOPES - {"executions:create"}, "trusted").call("POST", "/sessions", json={"env": env})
    assert (without.status_code, without.json()["code"]) == (403, "missing_scope")
    assert not (tmp_path / "ran").exists()
    subprocess.run([sys.executable, "-c", ""], env={**os.environ, **env}, check=True, timeout=60)  # it would have run
    assert (tmp_path / "ran").exists()


# --- how many ---


def test_sessions_and_executions_of_a_token_and_its_children_count_together(
    host: Host, token: Callable[..., Bearer]
) -> None:
    parent = token(max_sessions=2, max_open_executions=5)
    scopes = ALL_SCOPES - {"tokens:create"}
    children = [mint(parent, scopes), mint(parent, scopes)]
    family = [*children, parent]
    created = at_once(
        [lambda n=n: family[n % 3].call("POST", "/sessions", json={}) for n in range(AT_ONCE)]  # type: ignore[misc]
    )
    assert statuses(created) == {201: 2, 429: AT_ONCE - 2}
    for answer in created:
        if answer.status_code == 429:
            refused(answer, 429, "policy_limit_reached", "max_sessions", 2)
    sessions = [answer.json()["id"] for answer in created if answer.status_code == 201]

    submitted = at_once(
        [lambda n=n: submit(parent, sessions[n % 2], SLEEP) for n in range(AT_ONCE)]  # type: ignore[misc]
    )
    assert statuses(submitted) == {202: 5, 429: AT_ONCE - 5}
    for answer in submitted:
        if answer.status_code == 429:
            refused(answer, 429, "policy_limit_reached", "max_open_executions", 5)
            assert answer.headers["Retry-After"] == "1"
    # Each that ends makes room for one.
    cancel_all(parent, sessions[0])
    cancel_all(parent, sessions[1])
    assert parent.run(sessions[0], "print(1)").json()["state"] == "ok"
    assert parent.call("DELETE", f"/sessions/{sessions[0]}").status_code == 204
    assert parent.call("POST", "/sessions", json={}).status_code == 201


def test_a_childs_executions_use_up_its_parents_minute(token: Callable[..., Bearer]) -> None:
    parent = token(max_executions_per_minute=10)
    child = mint(parent, ALL_SCOPES, max_executions_per_minute=8)
    session = child.session()
    answers = at_once([lambda: submit(child, session, "1")] * AT_ONCE)
    assert statuses(answers)[429] == AT_ONCE - 8
    for answer in answers:
        if answer.status_code == 429:
            refused(answer, 429, "policy_limit_reached", "max_executions_per_minute", 8)
            assert 30 <= int(answer.headers["Retry-After"]) <= 60
    answers = at_once([lambda: submit(parent, session, "1")] * AT_ONCE)
    assert statuses(answers)[429] == AT_ONCE - 2
    assert len(parent.call("GET", f"/sessions/{session}/executions").json()["executions"]) == 10
    refused(submit(parent, session, "1"), 429, "policy_limit_reached", "max_executions_per_minute", 10)


def test_a_request_that_is_repeated_with_its_key_counts_once(token: Callable[..., Bearer]) -> None:
    agent = token(max_executions_per_minute=1, max_open_executions=1)
    session = agent.session()

    def run() -> requests.Response:
        path, headers = f"/sessions/{session}/executions", {"Idempotency-Key": "k"}
        return agent.call("POST", path, json={"code": "print(1)"}, headers=headers)

    answers = at_once([run] * AT_ONCE)
    for answer in answers:  # an answer may come before the first is on record
        assert answer.status_code in (200, 429, 503), answer.text
    assert run().json()["stdout"] == "1\n"
    assert len(agent.call("GET", f"/sessions/{session}/executions").json()["executions"]) == 1


# --- one session with several limits ---

BOUNDS: dict[str, Any] = {
    "max_code_bytes": 1000,
    "max_execution_seconds": 2,
    "max_queue_seconds": 1,
    "max_output_bytes": 10_000,
    "max_file_bytes": 2000,
    "max_session_bytes": 10_000,
    "max_session_files": 8,
}


@pytest.fixture(scope="module")
def bound(host: Host) -> tuple[Bearer, str]:
    agent = mint(host, policy="trusted", **BOUNDS)
    return agent, agent.session()


def test_max_code_bytes(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    for filler in ("x", "é"):  # bytes count, not characters
        code = "#" + filler * (999 // len(filler.encode()))
        assert agent.run(session, code + "#" * (1000 - len(code.encode()))).json()["state"] == "ok"
        refused(agent.run(session, code + "##"), 403, "policy_denied", "max_code_bytes", 1000)


def test_max_execution_seconds(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    for seconds in (2.01, 1e9):
        answer = agent.run(session, "1", timeout_seconds=seconds)
        refused(answer, 403, "policy_denied", "max_execution_seconds", 2.0)
    assert agent.run(session, "1", timeout_seconds=2).json()["state"] == "ok"
    assert agent.run(session, "import time; time.sleep(1.5)").json()["state"] == "ok"
    record = agent.run(session, SLEEP).json()
    assert (record["state"], record["timeout_seconds"]) == ("timeout", 2.0)


def test_max_queue_seconds(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    first = submit(agent, session, "import time; time.sleep(1.8)").json()["id"]
    late = agent.run(session, "print(1)").json()
    assert late["state"] == "timeout"
    assert late["started_at"] is None
    assert "max_queue_seconds" in late["reason"]
    assert finished(agent, first)["state"] == "ok"
    submit(agent, session, "import time; time.sleep(0.4)")
    assert agent.run(session, "print(1)").json()["stdout"] == "1\n"


def test_max_output_bytes(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    fits = agent.run(session, "print('x' * 9000)").json()
    assert fits["truncated"] is None
    assert len(fits["stdout"]) == 9001
    beyond = agent.run(session, "print('x' * 11000)").json()
    assert beyond["state"] == "ok"
    assert beyond["truncated"] is not None
    assert beyond["stdout"].count("x") <= 10_000


def put(agent: Bearer, session: str, name: str, size: int) -> requests.Response:
    return agent.call("PUT", f"/sessions/{session}/files/{name}", data=b"x" * size)


def empty(agent: Bearer, session: str) -> None:
    for info in agent.call("GET", f"/sessions/{session}/files").json()["files"]:
        agent.call("DELETE", f"/sessions/{session}/files/{info['path']}")


def test_max_file_bytes(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    assert put(agent, session, "a", 2000).status_code == 201
    answer = put(agent, session, "b", 2001)
    assert (answer.status_code, answer.json()["code"]) == (413, "quota_exceeded")
    assert "max_file_bytes" in answer.json()["message"] and "2000" in answer.json()["message"]
    empty(agent, session)


def test_max_session_bytes(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    answers = at_once([lambda n=n: put(agent, session, f"f{n}", 1990) for n in range(AT_ONCE)])  # type: ignore[misc]
    assert statuses(answers) == {201: 5, 413: AT_ONCE - 5}
    stored = agent.call("GET", f"/sessions/{session}/files").json()["files"]
    assert sum(info["size_bytes"] for info in stored) == 5 * 1990
    assert put(agent, session, "rest", 51).status_code == 413
    assert put(agent, session, "rest", 50).status_code == 201
    empty(agent, session)


def test_max_session_files(bound: tuple[Bearer, str]) -> None:
    agent, session = bound
    answers = at_once([lambda n=n: put(agent, session, f"f{n}", 1) for n in range(AT_ONCE)])  # type: ignore[misc]
    assert statuses(answers) == {201: 8, 413: AT_ONCE - 8}
    assert {a.json()["code"] for a in answers if a.status_code == 413} == {"quota_exceeded"}
    assert len(agent.call("GET", f"/sessions/{session}/files").json()["files"]) == 8
    empty(agent, session)


# --- what processes may use ---


def test_max_cpu_seconds(token: Callable[..., Bearer]) -> None:
    agent = token(max_cpu_seconds=6)
    session = agent.session()
    burn = "import time\nwhile time.process_time() < {}: pass\nprint('done')"
    assert agent.run(session, burn.format(4)).json()["stdout"] == "done\n"
    record = agent.run(session, burn.format(60)).json()
    assert (record["state"], record["kernel_signal"]) == ("kernel_died", "SIGXCPU")
    limits = "import resource; print(*resource.getrlimit(resource.RLIMIT_CPU))"
    assert agent.run(session, limits).json()["stdout"] == "6 7\n"  # of the kernel that came after it, too


def test_max_memory_bytes(token: Callable[..., Bearer]) -> None:
    agent = token(max_memory_bytes=2 * 1024**3)
    session = agent.session()
    assert agent.run(session, "x = bytearray(128 * 1024**2); print(len(x)); del x").json()["state"] == "ok"
    record = agent.run(session, "x = bytearray(2 * 1024**3)").json()
    assert record["error"]["name"] == "MemoryError"
    record = agent.run(
        session, "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'bytearray(2<<30)']).returncode)"
    )
    assert record.json()["stdout"] == "1\n"  # of what it starts, too
    assert agent.call("POST", f"/sessions/{session}/restart").status_code == 200
    limits = "import resource; print(*resource.getrlimit(resource.RLIMIT_AS))"
    assert agent.run(session, limits).json()["stdout"] == f"{2 * 1024**3} {2 * 1024**3}\n"


# --- how long sessions live ---


def test_max_idle_seconds(token: Callable[..., Bearer]) -> None:
    agent = token(max_idle_seconds=2)
    for seconds in (2.01, 0):  # 0 is never
        answer = agent.call("POST", "/sessions", json={"idle_timeout_seconds": seconds})
        refused(answer, 403, "policy_denied", "max_idle_seconds", 2.0)
    created = agent.call("POST", "/sessions", json={}).json()
    assert created["idle_timeout_seconds"] == 2.0
    assert agent.run(created["id"], "import time; time.sleep(2.5)").json()["state"] == "ok"  # which is not idle
    assert "idle" in ended_session(agent, created["id"], 10)["ended_reason"]


def test_max_session_seconds(token: Callable[..., Bearer]) -> None:
    agent = token(max_session_seconds=6)
    session = agent.session()
    began = time.monotonic()
    assert agent.run(session, "print(1)").json()["state"] == "ok"
    assert agent.run(session, SLEEP).json()["state"] == "cancelled"
    assert 1 <= time.monotonic() - began <= 20
    assert "max_session_seconds" in ended_session(agent, session, 10)["ended_reason"]
    assert agent.run(session, "1").json()["code"] == "session_ended"


# --- a person's consent ---


@pytest.fixture(scope="module")
def asking(host: Host) -> tuple[Bearer, str]:
    agent = mint(host, policy="trusted", approval={"when": ["shell"], "timeout_seconds": 2})
    return agent, agent.session()


def waiting(host: Host, agent: Bearer, session: str, code: str) -> str:
    answer = submit(agent, session, code)
    assert answer.json()["state"] == "awaiting_approval"
    listed = owner_of(host).call("GET", "/approvals").json()["executions"]
    assert [(e["id"], e["code"]) for e in listed] == [(answer.json()["id"], code)]
    return str(answer.json()["id"])


def decide(host: Host, execution_id: str, decision: str, **more: Any) -> requests.Response:
    return owner_of(host).call("POST", f"/approvals/{execution_id}", json={"decision": decision, **more})


def test_code_that_needs_no_approval_runs_at_once(asking: tuple[Bearer, str]) -> None:
    agent, session = asking
    assert agent.run(session, "print('!ls')").json()["state"] == "ok"


def test_nobody_answers(host: Host, asking: tuple[Bearer, str]) -> None:
    agent, session = asking
    execution = waiting(host, agent, session, "!touch without_consent")
    record = finished(agent, execution)
    assert (record["state"], record["approval"]["decision"]) == ("timeout", "timeout")
    assert record["started_at"] is None
    assert agent.call("GET", f"/sessions/{session}/files").json()["files"] == []
    assert decide(host, execution, "approve").json()["code"] in ("not_awaiting_approval", "execution_not_found")


def test_approved_edited_rejected(host: Host, asking: tuple[Bearer, str]) -> None:
    agent, session = asking
    execution = waiting(host, agent, session, "!echo asked")
    assert agent.call("POST", f"/approvals/{execution}", json={"decision": "approve"}).json()["code"] == "owner_only"
    assert agent.call("GET", "/approvals").json()["code"] == "owner_only"
    assert decide(host, execution, "approve").status_code == 200
    assert finished(agent, execution)["stdout"].strip() == "asked"

    execution = waiting(host, agent, session, "!echo asked")
    decide(host, execution, "approve", code="print('edited')")
    record = finished(agent, execution)
    assert (record["stdout"], record["code"]) == ("edited\n", "print('edited')")
    assert (record["approval"]["decision"], record["approval"]["original_code"]) == ("edited", "!echo asked")

    execution = waiting(host, agent, session, "!touch rejected")
    decide(host, execution, "reject", reason="not here")
    record = finished(agent, execution)
    assert (record["state"], record["approval"]["reason"]) == ("rejected", "not here")
    assert agent.call("GET", f"/sessions/{session}/files").json()["files"] == []


def test_of_many_answers_one_counts(host: Host, asking: tuple[Bearer, str]) -> None:
    agent, session = asking
    execution = waiting(host, agent, session, "!echo asked")
    calls = [
        (lambda: decide(host, execution, "reject")) if n % 2 else (lambda: decide(host, execution, "approve"))
        for n in range(AT_ONCE)
    ]
    answers = at_once(calls)
    assert statuses(answers)[200] == 1, [answer.text for answer in answers]
    (decided,) = (answer.json() for answer in answers if answer.status_code == 200)
    record = finished(agent, execution)
    assert record["state"] == {"rejected": "rejected", "approved": "ok"}[decided["approval"]["decision"]]


def test_a_child_is_asked_about_what_its_parent_would_be(host: Host, asking: tuple[Bearer, str]) -> None:
    agent, _ = asking
    child = mint(agent, approval="never")
    session = child.session()
    execution = waiting(host, child, session, "!ls")
    assert agent.call("GET", f"/executions/{execution}").json()["state"] == "awaiting_approval"
    assert child.call("DELETE", f"/sessions/{session}").status_code == 204
    assert finished(child, execution)["state"] == "cancelled"
    assert owner_of(host).call("GET", "/approvals").json()["executions"] == []
