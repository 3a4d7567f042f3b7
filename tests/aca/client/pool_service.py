"""A stand-in for a pool of ACA sessions, built from the documented contract and nothing else.

It speaks both families over a real socket, knows its access tokens and when they end, and keeps each session under its
exact identifier. It runs nothing: code is counted, and what it "prints" is how many runs its session has had. Tests
tell it how to behave with the first lines of the code, such as ``# value: 2``.
"""

from __future__ import annotations

import base64
import http.server
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

POOL = "/subscriptions/s/resourceGroups/g/sessionPools/p"
MODIFIED = "2026-01-02T03:04:05.1234567Z"
ENVELOPE = ("2024-02-02-preview", "2024-08-02-preview")


@dataclass
class Session:
    """One identifier's code and files."""

    runs: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Override = Callable[[Seen], "Answer | None"]


class ACAService(http.server.ThreadingHTTPServer):
    """The service; `overrides` may answer in its place, before anything is done."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tls: Any = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.endpoint = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}{POOL}"
        self.sessions: dict[str, Session] = {}
        self.markers: Counter[str] = Counter()
        self.tokens: dict[str, float] = {}
        self.refused_tokens = 0
        self.seen: list[Seen] = []
        self.overrides: list[Override] = []
        self.page_size = 1000
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of these tests leave in the middle."""

    def answer(self, seen: Seen) -> Answer:
        """Return what the contract says."""
        bearer = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens.get(bearer, 0.0) <= time.time():
            self.refused_tokens += 1
            return error(401, "Unauthorized", "the token has expired or is unknown")
        for override in self.overrides:
            answer = override(seen)
            if answer is not None:
                return answer
        if not seen.path.startswith(f"{POOL}/"):
            return error(404, "NotFound", "no such pool")
        path = seen.path[len(POOL) + 1 :]
        version = seen.query["api-version"][0]
        if (seen.method, path) == ("GET", "metadata"):
            return Answer(200, {"runtimes": [{"name": "Python", "version": "3.12"}], "preInstalledPackages": []})
        given = seen.query.get("identifier", [])
        if len(given) != 1 or not 4 <= len(given[0]) <= 128:
            return error(400, "SessionRequestValidationFailed", "bad identifier", target="identifier")
        return self._session(seen, path, version, given[0])

    def _session(self, seen: Seen, path: str, version: str, identifier: str) -> Answer:
        if path == "session":
            known = identifier in self.sessions
            if not known:
                return error(400, "SessionWithIdentifierNotFound", "no such session")
            if seen.method == "DELETE":
                del self.sessions[identifier]
                return Answer(204)
            times = {"createdAt": MODIFIED, "lastAccessedAt": MODIFIED, "expireAt": "2026-01-02T03:09:05Z"}
            return Answer(200, {"identifier": identifier, **times, "etag": "1"})
        session = self.sessions.setdefault(identifier, Session())
        if path in ("code/execute", "executions") and seen.method == "POST":
            return self._run(seen, session, path, version, identifier)
        if path.startswith("executions/"):
            return Answer(200, flat_run(identifier, path.partition("/")[2], "Succeeded", "late", ""))
        return self._files(seen, session, path, version)

    def _run(self, seen: Seen, session: Session, path: str, version: str, identifier: str) -> Answer:
        body = json.loads(seen.body)
        envelope = path == "code/execute"
        if envelope is not (version in ENVELOPE) or envelope is not ("properties" in body):
            return error(400, "SessionPropertiesMissing", "the body is of the other family")
        code = (body["properties"] if envelope else body)["code"]
        with self.lock:
            session.runs.append(code)
            self.markers[code] += 1
        told = dict(re.findall(r"^# (\w+): (.*)$", code, re.MULTILINE))
        if "sleep" in told:
            time.sleep(float(told["sleep"]))
        value = json.loads(told.get("value", '""'))
        failed = "failed" in told
        stdout, stderr = f"run {len(session.runs)}\n", told.get("failed", "")
        if envelope:
            names = {"result": value, "executionTimeInMilliseconds": 7, "stdout": stdout, "stderr": stderr}
            status = "Failure" if failed else "Success"
            return Answer(200, {"$id": "1", "properties": {"$id": "2", "status": status, **names}})
        if "running" in told:
            return Answer(202, flat_run(identifier, "e1", "Running", None, None))
        return Answer(
            202 if version == "2024-10-02-preview" else 200,
            flat_run(identifier, "e1", "Failed" if failed else "Succeeded", stdout, stderr, value),
        )

    def _files(self, seen: Seen, session: Session, path: str, version: str) -> Answer:
        envelope = version in ENVELOPE
        inside = seen.query.get("path", [""])[0]
        if seen.method == "POST" and path == ("files/upload" if envelope else "files"):
            name, content = form_file(seen)
            name = f"{inside}/{name}" if inside else name
            if len(content) > 128 * 2**20:
                return error(413, "PayloadTooLarge", "too large")
            session.files[name] = content
            return Answer(
                200,
                {"$id": "1", "value": [told_file(name, content, True)]}
                if envelope
                else told_file(name, content, False),
            )
        if path == "files":
            start = int(seen.query.get("skip", ["0"])[0])
            shown = [n for n in sorted(session.files) if n.rpartition("/")[0] == inside or "recursive" in seen.query]
            page = {"value": [told_file(n, session.files[n], envelope) for n in shown[start : start + self.page_size]]}
            if len(shown) > start + self.page_size:
                page["nextLink"] = self.next_link(seen, start + self.page_size)  # type: ignore[assignment]
            return Answer(200, page)
        name = path.partition("files/content/" if envelope and path.startswith("files/content/") else "files/")[2]
        content_wanted = seen.method == "GET" and (path.startswith("files/content/") or path.endswith("/content"))
        name = unquote(name if envelope else name.removesuffix("/content"))
        name = f"{inside}/{name}" if inside else name
        if name not in session.files:
            return error(404, "NotFound", "no such file")
        if seen.method == "DELETE":
            del session.files[name]
            return Answer(204)
        return Answer(200, session.files[name]) if content_wanted else Answer(200, told_file(name, b"", envelope))

    def next_link(self, seen: Seen, skip: int) -> str:
        """Return where a list goes on; tests lead it astray."""
        rest = "&".join(f"{name}={values[0]}" for name, values in seen.query.items() if name != "skip")
        return f"{self.endpoint}/files?{rest}&skip={skip}"


