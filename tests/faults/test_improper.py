"""Requests that no document describes and no library sends: each is refused or cut off, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from jupyter_exec_ext import ExecClient
from tests.support.hosts import Host, running_host

# There is room for the sessions that some of the requests start, and then for no more.
MAX_SESSIONS = 8


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = [f"--ExecEngine.max_sessions={MAX_SESSIONS}"]
    if request.param == "gateway":
        options.append(f"--KernelGatewayApp.max_kernels={MAX_SESSIONS + 2}")
    with running_host(request.param, tmp_path_factory.mktemp("improper"), *options) as host:
        yield host


DEEP = 100_000
# Valid JSON, invalid JSON, and what only some readers take for JSON.
BODIES = [
    b"",
    b"{",
    b"\0",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'"code"',
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"1" * 5000,
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP,
    b'\xef\xbb\xbf{"code": "1"}',
    '{"code": "1"}'.encode("utf-16"),
    b'{"code": "\xed\xa0\x80"}',
    b'{"code": "1", "code": 1}',
    b'{"code": "1"} {"code": "1"}',
]
FIELDS = [
    "code",
    "name",
    "kernel_name",
    "language",
    "env",
    "metadata",
    "path",
    "value",
    "timeout_seconds",
    "\ud800",
    "",
]
VALUES = [
    '"\\ud800"',
    '"x\\udfff.ipynb"',
    '"\\u0000"',
    '"x\\u0000.ipynb"',
    '{"\\ud800": "\\udc00"}',
    '{"A\\u0000": "x"}',
    '{"A": "\\ud800"}',
    '{"": ""}',
    "1e400",
    "-1e400",
    "1e-400",
    "NaN",
    "Infinity",
    "-0",
    str(10**400),
    f'{{"n": {10**400}}}',
    f'{{"n": {"9" * 5000}}}',
    '{"n": [1e308, -0.0, 5e-324, 18446744073709551616]}',
    '{"a":' * 31 + "1" + "}" * 31,
    f'{{"a": {"[" * DEEP}{"]" * DEEP}}}',
    f'"{"x" * 300_000}"',
]
HEADERS = [
    (
        "Content-Type",
        ["", "x", "application/json; charset=utf-16", "application/jsonx", "multipart/form-data; boundary="],
    ),
    ("Content-Length", ["-1", "+5", "1e3", "5, 5", "5, 6", "9" * 400, "0x5", ""]),
    ("Content-Encoding", ["gzip", "x"]),
    ("Transfer-Encoding", ["gzip", "chunked, chunked", "identity", "\x0bchunked"]),
    ("Range", ["bytes=0-0", "bytes=5-1", "bytes=" + "0-1," * 2000, "x"]),
    ("If-None-Match", ["*", '"x"', "\xff"]),
    ("If-Modified-Since", ["x", "Thu, 99 Foo 9999 99:99:99 GMT"]),
    ("Idempotency-Key", ["", " ", "a b", "k" * 256, "\xe9", "k" * 20_000]),
    ("Last-Event-ID", ["-1", "1e9", "\xb2", "9" * 16, "9" * 400, "x"]),
    ("Prefer", ["wait=-1", "wait=" + "9" * 400, "respond-async," * 2000, "wait=\xb2", ";;=,"]),
    ("Accept", ["", "text/event-stream;q=x", "*/*;" * 2000, "\xff"]),
    ("Want-Repr-Digest", ["sha-256=" + "9" * 400, "sha-256=\xb2", "=", "\xff"]),
    (
        "Authorization",
        ["", "token", "token \xe9\xff", "Bearer " + "x" * 20_000, "Basic \xff", "token x y", "Digest a=b"],
    ),
    ("Cookie", ["a", "=;=", '_xsrf="\xff', "x" * 20_000, '_xsrf=2|x|y|z; username-localhost="2|1:0|"']),
    ("Host", ["", "[", "[::1", "a b", "\xff", "localhost:x", "localhost:99999999"]),
    (
        "Origin",
        ["http://[", "\xff", "null", "://", "http://localhost:x", "http://\u2100.example".encode().decode("latin-1")],
    ),
    ("Referer", ["http://[", "\xff"]),
    ("X-Request-Id", ["\xff", "x" * 20_000, "a\tb"]),
    ("X-Forwarded-For", ["\xff", "1.2.3.4.5"]),
    ("X-XSRFToken", ["\xff", "2|x"]),
    ("Expect", ["100-continue", "x"]),
    ("Upgrade", ["websocket", "h2c"]),
    ("X\0Y", ["z"]),
    ("X Y", ["z"]),
    ("X", ["a\0b", "a\rb", "x" * 70_000]),
    ("Access-Control-Request-Method", ["\xff"]),
]
TARGETS = [
    "sessions/{session}",
    "sessions/{session}/executions",
    "sessions/{session}/files",
    "sessions/{session}/files/a.txt",
    "sessions/{session}/notebook",
    "executions/{execution}",
    "executions/{execution}/events",
]
# Ends of a path below exec/v1.
PATHS = [
    "%00",
    "%ff",
    "%ZZ",
    "%",
    "//",
    "..%2f..%2f",
    "sessions/..",
    "sessions/" + "x" * 65,
    "sessions/" + "x" * 20_000,
    "sessions/%C3%A9",
    "sessions/{session}%00",
    "sessions/{session}/executions?limit=%FF",
    "sessions/{session}/executions?limit=1&limit=x",
    "sessions/{session}/executions?limit=\xb2",
    "sessions/{session}/executions?" + "limit=1&" * 3000,
    "sessions/{session}/files?path=%FF",
    "sessions/{session}/files?path=%00",
    "sessions/{session}/files?path=%ED%A0%80",
    "sessions/{session}/files?path=../..&sha256=true",
    "sessions/{session}/files?path=" + "x" * 5000,
    "sessions/{session}/files?path=" + "x/" * 5000,
    "sessions/{session}/files/",
    "sessions/{session}/files//",
    "sessions/{session}/files/%00",
    "sessions/{session}/files/%FF",
    "sessions/{session}/files/%ED%A0%80",
    "sessions/{session}/files/%0d%0aX:%20y",
    "sessions/{session}/files/..",
    "sessions/{session}/files/..%2f..%2fx",
    "sessions/{session}/files/%2fetc%2fpasswd",
    "sessions/{session}/files/" + "x" * 300,
    "sessions/{session}/files/" + "x/" * 5000 + "y",
    "sessions/{session}/files/a.txt/b",
    "executions/{execution}/events?after=%FF",
    "executions/{execution}/events?after=-1",
    "executions/{execution}/events?after=" + "9" * 400,
    "executions/{execution}/events?after=1&after=x",
    "executions/{execution}/events?after=&&&=;",
    "openapi.yaml%00",
    "?%FF=%FF",
    "?token=%FF",
]
BROKEN_BODIES = [
    b"5\r\n{",
    b"5\r\n{\r\n",
    b"ZZ\r\n{}\r\n0\r\n\r\n",
    b"-1\r\n{}\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\n{",
    b"2;" + b"x" * 70_000 + b"\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}XX0\r\n\r\n",
    b"2\r\n{}\r\n0\r\nX: y\r\n",
    b"\r\n",
    b"",
]


def exchange(host: Host, head: str, body: bytes = b"", *, stop: bool = False) -> int | None:
    """Send one request as it is, with `stop` no more after it, and return the status; None if there was no answer."""
    assert host.info.port is not None
    with socket.create_connection((host.info.host, host.info.port), timeout=20) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):  # cut off while it was still being sent or read
            connection.sendall(head.encode("latin-1") + b"\r\n\r\n" + body)
            if stop:
                connection.shutdown(socket.SHUT_WR)
            while not answer.endswith(b"\r\n") and (data := connection.recv(2**16)):
                answer += data
    return int(answer.split(b" ", 2)[1]) if answer else None


@pytest.mark.timeout(120)
def test_f19_what_is_no_proper_request_is_refused_or_cut_off(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Bodies, headers, paths and ends of bodies that no document describes: none fails, and the next request works."""
    statuses: Counter[int | None] = Counter()
    base = f"{host.info.base_url}exec/v1/"
    to_host = "Host: localhost\r\nConnection: close"
    authorized = f"Authorization: token {host.info.token}\r\n{to_host}"

    def ask(request: str, head: str = authorized, body: bytes = b"", *, stop: bool = False) -> None:
        method, _, path = request.partition(" ")
        path = path if path.startswith("/") else base + path.format(session=session.id, execution=done.id)
        status = exchange(host, f"{method} {path} HTTP/1.1\r\n{head}", body, stop=stop)
        statuses[status] += 1
        assert status is None or status < 500, (status, request[:200], head[:200], body[:200])

    def bodies(request: str, bodies: list[bytes]) -> None:
        for body in bodies:
            kind = "Content-Type: application/json"
            ask(request, f"{authorized}\r\n{kind}\r\nContent-Length: {len(body)}", body)

    with ExecClient(host.info) as client, client.session() as session:
        done = session.run("1")
        fields = [f"{{{json.dumps(field)}: {value}}}".encode() for value in VALUES for field in FIELDS]
        with_code = [b'{"code": "1", ' + body[1:] for body in fields]
        bodies("POST sessions/{session}/executions", [*BODIES, *fields, *with_code])
        for path in ("sessions", "sessions/{session}/notebook", "executions/{execution}/input"):
            bodies(f"POST {path}", [*BODIES, *fields])
        if host.is_gateway:
            bodies(f"POST {host.info.base_url}api/kernels", [*BODIES, *fields])
        for name, value in ((name, value) for name, values in HEADERS for value in values):
            own, body = f"{name}: {value}", b'{"code": "1"}'
            for path in TARGETS:
                # The body is for those who are told to wait for one.
                ask(f"GET {path}", f"{own}\r\n{authorized}", body)
            for request in ("POST sessions/{session}/executions", "PUT sessions/{session}/files/x"):
                ask(request, f"{own}\r\n{authorized}\r\nContent-Length: {len(body)}", body)
            for request in ("OPTIONS sessions", "GET sessions", "POST sessions"):
                ask(request, f"{own}\r\n{to_host}", body)
        for path in PATHS:
            for method in ("GET", "PUT", "DELETE", "HEAD", "POST"):
                ask(f"{method} {path}", f"{authorized}\r\nContent-Length: 0")
        for method in ("TRACE", "CONNECT", "get", "FOO", "PATCH", "PROPFIND", "\xff", "G" * 70_000):
            ask(f"{method} sessions")
        for body in BROKEN_BODIES:
            for request in ("POST sessions/{session}/executions", "PUT sessions/{session}/files/broken"):
                ask(request, f"{authorized}\r\nTransfer-Encoding: chunked", body, stop=True)
                ask(request, f"{authorized}\r\nContent-Length: 99999", body, stop=True)
        assert session.run("6 * 7").ok
        assert "broken" not in {file.path for file in session.list_files()}
        # Some of them were sessions with odd names; none is anybody's kernel that is left behind.
        assert 1 < len(client.list_sessions()) <= MAX_SESSIONS
    for trace in ("failed (request", "Uncaught exception", "Task exception was never retrieved"):
        assert trace not in host.log_text()
    with capsys.disabled():
        print(f"\nF19: {host.name}: {statuses.total()} improper requests: {dict(statuses)}")
