"""F30: nothing that a caller sends makes the server connect anywhere, or chooses how a kernel is run.

F31: whatever is sent under a name is one line of the log, escaped and short.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_exec_ext.models import ApprovalAnswer, ExecutionRequest, SessionRequest, TokenRequest
from jupyter_exec_ext.server.base_handler import MAX_LOGGED_CHARACTERS, one_line
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import CANARY, Host, running_host


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(request.param, tmp_path_factory.mktemp("hostile"), UNPROTECTED) as started:
        yield started


@pytest.fixture(scope="module")
def session(host: Host) -> str:
    return owner_of(host).session()


# --- F30 ---


class Trap:
    """Listens, and counts who connects."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


def targets(port: int) -> list[str]:
    return [
        f"http://127.0.0.1:{port}/",
        f"http://[::ffff:127.0.0.1]:{port}/",
        f"http://[::1]:{port}/",
        f"http://0:{port}/",
        f"http://2130706433:{port}/",
        f"http://127.1:{port}/",
        f"http://user@127.0.0.1:{port}/",
        f"//127.0.0.1:{port}/",
        f"\\\\127.0.0.1@{port}\\share",
        f"tcp://127.0.0.1:{port}",
        f"127.0.0.1:{port}",
        f"gopher://127.0.0.1:{port}/_",
        "http://169.254.169.254/metadata/identity/oauth2/token",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "unix:/var/run/docker.sock",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "file:///etc/passwd",
        f"ldap://127.0.0.1:{port}/",
    ]


def attempts(session: str, target: str) -> list[tuple[str, str, Any, dict[str, str]]]:
    """Return requests that name a target wherever a text can stand."""
    executions = f"/sessions/{session}/executions"
    return [
        ("POST", "/sessions", {"kernel_name": target}, {}),
        ("POST", "/sessions", {"kernel_name": "no-such-kernel", "metadata": {"ip": target, "connection": target}}, {}),
        ("POST", executions, {"code": "1", "language": target}, {}),
        ("POST", executions, {"code": "1", "metadata": {"url": target, "callback": target}}, {}),
        ("POST", f"/sessions/{session}/notebook", {"path": target}, {}),
        ("POST", "/tokens", {"name": target, "scopes": ["sessions:read"], "policy": target}, {}),
        ("POST", "/tokens", {"name": "x", "scopes": ["sessions:read"], "limits": {"kernelspecs": [target]}}, {}),
        ("GET", f"/sessions/{session}/files?path={target}", None, {}),
        ("GET", f"/?url={target}&next={target}&redirect_uri={target}", None, {}),
        ("GET", "/", None, {"X-Forwarded-Host": target, "X-Forwarded-Proto": target, "X-Original-URL": target}),
        ("GET", "/", None, {"Referer": target, "Forwarded": f"host={target}", "X-Rewrite-URL": target}),
        ("GET", "/", None, {"Location": target, "Destination": target, "Via": target, "X-Callback": target}),
    ]


def test_f30_the_server_connects_to_nobody(host: Host, session: str, trap: Trap) -> None:
    owner = owner_of(host)
    made = 0
    with socket.create_connection(("127.0.0.1", trap.port), timeout=5):
        pass
    for target in targets(trap.port):
        for method, path, body, headers in attempts(session, target):
            answer = owner.call(method, path, json=body, headers=headers)
            assert answer.status_code < 500, (method, path, body, answer.text)
            assert answer.status_code not in (301, 302, 303, 307, 308)
            location = answer.headers.get("Location", "/")
            assert location.startswith("/exec/v1/") or location == "/", location
            assert "169.254" not in answer.headers.get("Location", "")
            made += 1
    assert made >= 200
    deadline = time.monotonic() + 5
    while trap.connections < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)  # for a connection that would be made in the background
    assert trap.connections == 1  # the test's own: the trap does count
    listed = owner.call("GET", "/tokens").json()["tokens"]
    for token in listed:
        owner.call("DELETE", f"/tokens/{token['id']}")


