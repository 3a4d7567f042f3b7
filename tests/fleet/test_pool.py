"""A real pool: a JupyterHub, its proxy, two servers, and the service before them."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.client import JupyterConnectionInfo
from jupyter_exec_ext.errors import (
    ExecError,
    Forbidden,
    MissingScope,
    NotFound,
    PoolFull,
    SessionEnded,
    Unauthenticated,
)
from jupyter_exec_ext.models import AuditRecord
from jupyter_exec_ext.protocol.record_ids import parse_id
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.support.full import only_in_full
from tests.support.pools import POOL_USER, PoolHost, running_pool
from tests.support.waiting import wait_until

SESSION_ID = re.compile(r"ses_[a-z0-9]+_[0-9a-f]{24}")
pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHost]:
    settings = {"min_servers": 2, "max_servers": 3, "sessions_per_server": 4, "spare_sessions": 0}
    with running_pool(tmp_path_factory.mktemp("pool"), settings) as pool:
        wait_until(lambda: pool.states()["ready"] == 2, 60)
        yield pool


@pytest.fixture
def client(pool: PoolHost) -> Iterator[ExecClient]:
    with ExecClient(pool.info) as client:
        yield client
        for session in client.list_sessions():
            client.get_session(session.id).close()


def as_user(pool: PoolHost, name: str, *scopes: str) -> JupyterConnectionInfo:
    assert pool.hub is not None
    return replace(pool.info, token=pool.hub.token_of(name, *scopes))


def server_of(record_id: str) -> str:
    parsed = parse_id(record_id)
    assert parsed is not None
    return parsed.server_name


def call(info: JupyterConnectionInfo, method: str, path: str, **options: Any) -> requests.Response:
    return requests.request(method, f"{info.url}exec/{path}", headers=info.auth_headers, timeout=60, **options)


def audit(pool: PoolHost) -> list[AuditRecord]:
    """Return the pool's audit trail."""
    with closing(AuditReader(pool.home / "pool")) as reader:
        return [line.record() for line in reader.newest(100)]


def run_aca(pool: PoolHost, identifier: str, code: str) -> requests.Response:
    path = f"aca/executions?api-version=2025-10-02-preview&identifier={identifier}"
    body = {"code": code, "executionType": "Synchronous", "codeInputType": "Inline"}
    return call(pool.info, "POST", path, json=body)


