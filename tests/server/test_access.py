"""Every route with no token, a wrong one and the right one, on every host; and everything around who may come in."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import requests
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from jupyter_exec_ext.auth.caller import Caller
from jupyter_exec_ext.errors import ExecError, InvalidRequest, Unauthenticated, Unavailable
from jupyter_exec_ext.server.gate import ServerGate
from jupyter_exec_ext.server.routes import ROUTES
from tests.support.hosts import Host, running_host

pytestmark = pytest.mark.every_place  # who may do what is held everywhere, in every commit


CELLS = [(route.path, method) for route in ROUTES for method in route.methods]
EXECUTION_CELLS = [
    (route.path, method) for route in ROUTES for method, access in route.methods.items() if access.action == "execute"
]


@pytest.fixture(params=["server", "gateway", "hub"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(params=["server", "gateway"])
def direct_host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    """Not behind a proxy, which may change the Host header and reads a body at its own pace."""
    started: Host = hosts[request.param]
    return started


BODIES = {
    ("/sessions/{session_id}/executions", "POST"): {"code": "1"},
    ("/executions", "POST"): {"code": "1"},
    ("/executions/{execution_id}/input", "POST"): {"value": "x"},
    ("/approvals/{execution_id}", "POST"): {"decision": "approve"},
    ("/sessions/{session_id}/network", "POST"): {"rule": "a.example"},
    ("/secrets/{secret_name}", "PUT"): {"value": "a-long-value", "hosts": ["a.example"], "header": "X-Key: {}"},
    ("/sessions/{session_id}/packages", "POST"): {"packages": ["no-such-package"]},
    ("/sessions/{session_id}/restore", "POST"): {"checkpoint": "chk_unknown"},
}


def call(host: Host, method: str, path: str, token: str | None, **options: Any) -> requests.Response:
    headers = dict(options.pop("headers", {}))
    if token is not None:
        headers["Authorization"] = f"token {token}"
    url = f"{host.info.url}exec/v1{path}"
    return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)


def code_of(answer: requests.Response, *expected: str) -> str:
    """Return the code of an error; an answer to HEAD has no body, so its status has to do."""
    is_head = answer.request.method == "HEAD"
    return (expected or ("unauthenticated",))[-1] if is_head else str(answer.json()["code"])


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "ses_unknown", path)


@pytest.mark.parametrize(("path", "method"), CELLS)
def test_without_a_token_nothing_is_told(host: Host, path: str, method: str) -> None:
    answer = call(host, method, filled(path), None)
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(("path", "method"), CELLS)
@pytest.mark.parametrize("token", ["wrong", "", "jex_abcdefgh_secret"])
def test_with_a_wrong_token_nothing_is_told(host: Host, path: str, method: str, token: str) -> None:
    answer = call(host, method, filled(path), token)
    refusals = [(401, "unauthenticated")]
    if token.startswith("jex_"):  # so many of these are more than an address may try
        refusals.append((429, "too_many_attempts"))
    assert (
        answer.status_code,
        code_of(answer, *(code for status, code in refusals if status == answer.status_code)),
    ) in refusals
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(("path", "method"), CELLS)
def test_with_the_right_token_the_request_is_looked_at(host: Host, path: str, method: str) -> None:
    # As a stream, since the feed of what happens has no end.
    with call(host, method, filled(path), host.info.token, json=BODIES.get((path, method)), stream=True) as answer:
        assert answer.status_code not in (401, 403)
        if (path, method) == ("/secrets/{secret_name}", "PUT"):  # it makes one, but not with this name
            assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        elif "{" in path:
            assert answer.status_code == 404
            assert code_of(answer, "session_not_found") in {
                f"{kind}_not_found" for kind in ("session", "execution", "token", "grant", "secret")
            }
        if answer.status_code == 201:
            call(host, "DELETE", f"/sessions/{answer.json()['id']}", host.info.token)
        if path == "/drain":  # the host serves other tests
            call(host, "DELETE", path, host.info.token)


@pytest.mark.parametrize("path", ["/nope", "/sessions/a/b", "/token"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_tells_a_stranger_nothing(host: Host, path: str, method: str) -> None:
    assert call(host, method, path, None).status_code == 401
    assert call(host, method, path, host.info.token).status_code == 404


def test_the_table_is_all_there_is(host: Host) -> None:
    """Methods outside the table are refused on every path, for those who may come in."""
    for route in ROUTES:
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - set(route.methods):
            answer = call(host, method, filled(route.path), host.info.token)
            assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed"), (method, route.path)


# --- an authorizer that says no ---

AUTHORIZER = """
from jupyter_server.auth import Authorizer