@pytest.mark.parametrize(
    "field",
    [
        *("ip", "host", "hostname", "port", "shell_port", "transport", "argv", "cmd", "command", "path"),
        *("connection_file", "connection_info", "key", "provisioner", "executable", "stdin", "url"),
        *("endpoint", "proxy", "user", "uid", "shell", "resource_dir", "owner", "principal", "isolation", "id"),
    ],
)
def test_f30_there_is_no_field_for_how_a_kernel_is_run(host: Host, session: str, field: str) -> None:
    owner = owner_of(host)
    before = len(owner.call("GET", "/sessions").json()["sessions"])
    requests: list[tuple[str, Any]] = [
        ("/sessions", {field: "127.0.0.1"}),
        (f"/sessions/{session}/executions", {"code": "1", field: "127.0.0.1"}),
    ]
    token: dict[str, Any] = {"name": "x", "scopes": ["sessions:read"]}
    requests.append(("/tokens", {**token, "limits": {field: "127.0.0.1"}}))
    requests.append(("/tokens", {**token, field: "127.0.0.1"}))
    for path, body in requests:
        answer = owner.call("POST", path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.text
    assert len(owner.call("GET", "/sessions").json()["sessions"]) == before


def test_f30_what_can_be_asked_for_is_what_is_known() -> None:
    """A new field of a request is to be thought about here."""
    fields = {
        cls: set(cls.__dataclass_fields__) for cls in (SessionRequest, ExecutionRequest, TokenRequest, ApprovalAnswer)
    }
    assert fields == {
        # `cwd` is below the session's own directory, and the kernel itself changes to it. `auto_checkpoint` is one of
        # two words, and needs a scope of its own.
        SessionRequest: {
            *("kernel_name", "name", "env", "metadata", "idle_timeout_seconds", "kernel_id", "isolation", "cwd"),
            "auto_checkpoint",
        },
        # `env` of a run is set in a kernel that runs already.
        ExecutionRequest: {"code", "language", "timeout_seconds", "metadata", "allow_input", "env"},
        TokenRequest: {"name", "policy", "scopes", "expires_in_seconds", "limits"},
        ApprovalAnswer: {"approve", "code", "reason", "for_session"},
    }


@pytest.mark.parametrize(
    "name", ["../python3", "python3/../python3", "/etc/passwd", "python3\0", "PYTHON3 ", "-m", "$(id)", "a" * 256, "."]
)
def test_f30_a_kernel_is_one_of_those_installed(host: Host, name: str) -> None:
    answer = owner_of(host).call("POST", "/sessions", json={"kernel_name": name})
    assert (answer.status_code, answer.json()["code"]) == (400, "kernelspec_not_found"), answer.text


def test_f30_the_environment_is_the_allowlist_and_no_more(host: Host) -> None:
    """Neither the server's own variables, nor, for a bound token, others than its policy lists."""
    agent = mint(host, policy="trusted", env=["KERNEL_MINE"])
    for name in ("LD_PRELOAD", "PYTHONSTARTUP", "PATH", "JUPYTER_TOKEN", "HTTP_PROXY", "IPYTHONDIR", "kernel_mine"):
        answer = agent.call("POST", "/sessions", json={"env": {"KERNEL_MINE": "1", name: "x"}})
        assert answer.status_code in (400, 403), name
        assert answer.json()["code"] in ("policy_denied", "invalid_request")
    started = agent.session(env={"KERNEL_MINE": "1"})
    names = agent.run(started, "import os, json; print(json.dumps(dict(os.environ)))").json()["stdout"]
    seen = json.loads(names)
    assert seen["KERNEL_MINE"] == "1"
    assert CANARY not in seen.values()
    assert not [name for name in seen if "TOKEN" in name]
    assert agent.call("DELETE", f"/sessions/{started}").status_code == 204


# --- F31 ---

FORGED = "FORGED-LINE"
MOST_LINE_BYTES = 2048
NAMES = {
    "CR LF": f"x\r\n{FORGED}",
    "LF": f"x\n{FORGED}",
    "CR": f"x\r{FORGED}",
    "other line ends": f"x\u2028{FORGED}\u2029{FORGED}\x85{FORGED}\x0b{FORGED}\x0c{FORGED}",
    "ANSI": f"\x1b[2J\x1b[1;31m{FORGED}\x1b]8;;http://evil.example\x07",
    "C1": f"\x9b2J{FORGED}",
    "bidi": f"\u202e{FORGED}\u2066",
    "NUL": f"\0{FORGED}",
    "half a surrogate pair": "\ud800",
    "long": "x" * 256,
    "1 MB": "x" * 1024**2,
}


@contextmanager
def logged(host: Host) -> Iterator[list[str]]:
    """Collect the lines that are logged meanwhile, up to a last request that is known by its id."""
    before = host.log.stat().st_size
    lines: list[str] = []
    yield lines
    last = f"last-{time.monotonic_ns()}"
    owner_of(host).call("GET", "/sessions/none", headers={"X-Request-Id": last})
    deadline = time.monotonic() + 10
    while last.encode() not in host.log.read_bytes()[before:]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    lines += host.log.read_bytes()[before:].decode(errors="replace").split("\n")


def check(lines: list[str]) -> None:
    for line in lines:
        assert len(line.encode()) <= MOST_LINE_BYTES, line[:200]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\u2066\ufffd]", line), repr(line[:500])
        assert not line.lstrip().startswith(FORGED)
        assert "Traceback" not in line and "Logging error" not in line, lines