def run_tool(pool: PoolHost, name: str, **arguments: Any) -> str:
    """Call a tool of MCP in the revision without sessions, and return the answer's text."""
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    parameters = {"name": name, "arguments": arguments, "_meta": about}
    headers = {
        **pool.info.auth_headers,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    answer = requests.post(f"{pool.info.url}exec/mcp", json=message, headers=headers, timeout=60)
    assert answer.ok, answer.text
    return answer.text


# --- use ---


def test_sessions_are_spread_over_the_servers_and_keep_their_variables(client: ExecClient) -> None:
    sessions = [client.session() for _ in range(4)]
    assert len({server_of(session.id) for session in sessions}) == 2
    for number, session in enumerate(sessions):
        session.run(f"x = {number}")
    assert [session.run("x").text for session in sessions] == ["0", "1", "2", "3"]
    assert {session.id for session in client.list_sessions()} == {session.id for session in sessions}


def test_streams_files_and_fresh_runs_pass_through(client: ExecClient) -> None:
    with client.session() as session:
        kinds = [event.type for event in session.stream("print('hello')")]
        assert kinds[-1] == "end" and "stream" in kinds
        content = os.urandom(3 * 1024 * 1024)
        session.write_file("data.bin", content)
        assert session.read_file("data.bin") == content
    assert client.run("6 * 7").text == "42"


def test_the_same_key_is_the_same_run(pool: PoolHost, client: ExecClient) -> None:
    headers = {**pool.info.auth_headers, "Idempotency-Key": "once"}
    url = f"{pool.info.url}exec/v1/executions"
    ids = {requests.post(url, json={"code": "1"}, headers=headers, timeout=60).json()["id"] for _ in range(3)}
    assert len(ids) == 1


# --- who may do what ---


def test_another_users_ids_are_not_there(pool: PoolHost, client: ExecClient) -> None:
    session = client.session()
    execution = session.run("1")
    other = as_user(pool, "bob")
    for path in (f"sessions/{session.id}", f"executions/{execution.id}", f"sessions/{session.id}/files"):
        assert call(other, "GET", f"v1/{path}").status_code == 404
    with ExecClient(other) as bob:
        assert bob.list_sessions() == []
        with bob.session():
            assert call(other, "GET", f"v1/sessions/{session.id}").status_code == 404  # also with a token on the server


def test_requests_without_a_good_token_are_refused(pool: PoolHost) -> None:
    for token, error in (("", Unauthenticated), ("wrong", Unauthenticated)):
        with ExecClient(replace(pool.info, token=token or None)) as client, pytest.raises(error):
            client.list_sessions()
    with (
        ExecClient(as_user(pool, "bob", "read:users:name!user")) as client,
        pytest.raises(MissingScope, match="custom:exec"),
    ):
        client.list_sessions()


def test_a_token_of_the_pool_does_what_its_scopes_say_until_it_is_revoked(pool: PoolHost, client: ExecClient) -> None:
    issued = client.tokens.create("agent", ["sessions:create", "sessions:read", "executions:create", "executions:read"])
    with ExecClient(replace(pool.info, token=issued.text)) as agent:
        session = agent.session()
        assert session.run("1 + 1").text == "2"
        with pytest.raises(MissingScope):
            session.write_file("a", b"")
        with pytest.raises(MissingScope):
            agent.tokens.create("more", ["sessions:read"])
        assert session.id in [seen.id for seen in client.list_sessions()]  # its creator sees what it does
        client.tokens.revoke(issued.token.id)
        with pytest.raises(Unauthenticated):
            agent.list_sessions()
    wait_until(lambda: call(pool.info, "GET", f"v1/sessions/{session.id}").json()["state"] == "ended", 10)


def test_the_callers_policy_is_listed(pool: PoolHost, client: ExecClient) -> None:
    assert [policy["name"] for policy in client.tokens.policies()] == ["default"]
    issued = client.tokens.create("agent", ["sessions:read"])
    with ExecClient(replace(pool.info, token=issued.text)) as agent, pytest.raises(Forbidden):
        agent.tokens.policies()


def test_figures_are_for_administrators(pool: PoolHost) -> None:
    for path in ("exec/v1/load", "metrics", ""):
        url = f"{pool.info.url}{path}"
        assert requests.get(url, headers=pool.info.auth_headers, timeout=10).status_code == 403
        assert requests.get(url, timeout=10).status_code == 401
        assert requests.get(url, headers=pool.owner.auth_headers, timeout=10).ok


def test_browsers_ask_for_the_token_of_the_status_page_alone(pool: PoolHost) -> None:
    dialog = ("any name", str(pool.owner.token))
    answer = requests.get(pool.info.url, timeout=10)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="token"')
    answer = requests.get(pool.info.url, auth=dialog, timeout=10)
    assert answer.ok and "<td>ready</td>" in answer.text
    assert requests.get(pool.info.url, headers={"Authorization": "Basic !"}, timeout=10).status_code == 401
    answer = requests.get(f"{pool.info.url}exec/v1/load", auth=dialog, timeout=10)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_placements_are_in_the_audit_trail(pool: PoolHost, client: ExecClient) -> None:
    session = client.session()
    wait_until(lambda: any(record.data.get("path") == f"exec/v1/sessions/{session.id}" for record in audit(pool)), 10)
    record = audit(pool)[-1]
    assert (record.kind, record.action, record.subject) == ("server", "placed", server_of(session.id))
    assert record.principal.startswith("user:alice/")


def test_code_that_waits_is_for_administrators_to_see(pool: PoolHost, client: ExecClient) -> None:
    with ExecClient(pool.owner) as admin:
        assert admin.approvals.list() == []
    with pytest.raises(Forbidden):
        client.approvals.list()


@only_in_full
def test_a_token_ends_with_the_hub_token_that_made_it(pool: PoolHost) -> None:
    assert pool.hub is not None
    made = pool.hub.api("POST", "/users/bob/tokens", note="to be revoked")
    wait_until(lambda: pool.figures()["sessions"] == 0, 20)
    with ExecClient(replace(pool.info, token=made["token"])) as bob:
        issued = bob.tokens.create("agent", ["sessions:create", "sessions:read", "executions:create"])
        agent = replace(pool.info, token=issued.text)
        bob.session().run("an_idle_session = 1")
        with ExecClient(agent) as client, ThreadPoolExecutor() as threads:
            session = client.session()
            running = threads.submit(session.run, "import time; time.sleep(60)")
            wait_until(lambda: pool.figures()["running"] >= 1, 30)
            pool.hub.api("DELETE", f"/users/bob/tokens/{made['id']}")
            wait_until(lambda: call(agent, "GET", "v1/sessions").status_code == 401, 15)
            wait_until(lambda: pool.figures()["running"] == 0, 15)
            wait_until(lambda: pool.figures()["sessions"] == 0, 15)
            with pytest.raises(ExecError):
                running.result(30)
        with pytest.raises(Unauthenticated):
            bob.list_sessions()


# --- limits ---


@only_in_full
def test_a_full_pool_says_which_limit_and_when_to_come_again(pool: PoolHost, client: ExecClient) -> None:
    number = 3 * 4
    kept = []
    wait_seconds = {"Prefer": "wait=60"}
    for _ in range(number):
        answer = requests.post(
            f"{pool.info.url}exec/v1/sessions", headers={**pool.info.auth_headers, **wait_seconds}, timeout=90
        )
        assert answer.status_code == 201, answer.text
        kept.append(answer.json()["id"])
    assert set(Counter(map(server_of, kept)).values()) == {4}
    with pytest.raises(PoolFull) as full:
        client.session()
    assert full.value.retry_after_seconds and full.value.limit == {
        "policy": "pool",
        "name": "sessions",
        "value": number,
    }
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(
            requests.post,
            f"{pool.info.url}exec/v1/sessions",
            headers={**pool.info.auth_headers, **wait_seconds},
            timeout=90,
        )
        call(pool.info, "DELETE", f"v1/sessions/{kept[0]}")
        assert waiting.result().status_code == 201


# --- failures ---


@only_in_full
def test_what_a_killed_server_had_is_lost_and_said_to_be(pool: PoolHost, client: ExecClient) -> None:
    session = client.session()
    name = server_of(session.id)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(session.run, "import time; time.sleep(60)")
        wait_until(lambda: pool.figures()["running"] >= 1, 30)
        os.kill(pool.pid_of(name), signal.SIGKILL)
        execution = running.result(60)
    assert execution.state == "server_lost"
    lost = next(record for record in audit(pool) if record.action == "lost")
    assert lost.subject == name and lost.data["running"] == 1
    assert client.get_execution(execution.id).refresh().state == "server_lost"
    with pytest.raises(SessionEnded):
        session.run("1")
    assert call(as_user(pool, "bob"), "GET", f"v1/executions/{execution.id}").status_code == 404
    assert server_of(client.session().id) != name


@only_in_full
def test_runs_and_streams_go_on_when_the_pool_is_killed(pool: PoolHost, client: ExecClient) -> None:
    session, streaming = client.session(), client.session()
    code = "import time\nfor n in range(30):\n    print(n, flush=True)\n    time.sleep(0.1)"
    with ThreadPoolExecutor() as threads:
        run = threads.submit(session.run, code)
        stream = threads.submit(lambda: [event.seq for event in streaming.stream(code)])
        wait_until(lambda: pool.figures()["running"] >= 2, 30)
        pool.process.kill()
        pool.process.wait()
        pool.start()
        assert run.result(60).stdout.split() == [str(n) for n in range(30)]
        seqs = stream.result(60)
    assert seqs == list(range(1, len(seqs) + 1))
    assert session.run("n").text == "29"


@only_in_full
def test_the_aca_protocols_identifiers_stay_on_their_servers_also_after_a_restart(pool: PoolHost) -> None:
    names = [f"agent{n}" for n in range(4)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda name: run_aca(pool, name, f"x = {name!r}"), names * 2))
    assert all(answer.ok for answer in answers)
    server = next(row["name"] for row in pool.figures()["servers"] if row["state"] == "ready")
    process = psutil.Process(pool.pid_of(server))
    process.suspend()  # as a host without a network
    try:
        pool.process.kill()
        pool.process.wait()
        pool.start()
        refused = run_aca(pool, "agent5", "1")  # it might be there
        assert refused.status_code == 503 and server in refused.text
    finally:
        process.resume()
    wait_until(lambda: all(name in run_aca(pool, name, "print(x)").text for name in names), 20)


