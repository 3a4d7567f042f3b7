"""Network of a session by the API of both hosts: rules of its policy, requests, and one rule more by the owner."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from jupyter_exec_ext.errors import Forbidden, InvalidRequest
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.change_feeds import Watcher
from tests.support.hosts import Host, clean_environment, running_host

pytestmark = pytest.mark.needs("sandbox")
_POLICIES = "--ExecEngine.policies={'net': {'isolation': 'sandbox', 'network': ['a.example', 'b.example']}}"
_FETCH = """
import urllib.request
try:
    urllib.request.urlopen('http://c.example/')
except OSError as error:
    print(error)
"""


@pytest.fixture(scope="module", params=["server", "gateway"])
def ruled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(request.param, tmp_path_factory.mktemp("network"), _POLICIES) as host:
        yield host


@pytest.fixture(scope="module")
def agent(ruled: Host) -> Bearer:
    return mint(ruled, policy="net")


def test_bearer_reads_its_rules_and_refused_requests(agent: Bearer) -> None:
    session = agent.session()
    assert "403" in agent.run(session, _FETCH).json()["stdout"]
    network = agent.call("GET", f"/sessions/{session}/network").json()
    (request,) = network.pop("requests")
    expected = {"network": "rules", "rules": ["a.example", "b.example"], "added_rules": []}
    assert network == {"session_id": session, **expected}
    assert (request["verdict"], request["host"], request["port"]) == ("refused", "c.example", 80)
    assert "policy 'net' does not allow host c.example" in request["reason"]
    assert request["wanted_rule"] == "c.example:80"


def test_rules_hold_for_a_kernel_from_a_checkpoint(ruled: Host) -> None:
    agent = mint(ruled, ALL_SCOPES, policy="net")
    session = agent.session()
    made = agent.call("POST", f"/sessions/{session}/checkpoints", json={}).json()
    restored = agent.call("POST", f"/sessions/{session}/restore", json={"checkpoint": made["id"]})
    assert restored.status_code == 200, restored.text
    assert "403" in agent.run(session, _FETCH).json()["stdout"]
    (request,) = agent.call("GET", f"/sessions/{session}/network").json()["requests"]
    assert request["host"] == "c.example"


def test_owner_alone_adds_a_rule(ruled: Host, agent: Bearer) -> None:
    path = f"/sessions/{agent.session()}/network"
    answer = agent.call("POST", path, json={"rule": "c.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "owner_only")
    assert owner_of(ruled).call("POST", path, json={"rule": "c.example"}).json()["added_rules"] == ["c.example"]
    for body in ({}, {"rule": ""}, {"rule": 1}, {"rule": "x" * 501}, {"rule": "a b"}, {"rule": "c.example", "x": 1}):
        refused = owner_of(ruled).call("POST", path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), body


def test_another_token_and_a_wrong_scope_read_nothing(ruled: Host, agent: Bearer) -> None:
    path = f"/sessions/{agent.session()}/network"
    assert mint(ruled, policy="net").call("GET", path).status_code == 404
    lacking = mint(agent, ["executions:read", "tokens:create"], policy="net")
    assert (lacking.call("GET", path).json()["code"]) == "missing_scope"


def test_session_names_the_rule_that_was_wanted_until_it_is_there(ruled: Host, agent: Bearer) -> None:
    session = agent.session()
    with Watcher(owner_of(ruled)) as changes:
        agent.run(session, _FETCH)
        wanted = ["c.example:80"]
        changes.wait(lambda each: each.has("session", session) and each.data["session"]["wanted_rules"] == wanted)
    answer = owner_of(ruled).call("POST", f"/sessions/{session}/network", json={"rule": "c.example"})
    assert answer.status_code == 200, answer.text
    assert agent.call("GET", f"/sessions/{session}").json()["wanted_rules"] == []
    agent.run(session, _FETCH.replace("c.example", "other.test"))
    assert agent.call("GET", f"/sessions/{session}").json()["wanted_rules"] == ["other.test:80"]
    agent.call("DELETE", f"/sessions/{session}")
    assert agent.call("GET", f"/sessions/{session}").json()["wanted_rules"] == []


async def test_both_clients_read_and_allow(ruled: Host, agent: Bearer) -> None:
    session = agent.session()
    with ExecClient(ruled.info) as client:
        attached = client.get_session(session)
        assert attached.allow_network("c.example:8443").added_rules == ["c.example:8443"]
        with pytest.raises(InvalidRequest, match="'rule'"):
            attached.allow_network("no rule")
    async with AsyncExecClient(ruled.info.url, token=agent.token) as client:
        asynchronous = await client.get_session(session)
        assert (await asynchronous.network()).rules == ["a.example", "b.example"]
        with pytest.raises(Forbidden):
            await asynchronous.allow_network("d.example")


def test_command_prints_rules_and_requests_and_adds_a_rule(ruled: Host, agent: Bearer, tmp_path: Path) -> None:
    session = agent.session()
    agent.run(session, _FETCH)
    program = str(Path(sys.executable).parent / "jupyter-exec")
    command = [program, "session", "network", session, "--server", ruled.info.url]
    env = clean_environment(tmp_path, JUPYTER_TOKEN=str(ruled.info.token))

    def run(*arguments: str) -> str:
        return subprocess.run([*command, *arguments], env=env, capture_output=True, text=True, check=True).stdout

    shown = run()
    assert "Network: what these rules allow\n  a.example\n  b.example\n" in shown
    assert "refused  GET c.example:80/  (policy 'net' does not allow host c.example" in shown
    assert "  c.example (for this session)\n" in run("--allow", "c.example")
    assert json.loads(run("--json"))["added_rules"] == ["c.example"]
