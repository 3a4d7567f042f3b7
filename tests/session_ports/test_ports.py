"""Ports of real sessions on both hosts: as programs with a token use them, and as browsers do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket

from jupyter_exec_ext.models import AuditKind
from jupyter_exec_ext.session_ports.port_exchange import MAX_BODY_BYTES
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.port_apps import (
    PORT,
    enter,
    open_port,
    start_echo_app,
    until_refused,
    visit,
)

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.every_place]
JUPYTERS = {
    "Cookie": "_xsrf=jupyters; username-127-0-0-1-8888=jupyters; jupyterhub-session-id=jupyters; app=1",
    "X-XSRFToken": "jupyters",
    "X-CSRFToken": "jupyters",
    "Proxy-Authorization": "Basic jupyters",
    "X-Forwarded-Host": "evil.example",
    "Referer": "http://127.0.0.1/?token=jupyters",
}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(str(request.param), tmp_path_factory.mktemp("ports"), UNPROTECTED) as started:
        yield started


@pytest.fixture(scope="module")
def agent(host: Host) -> Bearer:
    return mint(host, policy="trusted", name="agent")


@pytest.fixture(scope="module")
def session_id(agent: Bearer) -> str:
    made = agent.session(isolation="sandbox")
    start_echo_app(agent, made)
    assert open_port(agent, made)["port"] == PORT
    return made


def path_of(session_id: str, rest: str = "/") -> str:
    return f"/sessions/{session_id}/ports/{PORT}{rest}"


def socket_to(agent: Bearer, session_id: str, **headers: str) -> websocket.WebSocket:
    url = f"{agent.host.info.url}exec/v1{path_of(session_id, '/socket')}".replace("http", "ws", 1)
    made: websocket.WebSocket = websocket.create_connection(url, header=headers, timeout=30)
    return made


def test_request_of_program_reaches_app_without_credentials(agent: Bearer, session_id: str) -> None:
    path = path_of(session_id, f"/a%2Fb?q=1&token={agent.token}")
    answer = agent.call("POST", path, headers=JUPYTERS, data=b"x" * 3_000_000)
    seen = answer.json()
    assert (seen["method"], seen["uri"], seen["body_bytes"]) == ("POST", "/a%2Fb?q=1", 3_000_000)
    text = json.dumps(seen)
    assert "jupyters" not in text and agent.token not in text and "evil.example" not in text
    headers = dict(seen["headers"])
    assert "Cookie" not in headers and "Authorization" not in headers
    assert headers["X-Forwarded-Prefix"] == f"/exec/v1{path_of(session_id)}".rstrip("/")


def test_answer_to_program_changes_nothing_on_jupyters_host_name(agent: Bearer, session_id: str) -> None:
    answer = agent.call("GET", path_of(session_id))
    for name in ("Set-Cookie", "Service-Worker-Allowed", "Clear-Site-Data"):
        assert name not in answer.headers
    assert answer.headers.get("Access-Control-Allow-Origin") != "*" or agent.host.is_gateway
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method_is_passed_on(agent: Bearer, session_id: str, method: str) -> None:
    answer = agent.call(method, path_of(session_id))
    assert answer.status_code == 200
    assert answer.content == b"" if method == "HEAD" else answer.json()["method"] == method


def test_large_answer_arrives_whole_in_pieces(agent: Bearer, session_id: str) -> None:
    assert len(agent.call("GET", path_of(session_id, "/large")).content) == 200 * 65536


def test_redirection_stays_below_the_ports_path(agent: Bearer, session_id: str) -> None:
    prefix = f"/exec/v1{path_of(session_id)}".rstrip("/")
    for to, expected in (
        ("/api/shutdown", f"{prefix}/api/shutdown"),
        (f"http://127.0.0.1:{agent.host.info.port}/api", f"{prefix}/api"),
        (f"{prefix}/%252e%252e/%2e%2e/api", None),
        ("http://elsewhere.example/x", "http://elsewhere.example/x"),
    ):
        answer = agent.call("GET", path_of(session_id, "/redirect"), params={"to": to})
        assert (answer.status_code, answer.headers.get("Location")) == (307, expected)


def test_websocket_of_program_works_with_token_alone(agent: Bearer, session_id: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        socket_to(agent, session_id, Cookie="_xsrf=1")
    assert refused.value.status_code == 401
    made = socket_to(agent, session_id, Authorization=f"token {agent.token}", Cookie="_xsrf=jupyters")
    made.send("headers")
    assert "jupyters" not in made.recv() and agent.token not in str(made.sock)
    made.send("x" * 1_000_000)
    assert len(json.loads(made.recv())["message"]) == 1_000_000
    made.close()


def test_browser_enters_by_ticket_once_and_sees_the_app(agent: Bearer, session_id: str) -> None:
    record = open_port(agent, session_id)
    page = enter(agent, record["browser_url"])
    assert visit(agent, record["browser_url"]).status_code == 403
    assert record["browser_url"].rpartition("/")[2] not in agent.host.log_text()
    answer = page.get("/api/status?x=1", **{k: v for k, v in JUPYTERS.items() if k != "Cookie"})
    seen = answer.json()
    assert seen["uri"] == "/api/status?x=1"
    assert dict(seen["headers"])["Host"] == page.host
    assert "Cookie" not in dict(seen["headers"])
    assert answer.headers["Set-Cookie"] == "app=1; Path=/" and "Clear-Site-Data" not in answer.headers
    page.cookie += f"; {JUPYTERS['Cookie']}"
    assert dict(page.get("/").json()["headers"])["Cookie"] == "app=1"


def test_cookie_of_browser_is_for_scripts_unreadable_and_for_this_name_alone(agent: Bearer, session_id: str) -> None:
    cookie = visit(agent, open_port(agent, session_id)["browser_url"]).headers["Set-Cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "path=/", "samesite=lax"}


def test_browsers_websocket_needs_cookie_and_own_origin(agent: Bearer, session_id: str) -> None:
    page = enter(agent, open_port(agent, session_id)["browser_url"])
    made = page.socket()
    made.send("headers")
    assert "exec-port" not in made.recv()
    made.close()
    with pytest.raises(websocket.WebSocketBadStatusException):
        page.socket(origin=f"http://127.0.0.1:{agent.host.info.port}")
    page.cookie = "exec-port=wrong"
    with pytest.raises(websocket.WebSocketBadStatusException):
        page.socket()


@pytest.mark.parametrize("path", ["/", "/api/status", "/exec/v1/", "/favicon.ico", "/static/style/style.min.css"])
def test_ports_host_name_has_nothing_of_jupyter(agent: Bearer, session_id: str, path: str) -> None:
    page = enter(agent, open_port(agent, session_id)["browser_url"])
    owner = owner_of(agent.host)
    for name in (page.host, page.host.upper(), page.host.replace(":", ".:"), "p1-0123456789abcdef.localhost"):
        sent = {"Host": name, "Authorization": f"token {owner.token}", "Cookie": JUPYTERS["Cookie"]}
        answer = requests.get(f"{page.address}{path}", headers=sent, timeout=30)
        assert (answer.status_code, answer.headers["Content-Type"]) == (403, "text/plain; charset=utf-8")
        assert "This address belongs to an app" in answer.text


def test_cross_site_request_of_browser_is_refused(agent: Bearer, session_id: str) -> None:
    page = enter(agent, open_port(agent, session_id)["browser_url"])
    for headers in (
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"},
        {"Origin": "http://other.localhost"},
        {"Origin": "http://["},
    ):
        assert page.get("/", **headers).status_code == 403
    assert page.get("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}).status_code == 200


def test_app_is_never_served_on_jupyters_host_name_without_header(hosts: Any) -> None:
    server: Host = hosts["server"]
    owner = owner_of(server)
    made = owner.session(isolation="sandbox")
    start_echo_app(owner, made)
    open_port(owner, made)
    browser = requests.Session()
    browser.get(f"{server.info.url}api/status?token={server.info.token}", timeout=30)
    url = f"{server.info.url}exec/v1{path_of(made)}"
    for answer in (
        browser.get(url, timeout=30),
        browser.get(f"{url}?token={server.info.token}", timeout=30),
        browser.get(url, headers={"Authorization": "Basic x"}, timeout=30),
    ):
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    owner.call("DELETE", f"/sessions/{made}")


@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("POST", ""), ("DELETE", f"/{PORT}"), ("GET", f"/{PORT}/"), ("POST", f"/{PORT}/")]
)
def test_access_to_each_endpoint(agent: Bearer, session_id: str, method: str, rest: str) -> None:
    path = f"/sessions/{session_id}/ports{rest}"
    body = {"json": {"port": PORT}} if method == "POST" else {}
    unscoped = mint(agent.host, ["sessions:read", "executions:create"], policy="trusted")
    other = mint(agent.host, policy="trusted")
    for bearer, status, code in (
        (Bearer(agent.host, "wrong"), 401, "unauthenticated"),
        (unscoped, 403, "missing_scope"),
        (other, 404, "session_not_found"),
    ):
        answer = bearer.call(method, path, **body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert agent.call(method, path, **body).status_code in (200, 201, 204)
    open_port(agent, session_id)


@pytest.mark.parametrize("port", [0, -1, 65536, 1.5, True, "8501", None, [8501]])
def test_port_that_is_none_is_refused(agent: Bearer, session_id: str, port: Any) -> None:
    answer = agent.call("POST", f"/sessions/{session_id}/ports", json={"port": port})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    for text in ("0", "08501", "65536", "9" * 30, "x"):
        assert agent.call("GET", f"/sessions/{session_id}/ports/{text}/").json()["code"] == "port_not_found"


def test_policy_limits_open_ports_and_may_allow_none(agent: Bearer, session_id: str) -> None:
    few = mint(agent.host, policy="trusted", max_ports=2)
    made = few.session(isolation="sandbox")
    for port in (1000, 1001):
        open_port(few, made, port)
    open_port(few, made, 1000)  # is open
    answer = few.call("POST", f"/sessions/{made}/ports", json={"port": 1002})
    assert (answer.status_code, answer.json()["limit"]["name"]) == (429, "max_ports")
    assert few.call("DELETE", f"/sessions/{made}/ports/1000").status_code == 204
    open_port(few, made, 1002)
    assert owner_of(agent.host).call("GET", f"/sessions/{made}").json()["open_ports"] == [1001, 1002]
    few.call("DELETE", f"/sessions/{made}")
    none = mint(agent.host, policy="trusted", max_ports=0)
    made = none.session(isolation="sandbox")
    answer = none.call("POST", f"/sessions/{made}/ports", json={"port": 1002})
    assert (answer.status_code, answer.json()["code"]) == (403, "policy_denied")
    none.call("DELETE", f"/sessions/{made}")


def test_policy_limits_requests_and_websockets_at_once(agent: Bearer, session_id: str) -> None:
    one = mint(agent, policy="trusted", max_streams=1)
    made = one.session(isolation="sandbox")
    start_echo_app(one, made)
    page = enter(one, open_port(one, made)["browser_url"])
    held = page.socket()
    for answer in (page.get("/"), one.call("GET", path_of(made))):
        assert answer.status_code == 429
    held.close()
    one.call("DELETE", f"/sessions/{made}")


def test_port_without_listener_and_closed_port_say_so(agent: Bearer, session_id: str) -> None:
    open_port(agent, session_id, 4000)
    answer = agent.call("GET", f"/sessions/{session_id}/ports/4000/")
    assert (answer.status_code, answer.json()["code"]) == (502, "port_unreachable")
    assert agent.call("DELETE", f"/sessions/{session_id}/ports/4000").status_code == 204
    answer = agent.call("GET", f"/sessions/{session_id}/ports/4000/")
    assert (answer.status_code, answer.json()["code"]) == (404, "port_not_found")


def test_port_stays_open_through_a_restart_and_reaches_the_new_kernel(agent: Bearer, session_id: str) -> None:
    assert agent.call("GET", path_of(session_id)).json()["version"] == 1
    assert agent.call("POST", f"/sessions/{session_id}/restart").status_code == 200
    assert agent.call("GET", path_of(session_id)).json()["code"] == "port_unreachable"
    start_echo_app(agent, session_id, version=2)
    assert agent.call("GET", path_of(session_id)).json()["version"] == 2
    assert [record["port"] for record in agent.call("GET", f"/sessions/{session_id}/ports").json()["ports"]] == [PORT]


def test_end_of_token_ends_its_browsers_and_websockets(agent: Bearer, session_id: str) -> None:
    brief = mint(agent, policy="trusted")
    made = agent.session(isolation="sandbox")
    start_echo_app(agent, made)
    page = enter(agent, open_port(agent, made)["browser_url"])
    own = brief.session(isolation="sandbox")
    start_echo_app(brief, own)
    its_page = enter(brief, open_port(brief, own)["browser_url"])
    by_cookie, by_token = its_page.socket(), socket_to(brief, own, Authorization=f"token {brief.token}")
    assert owner_of(agent.host).call("DELETE", f"/tokens/{brief.id}").status_code == 204
    until_refused(its_page)
    for each in (by_cookie, by_token):
        with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):
            each.recv()
    assert page.get("/").status_code == 200
    agent.call("DELETE", f"/sessions/{made}")
    until_refused(page)


def test_unisolated_session_reaches_its_own_listeners_alone(agent: Bearer) -> None:
    one, other = agent.session(isolation="none"), agent.session(isolation="none")
    port = start_echo_app(agent, one, 0)
    for made in (one, other):
        open_port(agent, made, port)
        open_port(agent, made, int(agent.host.info.port or 0))
        answer = agent.call("GET", f"/sessions/{made}/ports/{agent.host.info.port}/api/status")
        assert (answer.status_code, answer.json()["code"]) == (502, "port_unreachable")
    assert agent.call("GET", f"/sessions/{one}/ports/{port}/").status_code == 200
    assert agent.call("GET", f"/sessions/{other}/ports/{port}/").json()["code"] == "port_unreachable"
    for made in (one, other):
        agent.call("DELETE", f"/sessions/{made}")


def test_listener_for_ipv6_alone_does_not_lead_to_the_servers_own_port(agent: Bearer) -> None:
    made, number = agent.session(isolation="none"), agent.host.info.port
    code = f"""if True:
        import socket, threading
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(("::", {number}))
        listener.listen()
        def answer():
            opened, _ = listener.accept()
            opened.recv(4096)
            opened.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nown")
        threading.Thread(target=answer).start()
    """
    started = agent.run(made, code).json()
    assert started["state"] == "ok", started
    open_port(agent, made, int(number or 0))
    assert agent.call("GET", f"/sessions/{made}/ports/{number}/api/status").text == "own"
    agent.call("DELETE", f"/sessions/{made}")


def test_audit_trail_has_openings_sums_of_use_and_closings(agent: Bearer, host: Host) -> None:
    made = agent.session(isolation="sandbox")
    start_echo_app(agent, made)
    open_port(agent, made)
    for _ in range(3):
        agent.call("POST", path_of(made), data=b"x" * 1000)
    agent.call("DELETE", f"/sessions/{made}/ports/{PORT}")
    agent.call("DELETE", f"/sessions/{made}")
    with closing(AuditReader(host.home / "jupyter_data_dir" / "jupyter_exec_ext")) as trail:
        records = [line.record() for line in trail.newest(1000)]
    found = [each for each in records if each.kind is AuditKind.PORT and each.subject == made]
    assert sorted(each.action for each in found) == ["closed", "opened", "used"]
    used = next(each for each in found if each.action == "used")
    assert (used.data["requests"], used.data["sent_bytes"], used.principal) == (3, 3000, f"token:{agent.id}")


def test_logout_of_the_owner_ends_what_the_browser_has_open(tmp_path: Path) -> None:
    with running_host("server", tmp_path) as server:
        owner = owner_of(server)
        made = owner.session(isolation="sandbox")
        start_echo_app(owner, made)
        page = enter(owner, open_port(owner, made)["browser_url"])
        browser = requests.Session()
        browser.get(f"{server.info.url}api/status?token={server.info.token}", timeout=30)
        requests.get(f"{server.info.url}logout", timeout=30)  # of a stranger
        assert page.get("/").status_code == 200
        assert browser.get(f"{server.info.url}logout", timeout=30).ok
        assert page.get("/").status_code == 403


def test_wildcard_of_the_administrator_has_ports_alone(tmp_path: Path) -> None:
    options = ("--ExecEngine.ports_host=*.apps.example.net", "--ServerApp.allow_remote_access=True")
    with running_host("server", tmp_path, *options) as server:
        owner = owner_of(server)
        made = owner.session(isolation="sandbox")
        start_echo_app(owner, made)
        url = open_port(owner, made)["browser_url"]
        assert url.split("/")[2].endswith(f".apps.example.net:{server.info.port}")
        page = enter(owner, url)
        assert page.get("/x").json()["uri"] == "/x"
        for name in ("apps.example.net", "other.apps.example.net", page.host):
            headers = {"Host": name, "Authorization": f"token {owner.token}"}
            answer = requests.get(f"{page.address}/api/status", headers=headers, timeout=30)
            assert (answer.status_code, "This address belongs to an app" in answer.text) == (403, True)
        headers = {"Host": f"{page.host.partition('.')[0]}.localhost", "Authorization": f"token {owner.token}"}
        assert requests.get(f"{page.address}/api/status", headers=headers, timeout=30).ok  # Jupyter's own, as asked for


def test_body_beyond_the_limit_and_body_of_unknown_length_are_refused(agent: Bearer, session_id: str) -> None:
    info = agent.host.info
    head = f"/exec/v1{path_of(session_id)} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: token {agent.token}\r\n"
    for request, status in (
        (f"POST {head}Content-Length: {MAX_BODY_BYTES + 1}\r\n\r\n", b"HTTP/1.1 400 "),
        (f"DELETE {head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 400 "),
        (f"GET {head.replace('/ HTTP', '/' + 'x' * 33_000 + ' HTTP')}\r\n", b"HTTP/1.1 400 "),
    ):
        with socket.create_connection(("127.0.0.1", int(info.port or 0)), timeout=30) as connection:
            connection.sendall(request.encode())
            assert connection.recv(13) == status
    with socket.create_connection(("127.0.0.1", int(info.port or 0)), timeout=30) as connection:
        connection.sendall(f"POST {head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode())
        assert connection.recv(13) == b"HTTP/1.1 200 "


@pytest.mark.parametrize(
    "answer", ["garbage", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 200 OK\r\nA\r\n\r\n"]
)
def test_answer_that_is_not_http_is_an_error_of_the_port(agent: Bearer, session_id: str, answer: str) -> None:
    code = f"""
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    connection, _ = server.accept()
    connection.recv(100_000)
    connection.sendall({answer!r}.encode())
    connection.close()
threading.Thread(target=serve, daemon=True).start()
print(server.getsockname()[1])
"""
    port = int(agent.run(session_id, code).json()["stdout"])
    open_port(agent, session_id, port)
    refused = agent.call("GET", f"/sessions/{session_id}/ports/{port}/")
    assert (refused.status_code, refused.json()["code"]) == (502, "port_unreachable")
    agent.call("DELETE", f"/sessions/{session_id}/ports/{port}")