@only_in_full
def test_mcp_runs_code_on_one_server(pool: PoolHost) -> None:
    assert "42" in run_tool(pool, "execute_code", code="x = 41\nx + 1")
    with pytest.raises(NotFound), ExecClient(pool.info) as client:
        client.get_session("ses_nobody_000000000000000000000000")


@only_in_full
def test_clients_of_mcp_get_another_server_when_theirs_is_full(pool: PoolHost, client: ExecClient) -> None:
    made = [run_tool(pool, "start_session") for _ in range(6)]
    servers = Counter(server_of(record_id) for text in made for record_id in set(SESSION_ID.findall(text)))
    assert sum(servers.values()) == 6 and max(servers.values()) <= 4, made


@only_in_full
def test_no_protocol_makes_a_session_on_a_drained_server(pool: PoolHost, client: ExecClient) -> None:
    assert pool.hub is not None
    wait_until(lambda: pool.figures()["sessions"] == 0, 20)
    drained = next(row["name"] for row in pool.figures()["servers"] if row["state"] == "ready")
    token = pool.hub.token_of("grace", f"access:servers!server={POOL_USER}/{drained}")
    with ExecClient(f"http://127.0.0.1:{pool.hub.info.port}/user/{POOL_USER}/{drained}/", token=token) as server:
        server.drain()
    # Some of these come before the pool knows.
    assert all(run_aca(pool, f"drained{n}", "1").ok for n in range(3))
    assert server_of(client.session().id) != drained
    assert drained not in {server_of(session.id) for session in client.list_sessions()}
    wait_until(lambda: drained not in [row["name"] for row in pool.figures()["servers"]], 30)
