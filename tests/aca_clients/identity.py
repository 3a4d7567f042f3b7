"""What gives a machine on Azure its access tokens, on this one: an identity endpoint in the manner of App Service's.

Every token that it gives is another one and good at the pool, and the one before it soon is no more.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import requests

_SCOPES = [
    *(f"sessions:{verb}" for verb in ("create", "read", "delete")),
    *(f"executions:{verb}" for verb in ("create", "read", "control")),
    *(f"files:{verb}" for verb in ("read", "write")),
]


class Identity:
    """The endpoint; `life_seconds` is how long the tokens are good that it gives from now on."""

    def __init__(self, pool: str) -> None:
        self.life_seconds = 3600
        self.secret = secrets.token_hex(16)
        self.given: list[str] = []
        self.resources: list[str] = []
        self._tokens = f"{pool.partition('exec/aca')[0]}exec/v1/tokens"
        self._giving = threading.Lock()
        # One identity for all of the tokens, so that they open the same sessions.
        self._id = self._call("", name="identity", scopes=_SCOPES)["id"]

    def _call(self, path: str, **request: object) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {os.environ['EXEC_TEST_ACA_TOKEN']}"}
        answer = requests.post(self._tokens + path, json=request, headers=headers, timeout=30)
        assert answer.ok, answer.text
        return dict(answer.json())

    def give(self, resource: str) -> dict[str, str]:
        """Return what such an endpoint answers."""
        with self._giving:
            ends_at = int(time.time()) + self.life_seconds
            token = self._call(f"/{self._id}/rotate", overlap_seconds=self.life_seconds)["token"]
            self.given.append(token)
            self.resources.append(resource)
        return {"access_token": token, "expires_on": str(ends_at), "resource": resource, "token_type": "Bearer"}

    def revoke(self) -> None:
        """Let no token be good that was given so far."""
        self._call(f"/{self._id}/rotate", overlap_seconds=0)


@contextmanager
def serving(identity: Identity) -> Iterator[str]:
    """Serve it on this machine; give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            knows = self.headers["X-IDENTITY-HEADER"] == identity.secret
            body = json.dumps(identity.give(query["resource"][0]) if knows else {"statusCode": 401}).encode()
            self.send_response(200 if knows else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/msi/token"
        finally:
            server.shutdown()
            thread.join()
