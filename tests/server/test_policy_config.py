"""Policies of the configuration: with a mistake in them every path answers 503, and the log names it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from jupyter_exec_ext.aca.endpoint.aca_handler import ACA_PREFIX
from jupyter_exec_ext.auth import token_format
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import PoliciesInvalid
from jupyter_exec_ext.server.routes import ACA_ROUTES, PREFIX, ROUTES
from tests.audit.test_audit import chain
from tests.server.test_rights import DEPLOYMENT, as_user
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

MISTAKE = "policies.toml: policy 'mine': unknown field 'max_session'; did you mean 'max_sessions'?"


def write_policies(home: Path, field: str) -> str:
    """Write a policy file with one field; return the host's option."""
    file = home / "policies.toml"
    file.write_text(f"[mine]\n{field} = 1\n")
    return f"--ExecEngine.policy_file={file}"


def answers(host: Host, authorization: str | None) -> Iterator[requests.Response]:
    """Send a request to every method of every route, and to paths that do not exist."""
    headers = {} if authorization is None else {"Authorization": authorization}
    routes = [(PREFIX, route) for route in ROUTES] + [(ACA_PREFIX, route) for route in ACA_ROUTES]
    calls = [
        (method, prefix + re.sub(r"\{\w+\}", "x", route.path))
        for prefix, route in routes
        for method in route.methods
        if method != "HEAD"  # whose answers have no body
    ]
    calls += [("PATCH", f"{PREFIX}/sessions"), *(("GET", path) for path in (PREFIX, f"{PREFIX}/x", f"{ACA_PREFIX}/x"))]
    for method, path in calls:
        body = b"" if method == "GET" else b"{}"
        yield requests.request(
            method, host.info.url + path, headers=headers, data=body, timeout=30, allow_redirects=False
        )


def check_that_nothing_is_served(host: Host, home: Path, *scoped: str) -> None:
    """Check that each answer is a 503, in one line, that names the mistake to the owner alone."""
    token = str(host.info.token)
    bearers = (f"Bearer {text}" for text in (f"{token_format.PREFIX}wrong", *scoped))
    for text in (f"token {token}", None, "token wrong", *bearers):
        for answer in answers(host, text):
            seen = f"{answer.request.method} {answer.url} with {text}: {answer.text}"
            assert answer.status_code == 503, seen
            assert str(home) not in answer.text, seen
            error = answer.json()
            if f"/{ACA_PREFIX}" in answer.url:
                error = error["error"]
                assert error["code"] == "ServiceUnavailable", seen
            else:
                assert error["code"] == "policies_invalid", seen
            assert "\n" not in error["message"], seen
            assert error["message"].startswith(MISTAKE) == (text == f"token {token}"), seen
    assert requests.get(f"{host.info.url}api", headers=host.info.auth_headers, timeout=30).status_code == 200
    ready = requests.get(f"{host.info.url}exec/v1/ready", timeout=30)
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "draining": False})
    lines = [line for line in host.log_text().splitlines() if MISTAKE in line]
    assert len(lines) == 1, lines
    assert f"(ExecEngine.policy_file is {home / 'policies.toml'})" in lines[0]
    assert "Traceback" not in host.log_text()


def test_server_with_mistake_in_policy_file_answers_503_until_it_is_corrected(tmp_path: Path) -> None:
    option = write_policies(tmp_path, "max_sessions")
    with running_host("server", tmp_path, UNPROTECTED, option) as host:
        student = mint(host, policy="mine")
    write_policies(tmp_path, "max_session")
    with running_host("server", tmp_path, UNPROTECTED, option) as host:
        check_that_nothing_is_served(host, tmp_path, student.token)
        with ExecClient(host.info) as client, pytest.raises(PoliciesInvalid, match="did you mean 'max_sessions'"):
            client.session()
    write_policies(tmp_path, "max_sessions")
    with running_host("server", tmp_path, UNPROTECTED, option) as host:
        assert Bearer(host, student.token, student.id).call("GET", "/").status_code == 200


def test_gateway_with_mistake_in_policy_file_starts_and_answers_503(tmp_path: Path) -> None:
    option = write_policies(tmp_path, "max_session")
    with running_host("gateway", tmp_path, UNPROTECTED, option, "--ExecEngine.pool_kernels=python3") as host:
        check_that_nothing_is_served(host, tmp_path)


def denials(home: Path) -> Counter[tuple[object, str]]:
    """Return the denials of the audit trail, each by its code and principal."""
    trail = chain(home / "jupyter_data_dir" / "jupyter_exec_ext")
    return Counter((record.data["code"], record.principal) for record in trail if record.kind.value == "denial")


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_closed_server_records_denials_that_it_answers_with_503(name: str, tmp_path: Path) -> None:
    option = write_policies(tmp_path, "max_sessions")
    with running_host(name, tmp_path, UNPROTECTED, option) as host:
        student = mint(host, policy="mine")
    option = write_policies(tmp_path, "max_session")
    with running_host(name, tmp_path, UNPROTECTED, option) as host:
        wrong = Bearer(host, student.token[:-1] + ("a" if student.token[-1] != "a" else "b"))
        foreign = {"Host": "evil.example"}
        answers = [
            Bearer(host, "wrong").call("GET", "/"),
            wrong.call("GET", "/sessions"),
            owner_of(host).call("GET", "/", headers=foreign),
            Bearer(host, student.token).call("GET", "/", headers={"Origin": "https://evil.example"}),
            owner_of(host).call("GET", "/"),
            Bearer(host, student.token).call("GET", "/"),
        ]
        assert [answer.json()["code"] for answer in answers] == ["policies_invalid"] * 6
    assert denials(tmp_path) == {("unauthenticated", ""): 2, ("host_not_allowed", ""): 1, ("origin_not_allowed", ""): 1}


def test_closed_server_names_the_mistake_only_to_an_owner_whom_the_authorizer_admits(tmp_path: Path) -> None:
    (tmp_path / "deployment.py").write_text(DEPLOYMENT)
    (tmp_path / "denied").write_text("bob")
    options = [
        write_policies(tmp_path, "max_session"),
        "--ServerApp.identity_provider_class=deployment.ByHeader",
        "--ServerApp.authorizer_class=deployment.ByFile",
    ]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with running_host("server", tmp_path, *options, env={"PYTHONPATH": path}) as host:
        for user, is_told in (("ada", True), ("bob", False)):
            refused = as_user(host, user, "GET", "/sessions")
            assert (refused.status_code, refused.json()["code"]) == (503, "policies_invalid")
            assert (MISTAKE in refused.text) is is_told, refused.text
    (denial,) = denials(tmp_path)
    assert denial[0] == "forbidden"
    assert denial[1] != ""


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
        misspelt = owner_of(host).call("POST", "/tokens", json={**body, "limits": {"max_session": 1}})
        assert (misspelt.status_code, misspelt.json()["code"]) == (400, "invalid_request")
        assert misspelt.json()["message"] == "'limits': unknown field 'max_session'; did you mean 'max_sessions'?"
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
