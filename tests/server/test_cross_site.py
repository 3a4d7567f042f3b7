"""F24: what another site can make a browser send changes nothing; every method of every route, on both hosts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.server.routes import ROUTES
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

CELLS = [(route.path, method) for route in ROUTES for method in route.methods]
CHANGING = [(path, method) for path, method in CELLS if method != "GET"]
FOREIGN = ["https://evil.example", "http://127.0.0.1.evil.example", "http://localhost:1", "null"]
# What each route takes; a file is any bytes, and what is not here takes no body.
BODIES: dict[tuple[str, str], Any] = {
    ("/sessions", "POST"): {},
    ("/sessions/{session_id}/executions", "POST"): {"code": "1"},
    ("/sessions/{session_id}/ports", "POST"): {"port": 9},
    ("/sessions/{session_id}/checkpoints", "POST"): {"name": "stolen", "force": True},
    ("/sessions/{session_id}/branches", "POST"): {"count": 2},
    ("/sessions/{session_id}/restore", "POST"): {"checkpoint": "stolen"},
    ("/sessions/{session_id}/packages", "POST"): {"packages": ["stolen"]},
    ("/executions", "POST"): {"code": "1"},
    ("/sessions/{session_id}/notebook", "POST"): {"path": "stolen.ipynb"},
    ("/tokens", "POST"): {"name": "stolen", "scopes": ["sessions:read"]},
    ("/tokens/{token_id}/rotate", "POST"): {},
    ("/approvals/{execution_id}", "POST"): {"decision": "approve"},
    ("/sessions/{session_id}/network", "POST"): {"rule": "stolen.example"},
    ("/secrets/{secret_name}", "PUT"): {"value": "stolen-value", "hosts": ["evil.example"], "header": "X-Key: {}"},
    ("/grants", "POST"): {"token_id": "stolen", "kernel_id": "stolen"},
    ("/executions/{execution_id}/input", "POST"): {"value": "stolen"},
}
QUERIES = {("/executions", "GET"): "?query=stolen"}
# What no scoped token may do, whatever the body is.
OWNERS = (
    *("/approvals/{execution_id}", "/sessions/{session_id}/network", "/sessions/{session_id}/notebook", "/grants"),
    "/secrets/{secret_name}",
)


@dataclass
class World:
    """A host on which every route has something to change."""

    host: Host
    agent: Bearer
    session: str
    asking: str
    approvable: str
    grant: str
    checkpoint: str
    cookies: dict[str, str]

    def path(self, path: str, method: str) -> str:
        execution = self.approvable if path.startswith("/approvals") else self.asking
        ids = {
            "session_id": self.session,
            "execution_id": execution,
            "token_id": self.agent.id,
            "grant_id": self.grant,
            "checkpoint_id": self.checkpoint,
            "path": "stolen" if "files" in path else "kept",
            "name": "0",
            "secret_name": "KEPT",
            "port": "8",
            "rest": "",
        }
        return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], path) + QUERIES.get((path, method), "")

    def send(self, path: str, method: str, token: str | None = None, **options: Any) -> requests.Response:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self.host.info.url}exec/v1{self.path(path, method)}"
        return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)

    def state(self) -> Any:
        """Return all that a request could change."""
        owner = owner_of(self.host)
        sessions = owner.call("GET", "/sessions?ended=true").json()["sessions"]
        executions = {s["id"]: owner.call("GET", f"/sessions/{s['id']}/executions").json() for s in sessions}
        return {
            "sessions": [(s["id"], s["state"], s["kernel_starts"]) for s in sessions],
            "executions": [(e["id"], e["state"]) for one in executions.values() for e in one["executions"]],
            "ports": owner.call("GET", f"/sessions/{self.session}/ports").json(),
            "checkpoints": [
                c["id"] for c in owner.call("GET", f"/sessions/{self.session}/checkpoints").json()["checkpoints"]
            ],
            "waits for input": owner.call("GET", f"/executions/{self.asking}").json()["state"],
            "files": owner.call("GET", f"/sessions/{self.session}/files").json(),
            "tokens": [t["id"] for t in owner.call("GET", "/tokens").json()["tokens"]],
            "grants": [g["id"] for g in owner.call("GET", "/grants").json()["grants"]],
            "secrets": owner.call("GET", "/secrets").json(),
            "secret": self.agent.call("GET", "/").status_code,
            "load": owner.call("GET", "/load").json()["draining"],
            "approvals": [e["id"] for e in owner.call("GET", "/approvals").json()["executions"]],
            "root": sorted(path.name for path in (self.host.home / "root").rglob("*")),
        }


@pytest.fixture(scope="module", params=["server", "gateway"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("cross-site")
    with running_host(request.param, home, UNPROTECTED) as host:
        agent = mint(host, policy="trusted", approval={"when": ["shell"], "timeout_seconds": 600})
        session = agent.session()
        assert agent.call("POST", f"/sessions/{session}/ports", json={"port": 8}).status_code == 201
        assert owner_of(host).call("PUT", f"/sessions/{session}/files/kept", data=b"1").status_code == 201
        secret = {"value": "kept-value", "hosts": ["a.example"], "header": "X-Key: {}"}
        assert owner_of(host).call("PUT", "/secrets/KEPT", json=secret).status_code == 200
        checkpoint = agent.call("POST", f"/sessions/{session}/checkpoints").json()["id"]
        path, later = f"/sessions/{session}/executions", {"Prefer": "respond-async"}
        asking = agent.call("POST", path, json={"code": "input('?')", "allow_input": True}, headers=later).json()["id"]
        approvable = agent.call("POST", path, json={"code": "!ls"}, headers=later).json()["id"]
        deadline = time.monotonic() + 30
        while agent.call("GET", f"/executions/{asking}").json()["state"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with ExecClient(host.owner) as client, client.standard_session() as notebook:
            shared = {"token_id": agent.id, "kernel_id": notebook.id}
            grant = owner_of(host).call("POST", "/grants", json=shared).json()["id"]
            yield World(host, agent, session, asking, approvable, grant, checkpoint, cookies_of(host))


def cookies_of(host: Host) -> dict[str, str]:
    """Return the cookies of a browser in which the owner has logged in."""
    browser = requests.Session()
    browser.get(f"{host.info.url}api/status?token={host.info.token}", timeout=30)
    browser.get(f"{host.info.url}api/kernelspecs?token={host.info.token}", timeout=30)
    return {str(cookie.name): str(cookie.value) for cookie in browser.cookies}


def body_of(path: str, method: str) -> dict[str, Any]:
    if (path, method) in BODIES:
        return {"json": BODIES[path, method]}
    return {"data": b"stolen"} if method == "PUT" else {}


def refused(answer: requests.Response, *codes: str) -> None:
    assert answer.status_code in (401, 403, 415), (answer.request.method, answer.request.url, answer.status_code)
    if answer.request.method != "HEAD":  # whose answer has no body
        assert answer.json()["code"] in codes, answer.text
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_world_has_something_to_change_for_each(world: World) -> None:
    """The control: with the right token the same requests are looked at, so the refusals below are for a reason."""
    state = world.state()
    assert (state["waits for input"], state["secret"], state["approvals"]) == ("running", 200, [world.approvable])
    assert {path for path, method in CHANGING if method == "POST"} - {path for path, _ in BODIES} == {
        "/sessions/{session_id}/interrupt",
        "/sessions/{session_id}/restart",
        "/executions/{execution_id}/cancel",
        "/drain",
        "/secret-key/rotate",
        "/sessions/{session_id}/ports/{port}/{rest}",  # a program's own, of any kind
    }
    for path, method in CELLS:
        if (
            method == "GET"
            and "outputs" not in path
            and "events" not in path
            and "{path}" not in path
            and "{rest}" not in path
        ):
            expected = 403 if path in ("/policies", "/approvals") or path.startswith("/secrets") else 200
            assert world.send(path, method, world.agent.token).status_code == expected, path


@pytest.mark.parametrize("origin", [None, *FOREIGN])
def test_a_cookie_alone_changes_nothing(world: World, origin: str | None) -> None:
    before = world.state()
    headers = {} if origin is None else {"Origin": origin}
    for path, method in CHANGING:
        for options in (body_of(path, method), {"data": json.dumps(BODIES.get((path, method), {}))}):
            kind = {} if "json" in options or method == "PUT" else {"Content-Type": "text/plain"}
            answer = world.send(path, method, cookies=world.cookies, headers={**headers, **kind}, **options)
            refused(answer, "unauthenticated", "xsrf_check_failed", "origin_not_allowed")
    if origin is not None:
        for path, method in CELLS:
            if method == "GET" and "events" not in path:
                answer = world.send(path, method, cookies=world.cookies, headers=headers)
                assert "Access-Control-Allow-Origin" not in answer.headers, path  # no other site can read it
    assert world.state() == before


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_token_from_another_site_is_refused(world: World, origin: str) -> None:
    before = world.state()
    tokens = [world.agent.token, *([str(world.host.info.token)] if world.host.is_gateway else [])]
    for path, method in CELLS:
        for token in tokens:
            answer = world.send(path, method, token, headers={"Origin": origin}, **body_of(path, method))
            refused(answer, "origin_not_allowed")
    assert world.state() == before


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1].evil.example"])
def test_under_a_foreign_name_nobody_is_let_in(world: World, name: str) -> None:
    """As after DNS rebinding: the browser takes the page for one of ours."""
    before = world.state()
    for path, method in CELLS:
        for token in (world.agent.token, str(world.host.info.token)):
            headers = {"Host": name, "Origin": f"http://{name}"}
            answer = world.send(path, method, token, headers=headers, **body_of(path, method))
            refused(answer, "host_not_allowed", "origin_not_allowed")
            refused(
                world.send(path, method, token, headers={"Host": name}, **body_of(path, method)), "host_not_allowed"
            )
    assert world.state() == before


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", "multipart/form-data", ""],
)
def test_a_body_that_a_form_can_send_is_not_read(world: World, kind: str) -> None:
    before = world.state()
    for path, method in BODIES:
        for token in (world.agent.token, str(world.host.info.token)):
            if path in OWNERS and token == world.agent.token:
                continue
            body = json.dumps(BODIES[path, method]).encode()
            answer = world.send(path, method, token, data=body, headers={"Content-Type": kind})
            refused(answer, "unsupported_media_type")
    assert world.state() == before


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_browser_that_asks_first_is_told_no(world: World, origin: str) -> None:
    for path, method in CELLS:
        headers = {"Origin": origin, "Access-Control-Request-Method": method}
        answer = world.send(path, "OPTIONS", headers=headers)
        assert "Access-Control-Allow-Origin" not in answer.headers, (path, answer.headers)


def test_without_an_origin_a_token_is_fine_and_nothing_else(world: World) -> None:
    before = world.state()
    for path, method in CELLS:
        refused(world.send(path, method, None, **body_of(path, method)), "unauthenticated")
        if method == "GET":
            assert world.send("/", "GET", world.agent.token).status_code == 200
    assert world.state() == before
    assert owner_of(world.host).call("PUT", f"/sessions/{world.session}/files/stolen", data=b"1").status_code == 201
    assert world.state() != before  # what the tests above look at does change
