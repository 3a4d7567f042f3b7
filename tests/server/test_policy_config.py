"""Policies that are wrong: no host serves anything with other limits than it was given, and each says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import running_host

WRONG = {
    "field": ("[mine]\nmax_session = 1\n", "policy 'mine': unknown field 'max_session'; did you mean 'max_sessions'?"),
    "value": ("[mine]\nmax_sessions = 0\n", "policy 'mine': 'max_sessions' must be a whole number"),
    "pattern": ('[mine]\napproval = { when = ["pattern"], pattern = "(" }\n', "is not a regular expression"),
    "syntax": ("[mine\n", "cannot be read"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_server_does_not_serve_with_policies_that_are_wrong(what: str, tmp_path: Path) -> None:
    text, words = WRONG[what]
    (tmp_path / "policies.toml").write_text(text)
    with running_host("server", tmp_path, f"--ExecEngine.policy_file={tmp_path / 'policies.toml'}") as host:
        answer = requests.get(f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=30)
        assert answer.status_code == 404
        assert words in host.log_text()


def test_a_gateway_does_not_start_with_policies_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "policies.toml").write_text(WRONG["field"][0])
    options = [f"--ExecEngine.policy_file={tmp_path / 'policies.toml'}"]
    with (
        pytest.raises(AssertionError, match="did you mean 'max_sessions'"),
        running_host("gateway", tmp_path, *options),
    ):
        pass


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_a_policy_file_and_policies_of_the_configuration_hold_together(name: str, tmp_path: Path) -> None:
    (tmp_path / "policies.toml").write_text(
        '[students]\nbase = "trusted"\nmax_sessions = 1\nattach = false\n[both]\nmax_sessions = 7\n'
    )
    options = [
        f"--ExecEngine.policy_file={tmp_path / 'policies.toml'}",
        "--ExecEngine.policies={'both': {'max_sessions': 3}}",
    ]
    with running_host(name, tmp_path, UNPROTECTED, *options) as host:
        listed = {p["name"]: p for p in owner_of(host).call("GET", "/policies").json()["policies"]}
        assert set(listed) == {"default", "trusted", "restricted", "students", "both"}
        assert (listed["both"]["max_sessions"], listed["students"]["max_sessions"]) == (3, 1)
        student, teacher = mint(host, policy="students"), mint(host, policy="trusted")
        kernel = owner_of(host).call("POST", "/sessions", json={}).json()["kernel_id"]
        url = f"{host.info.url}api/kernels"
        notebook = requests.post(url, headers=host.info.auth_headers, json={"name": "python3"}, timeout=60).json()["id"]
        refused = student.call("POST", "/sessions", json={"kernel_id": notebook})
        assert (refused.status_code, refused.json()["code"]) == (403, "policy_denied")
        assert refused.json()["limit"] == {"policy": "students", "name": "attach", "value": False}
        assert teacher.call("POST", "/sessions", json={"kernel_id": notebook}).status_code == 201
        assert teacher.call("POST", "/sessions", json={"kernel_id": kernel}).json()["code"] == "kernel_not_found"
        requests.delete(f"{url}/{notebook}", headers=host.info.auth_headers, timeout=60)


def test_tokens_have_only_policies_that_are_offered(tmp_path: Path) -> None:
    options = ["--ExecEngine.policies={'agents': {}}", "--ExecEngine.offered_policies=agents"]
    with running_host("server", tmp_path) as host:
        before = mint(host, policy="trusted")
        assert before.call("GET", "/").status_code == 200
    with running_host("server", tmp_path, *options) as host:
        assert [p["name"] for p in owner_of(host).call("GET", "/policies").json()["policies"]] == ["agents"]
        body = {"name": "x", "scopes": ["sessions:read"]}
        assert owner_of(host).call("POST", "/tokens", json=body).json()["policy"] == "agents"
        refused = owner_of(host).call("POST", "/tokens", json={**body, "policy": "trusted"})
        assert (refused.status_code, refused.json()["code"]) == (400, "policy_not_found")
        again = Bearer(host, before.token, before.id).call("GET", "/")
        assert (again.status_code, again.json()["code"]) == (403, "policy_denied")


def test_how_long_a_token_may_be_good_is_told_to_who_has_to_ask_for_less(tmp_path: Path) -> None:
    with running_host("server", tmp_path, "--ExecEngine.max_token_seconds=600") as host:
        most = owner_of(host).call("GET", "/").json()["limits"]["max_token_seconds"]
        body = {"name": "x", "scopes": ["sessions:read"]}
        answers = [
            owner_of(host).call("POST", "/tokens", json={**body, "expires_in_seconds": seconds}).status_code
            for seconds in (most, most + 1)
        ]
    assert (most, answers) == (600, [201, 403])


def test_the_log_says_what_is_in_force(tmp_path: Path) -> None:
    with running_host("server", tmp_path) as host:
        assert "the kernels of scoped tokens are isolated, or refused" in host.log_text()
        assert owner_of(host).call("GET", "/").json()["unprotected_tokens"] is False
    with running_host("server", tmp_path, UNPROTECTED) as host:
        assert "may use kernels without isolation" in host.log_text()
        assert owner_of(host).call("GET", "/").json()["unprotected_tokens"] is True