class NoExecute(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return action != "execute"

class ReadOnly(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return action == "read"
"""


@pytest.fixture(scope="module", params=["server", "gateway"])
def restricted_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("restricted")
    (home / "no_execute.py").write_text(AUTHORIZER)
    app = "KernelGatewayApp" if request.param == "gateway" else "ServerApp"
    option = f"--{app}.authorizer_class=no_execute.NoExecute"
    with running_host(request.param, home, option, env={"PYTHONPATH": str(home)}) as host:
        yield host


@pytest.mark.parametrize(("path", "method"), EXECUTION_CELLS)
def test_an_authorizer_that_denies_execute_stops_every_execution_route(
    restricted_host: Host, path: str, method: str
) -> None:
    answer = call(restricted_host, method, filled(path), restricted_host.info.token)
    assert (answer.status_code, code_of(answer, "forbidden")) == (403, "forbidden")


def test_such_an_authorizer_leaves_the_rest_alone(restricted_host: Host) -> None:
    assert len(EXECUTION_CELLS) >= 8
    created = call(restricted_host, "POST", "/sessions", restricted_host.info.token)
    assert created.status_code == 201
    path = f"/sessions/{created.json()['id']}"
    assert call(restricted_host, "GET", path, restricted_host.info.token).status_code == 200
    assert call(restricted_host, "POST", f"{path}/executions", restricted_host.info.token).status_code == 403
    assert call(restricted_host, "DELETE", path, restricted_host.info.token).status_code == 204


def test_such_an_authorizer_keeps_others_kernels_from_being_attached(restricted_host: Host) -> None:
    token = restricted_host.info.token
    kernels = f"{restricted_host.info.url}api/kernels"
    kernel = requests.post(kernels, json={}, headers=restricted_host.info.auth_headers, timeout=60).json()
    answer = call(restricted_host, "POST", "/sessions", token, json={"kernel_id": kernel["id"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert requests.delete(f"{kernels}/{kernel['id']}", headers=restricted_host.info.auth_headers, timeout=60).ok


def test_a_read_only_user_starts_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "no_execute.py").write_text(AUTHORIZER)
    option = "--ServerApp.authorizer_class=no_execute.ReadOnly"
    with running_host("server", tmp_path, option, env={"PYTHONPATH": str(tmp_path)}) as host:
        for path, method in CELLS:
            expected = method == "GET" and (path, method) not in EXECUTION_CELLS
            with call(host, method, filled(path), host.info.token, stream=True) as answer:
                assert (answer.status_code != 403) is expected, (method, path)


# --- where the request comes from ---


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "localhost.evil.example"])
def test_a_foreign_host_name_is_refused(direct_host: Host, name: str) -> None:
    answer = call(direct_host, "GET", "/", direct_host.info.token, headers={"Host": name})
    assert (answer.status_code, answer.json()["code"]) == (403, "host_not_allowed")


def test_our_own_names_are_fine(host: Host) -> None:
    for name in (f"localhost:{host.info.port}", f"127.0.0.1:{host.info.port}", "localhost"):
        assert call(host, "GET", "/", host.info.token, headers={"Host": name}).status_code == 200


def test_a_token_in_the_url_opens_nothing_at_a_gateway(hosts: Any) -> None:
    gateway: Host = hosts["gateway"]
    answer = call(gateway, "GET", f"/?token={gateway.info.token}", None)
    assert answer.status_code == 401
    assert str(gateway.info.token) not in gateway.log_text()


def test_a_gateway_sets_no_cookie_and_takes_none(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path) as gateway:  # not a shared one: Jupyter logs the URL, with the token in it
        stock = requests.get(f"{gateway.info.url}api/kernelspecs?token={gateway.info.token}", timeout=30)
        assert "Set-Cookie" not in call(gateway, "GET", "/", gateway.info.token).headers
        assert call(gateway, "GET", "/", None, cookies=dict(stock.cookies)).status_code == 401


def test_a_browser_on_another_site_is_refused_at_a_gateway(hosts: Any) -> None:
    gateway: Host = hosts["gateway"]
    for origin in ("https://evil.example", "null", "http://[", "http://[::1", "://"):
        answer = call(gateway, "POST", "/sessions", gateway.info.token, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")
    own = f"http://127.0.0.1:{gateway.info.port}"
    assert call(gateway, "GET", "/", gateway.info.token, headers={"Origin": own}).status_code == 200


def test_a_login_cookie_needs_the_xsrf_token_and_the_own_origin(hosts: Any) -> None:
    server: Host = hosts["server"]
    browser = requests.Session()
    browser.get(f"{server.info.url}api/status?token={server.info.token}", timeout=30)
    url = f"{server.info.url}exec/v1/"
    assert browser.get(url, timeout=30).json()["caller"]["principal"] == "owner"
    refused = browser.post(f"{url}sessions", timeout=30)
    assert (refused.status_code, refused.json()["code"]) == (403, "xsrf_check_failed")
    xsrf = {"X-XSRFToken": str(browser.cookies["_xsrf"])}
    foreign = browser.post(f"{url}sessions", headers={**xsrf, "Origin": "https://evil.example"}, timeout=30)
    assert (foreign.status_code, foreign.json()["code"]) == (403, "origin_not_allowed")
    malformed = browser.post(f"{url}sessions", headers={**xsrf, "Origin": "http://["}, timeout=30)
    assert (malformed.status_code, malformed.json()["code"]) == (403, "origin_not_allowed")
    created = browser.post(f"{url}sessions", headers=xsrf, timeout=60)
    assert created.status_code == 201
    assert browser.delete(f"{url}sessions/{created.json()['id']}", headers=xsrf, timeout=30).status_code == 204


def test_a_malformed_referer_is_as_good_as_none(host: Host) -> None:
    before = len(host.log_text())
    for token, status in ((host.info.token, 200), (None, 401)):
        assert call(host, "GET", "/sessions", token, headers={"Referer": "http://["}).status_code == status
    assert "Traceback" not in host.log_text()[before:]


@pytest.mark.parametrize("token", [None, "right"])
def test_a_token_in_the_url_that_is_no_text_is_refused_and_not_repeated(host: Host, token: str | None) -> None:
    answer = call(host, "GET", "/?token=hidden-4711%FF", token and host.info.token)
    # A gateway never reads it; a Hub's users' server, only when it knows the sender.
    expected = {"gateway": (200, 401), "hub": (400, 401)}.get(host.name, (400, 400))[token is None]
    assert answer.status_code == expected
    assert "hidden-4711" not in answer.text


class NoBearers:
    """A server without a single scoped token."""

    def authenticate(self, text: str, address: str) -> Caller:
        raise Unauthenticated("there are no tokens")


@pytest.mark.parametrize(("status", "error"), [(500, Unavailable), (503, Unavailable), (400, InvalidRequest)])
async def test_a_host_that_cannot_tell_who_it_is_says_so(
    monkeypatch: pytest.MonkeyPatch, status: int, error: type[ExecError]
) -> None:
    """Such as when a Hub does not answer."""

    async def fail(handler: Any) -> None:
        raise HTTPError(status, "of no concern to the caller")

    monkeypatch.setattr(APIHandler, "prepare", fail)
    handler: Any = SimpleNamespace(request=SimpleNamespace(headers={}), check_host=lambda: True)
    with pytest.raises(error) as raised:
        await ServerGate(NoBearers()).authenticate(handler)
    assert "concern" not in raised.value.message


# --- how much it costs to be refused ---


def connect(host: Host) -> socket.socket:
    assert host.info.port is not None
    return socket.create_connection((host.info.host, host.info.port), timeout=30)


def test_a_body_from_a_stranger_is_not_read(direct_host: Host) -> None:
    """400 MiB without credentials: refused by the headers, the connection closed, no memory taken."""
    size = 400 * 1024 * 1024
    before = psutil.Process(direct_host.pid).memory_info().rss
    sent = 0
    with connect(direct_host) as connection:
        request = f"POST {direct_host.info.base_url}exec/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
        headers = f"Content-Length: {size}\r\nContent-Type: application/json\r\n\r\n"
        connection.sendall(f"{request}{headers}".encode())
        answer = connection.recv(12)
        chunk = b" " * 2**20
        try:
            while sent < size:
                connection.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
    assert answer == b"HTTP/1.1 401"
    assert sent < size // 10
    assert psutil.Process(direct_host.pid).memory_info().rss - before < 5 * 2**20


def test_a_question_about_options_has_no_body(direct_host: Host) -> None:
    before = len(direct_host.log_text())
    with connect(direct_host) as connection:
        path = f"{direct_host.info.base_url}exec/v1/sessions"
        connection.sendall(f"OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert "AttributeError" not in direct_host.log_text()[before:]


@pytest.mark.parametrize("length", ["1" * 5000, "9" * 19, "0" * 30 + "99999999999"])
def test_a_length_beyond_all_bounds_is_too_much_and_no_defect(direct_host: Host, length: str) -> None:
    with connect(direct_host) as connection:
        request = f"POST {direct_host.info.base_url}exec/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
        headers = f"Authorization: token {direct_host.info.token}\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(f"{request}{headers}".encode())
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_whoever_sends_too_much_at_once_is_told_so(direct_host: Host) -> None:
    before, size = psutil.Process(direct_host.pid).memory_info().rss, 30 * 2**20
    with connect(direct_host) as connection:
        request = f"POST {direct_host.info.base_url}exec/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
        headers = f"Authorization: token {direct_host.info.token}\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(f"{request}{headers}".encode() + b" " * size)
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert psutil.Process(direct_host.pid).memory_info().rss - before < 10 * 2**20


def test_an_endless_chunked_body_is_cut_off(direct_host: Host) -> None:
    before = psutil.Process(direct_host.pid).memory_info().rss
    sent = 0
    with connect(direct_host) as connection:
        request = f"POST {direct_host.info.base_url}exec/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
        headers = f"Authorization: token {direct_host.info.token}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{request}{headers}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        try:
            while sent < 400 * 2**20:
                connection.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
    assert sent < 40 * 2**20
    assert psutil.Process(direct_host.pid).memory_info().rss - before < 40 * 2**20


def test_a_refusal_is_logged_under_the_id_that_the_caller_got(host: Host) -> None:
    answer = call(host, "GET", "/sessions/ses_unknown", host.info.token)
    deadline = time.monotonic() + 5
    while answer.json()["request_id"] not in host.log_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answer.json()["request_id"] in host.log_text()


def test_no_log_line_can_be_forged(host: Host) -> None:
    call(host, "POST", "/sessions", host.info.token, json={"name": "x\r\nFORGED", "kernel_name": "y\r\nFORGED"})
    call(host, "GET", "/sessions/%0d%0aFORGED", host.info.token)
    assert not [line for line in host.log_text().splitlines() if line.startswith("FORGED")]