@pytest.mark.parametrize("kind", NAMES)
def test_f31_in_a_body(host: Host, session: str, kind: str) -> None:
    name, owner = NAMES[kind], owner_of(host)
    with logged(host) as lines:
        answers = [
            owner.call("POST", "/sessions", json={"name": name, "kernel_name": name}),
            owner.call("POST", "/sessions", json={"env": {name: name}, "kernel_name": "none"}),
            owner.call("POST", "/sessions", json={name: name}),
            owner.call("POST", f"/sessions/{session}/executions", json={"code": "1", "language": name}),
            owner.call("POST", f"/sessions/{session}/notebook", json={"path": name}),
            owner.call("POST", "/tokens", json={"name": "x", "policy": name, "scopes": [name]}),
        ]
        named = owner.call("POST", "/tokens", json={"name": name, "scopes": ["sessions:read", "tokens:create"]})
        if named.status_code == 201:  # a name is anything; what is shown of it in the log is escaped
            bearer = Bearer(host, named.json()["token"], named.json()["id"])
            bearer.call("GET", "/sessions/none")
            bearer.call("POST", "/tokens", json={"name": name, "scopes": ["sessions:read"]})
            owner.call("DELETE", f"/tokens/{bearer.id}")
            assert bearer.call("GET", "/").status_code == 401
    assert {answer.status_code for answer in answers} <= {200, 400, 403}, [answer.text[:300] for answer in answers]
    check(lines)


def raw(host: Host, method: bytes, path: bytes, headers: bytes = b"") -> int:
    """Send what no HTTP library would; return the status, 0 for a connection that was closed."""
    assert host.info.port is not None
    with socket.create_connection((host.info.host, host.info.port), timeout=30) as connection:
        head = b"%s %sexec/v1%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % (
            method,
            host.info.base_url.encode(),
            path,
        )
        token = f"Authorization: Bearer {host.info.token}\r\n".encode()
        try:
            connection.sendall(head + token + headers + b"\r\n")
            return int(connection.makefile("rb").readline().split()[1])
        except (OSError, IndexError):
            return 0


PATHS = {
    "encoded CR LF": b"/sessions/%0d%0aFORGED-LINE",
    "encoded ANSI": b"/sessions/%1b%5b2JFORGED-LINE",
    "ANSI": b"/sessions/\x1b[2JFORGED-LINE",
    "CR": b"/sessions/x\rFORGED-LINE",
    "C1": b"/sessions/\xc2\x9b2J",
    "line separator": b"/sessions/\xe2\x80\xa8FORGED-LINE",
    "no UTF-8": b"/sessions/\xff\xfe",
    "long": b"/sessions/" + b"x" * 20_000,
    "long and encoded": b"/sessions/" + b"%0a" * 10_000,
    "long file": b"/sessions/ses_x/files/" + b"x" * 20_000,
    "long token": b"/tokens/" + b"x" * 20_000,
    "long query": b"/sessions?ended=" + b"x" * 20_000,
    "ANSI query": b"/sessions?ended=\x1b[2J",
}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"OPTIONS"])
def test_f31_in_a_path(host: Host, kind: str, method: bytes) -> None:
    with logged(host) as lines:
        assert raw(host, method, PATHS[kind]) < 500
    check(lines)


@pytest.mark.parametrize("value", [b"x\x1b[2J", b"\xff\xfe", b"x" * 20_000, b"x\tFORGED-LINE", "\u2028".encode()])
@pytest.mark.parametrize(
    "name",
    [b"X-Request-Id", b"User-Agent", b"Referer", b"Origin", b"Idempotency-Key", b"Last-Event-ID", b"X-Forwarded-For"],
)
def test_f31_in_a_header(host: Host, name: bytes, value: bytes) -> None:
    with logged(host) as lines:
        assert raw(host, b"GET", b"/sessions/none", name + b": " + value + b"\r\n") < 500
        assert raw(host, b"POST", b"/sessions/none/interrupt", name + b": " + value + b"\r\n") < 500
    check(lines)


@pytest.mark.parametrize("asked", ["x y", "x" * 65, "<script>", ""])
def test_f31_an_id_of_a_request_is_taken_over_only_if_it_is_one(host: Host, asked: str) -> None:
    answer = owner_of(host).call("GET", "/sessions/none", headers={"X-Request-Id": asked})
    assert re.fullmatch("[0-9a-f]{16}", answer.json()["request_id"])
    assert answer.headers["X-Request-Id"] == answer.json()["request_id"]


def test_f31_a_method_that_is_none(host: Host) -> None:
    with logged(host) as lines:
        for method in (b"x" * 20_000, b"\x1b[2J", b"GET\x1b"):
            assert raw(host, method, b"/sessions") < 500
    check(lines)


def test_f31_a_wrong_token(host: Host) -> None:
    with logged(host) as lines:
        for value in ("jex_" + "x" * 20_000, "jex_\x1b[2J", "x" * 20_000):
            connection = http.client.HTTPConnection(host.info.host, host.info.port, timeout=30)
            connection.request("GET", f"{host.info.base_url}exec/v1/", headers={"Authorization": f"Bearer {value}"})
            assert connection.getresponse().status in (400, 401)
            connection.close()
    check(lines)


@pytest.mark.parametrize("text", [*NAMES.values(), "", "\\" * 1000, "'\"", "\U0001f600" * 500])
def test_f31_a_line_is_one_line(text: str) -> None:
    shown = one_line(text)
    assert shown.isascii() and shown.isprintable()
    assert len(shown) <= MAX_LOGGED_CHARACTERS + len("...")
