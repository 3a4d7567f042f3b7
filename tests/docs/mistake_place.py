"""Place of `test_mistakes`: a server, a desk with tokens and other files, and web pages that are no Jupyter server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jupyter_exec_ext import ExecClient, ExecSession
from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, free_port, running_host

_MAX_FILE_BYTES = 1000
_EXPIRY_SECONDS = 20.0
#: Answers by path: status, content type, further header, body.
_PAGES = {
    "/login-page/": (200, "text/html", None, "<html><head><title>Sign in - Example</title></head></html>"),
    "/redirecting/": (302, "text/html", ("Location", "/hub/login?next="), ""),
    "/plain/": (404, "application/json", None, '{"message": "Not Found", "reason": null}'),
    "/text/": (200, "text/plain", None, "hello"),
}


@dataclass(frozen=True)
class Place:
    """Where a newcomer makes mistakes.

    Parameters
    ----------
    host : Host
        A server.
    client : ExecClient
        Its owner's client.
    session : ExecSession
        An open session.
    desk : Path
        The directory to work in.
    replaced : dict
        Ports and ids of the table, and those of this place.
    """

    host: Host
    client: ExecClient
    session: ExecSession
    desk: Path
    replaced: dict[str, str]

    def written(self, text: str) -> str:
        """Return a text of the table with the ports and ids of this place."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text


class _WebPages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the library chooses the name
        found = next((page for path, page in _PAGES.items() if self.path.startswith(path)), None)
        status, kind, header, body = found or (404, "text/plain", None, "no page")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if header is not None:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def _web_pages() -> Iterator[int]:
    """Yield the port of the web pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _WebPages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def newcomers_place(home: Path) -> Iterator[Place]:
    """Start a server, and put on the desk what the table's commands and programs name."""
    policies = {"no-network": {"base": "restricted"}}
    options = [
        UNPROTECTED,
        f"--ExecEngine.max_file_bytes={_MAX_FILE_BYTES}",
        f"--ExecEngine.policies={json.dumps(policies)}",
    ]
    desk = home / "desk"
    desk.mkdir(parents=True)
    with ExitStack() as stack:
        host = stack.enter_context(running_host("server", home, *options))
        client = stack.enter_context(ExecClient(host.info))
        pages = stack.enter_context(_web_pages())
        session = stack.enter_context(client.session(name="analysis"))
        for _ in range(2):
            stack.enter_context(client.session(name="report"))
        _write_files(desk, client, str(host.info.token))
        replaced = {
            "8888": str(host.info.port),
            "8889": str(free_port()),
            "8890": str(pages),
            "SESSION_ID": session.id,
        }
        yield Place(host, client, session, desk, replaced)


def _write_files(desk: Path, client: ExecClient, owner_token: str) -> None:
    agent = client.tokens.create("agent", ["sessions:read", "executions:read"], policy="restricted")
    running = ["sessions:create", "sessions:delete", "executions:create"]
    broad = client.tokens.create("broad", running, policy="restricted")
    revoked = client.tokens.create("revoked", ["sessions:read"])
    client.tokens.revoke(revoked.token.id)
    expired = client.tokens.create("expired", ["sessions:read"], expires_in_seconds=0.05)
    texts = {
        "owner.token": owner_token,
        "open.token": owner_token,
        "agent.token": agent.text,
        "broad.token": broad.text,
        "revoked.token": revoked.text,
        "expired.token": expired.text,
        "cut.token": agent.text[:-5],
        "wrong.token": "0" * 48,
        "blank.token": " ",
        "quoted.token": "“secret”",
        "script.py": "print(1)",
        "script.R": "cat(1)",
        "script.sh": "echo 1",
        "broken.ipynb": "print(1)",
        "old.ipynb": '{"worksheets": [], "nbformat": 3, "nbformat_minor": 0, "metadata": {}}',
        "large.csv": "1,2\n" * _MAX_FILE_BYTES,
    }
    for name, text in texts.items():
        (desk / name).write_text(text + "\n", encoding="utf-8")
    (desk / "latin.py").write_bytes("print('é')\n".encode("latin-1"))
    (desk / "photo.token").write_bytes(b"\x89PNG\xff\xfe")
    (desk / "folder").mkdir()
    for path in desk.glob("*.token"):
        path.chmod(0o644 if path.name == "open.token" else 0o600)
    deadline = time.monotonic() + _EXPIRY_SECONDS
    while not client.tokens.get(expired.token.id).expired:
        assert time.monotonic() < deadline
        time.sleep(0.01)