def error(status: int, code: str, message: str, **more: Any) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message, **more}}, {"x-ms-error-code": code})


def flat_run(identifier: str, run_id: str, status: str, stdout: Any, stderr: Any, value: Any = "") -> dict[str, Any]:
    answer = {"$id": "1", "id": run_id, "identifier": identifier, "executionType": "synchronous", "status": status}
    if stdout is None:
        return answer
    result = {"$id": "2", "stdout": stdout, "stderr": stderr, "executionResult": value}
    return {**answer, "result": {**result, "executionTimeInMilliseconds": 7}}


def told_file(name: str, content: bytes, envelope: bool) -> dict[str, Any]:
    if envelope:
        properties = {"$id": "3", "filename": name, "size": len(content), "lastModifiedTime": MODIFIED}
        return {"$id": "2", "properties": properties}
    directory, _, base = name.rpartition("/")
    told = {"name": base, "type": "File", "contentType": "", "sizeInBytes": len(content), "lastModifiedAt": MODIFIED}
    return {**told, "directory": directory}


def form_file(seen: Seen) -> tuple[str, bytes]:
    """Return the name and content of a form's only file."""
    boundary = seen.headers["content-type"].partition("boundary=")[2].encode()
    head, _, rest = seen.body.partition(b"\r\n\r\n")
    assert head.startswith(b"--" + boundary + b"\r\n")
    content, end, after = rest.rpartition(b"\r\n--" + boundary + b"--\r\n")
    assert end
    assert after == b""
    match = re.search(r'name="file"; filename="([^"]*)"', head.decode())
    assert match is not None
    return match[1], content


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True
    server: ACAService

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def _serve(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, parts.path, query, headers, body)
        with self.server.lock:
            self.server.seen.append(seen)
        answer = self.server.answer(seen)
        raw = (
            answer.body
            if isinstance(answer.body, bytes)
            else b""
            if answer.body is None
            else json.dumps(answer.body).encode()
        )
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()


class Tokens:
    """A credential whose tokens a service knows.

    Parameters
    ----------
    life_seconds : float
        For how long each is good.
    """

    def __init__(self, service: ACAService, life_seconds: float = 3600.0) -> None:
        self.service = service
        self.life_seconds = life_seconds
        self.asked: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.given: list[str] = []

    def get_token(self, *scopes: str, **options: Any) -> Any:
        from jupyter_exec_ext import AccessToken

        self.asked.append((scopes, options))
        text = f"s3cret-{len(self.asked)}-{base64.b32encode(str(time.monotonic()).encode()).decode().rstrip('=')}"
        expires_on = time.time() + self.life_seconds
        self.service.tokens[text] = expires_on
        self.given.append(text)
        return AccessToken(text, expires_on)


class AsyncTokens(Tokens):
    """The same, asynchronous."""

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        return super().get_token(*scopes, **options)
