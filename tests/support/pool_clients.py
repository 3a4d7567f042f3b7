"""A host of ours as a client of ACA session pools sees it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from tests.support.bearers import owner_of
from tests.support.hosts import Host

ENVELOPE, FLAT = "2024-02-02-preview", "2025-10-02-preview"
PATH = "/subscriptions/s/resourceGroups/g/sessionPools/p"
_COUNT = itertools.count()


@dataclass
class Pool:
    """One session of a pool, named by whoever has the token."""

    host: Host
    token: str | None
    identifier: str
    path: str = PATH

    @property
    def endpoint(self) -> str:
        return f"{self.host.info.url}exec/aca{self.path}"

    def call(self, method: str, operation: str, version: str | None = FLAT, **options: Any) -> requests.Response:
        """Send a request; `query` has further parameters."""
        fields = {"identifier": self.identifier, "api-version": version, **options.pop("query", {})}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items() if value is not None)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers.update(options.pop("headers", {}))
        url = f"{self.endpoint}/{operation}?{query}"
        return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """Run code in the flat family and return the answer."""
        headers = fields.pop("headers", {})
        version = fields.pop("version", FLAT)
        answer = self.call("POST", "executions", version, json={"code": code, **fields}, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        return dict(answer.json())

    def value(self, code: str, **fields: Any) -> Any:
        """Run code that must not fail and return its value."""
        answer = self.run(code, **fields)
        assert answer["status"] == "Succeeded", answer
        return answer["result"]["executionResult"]

    def upload(self, name: str, content: bytes, version: str = FLAT, **query: str) -> requests.Response:
        operation = "files" if version == FLAT else "files/upload"
        return self.call("POST", operation, version, files={"file": (name, content)}, query=query)

    def another(self, **changes: Any) -> Pool:
        """Return another session, or this one as somebody else names it."""
        known = {"host": self.host, "token": self.token, "identifier": new_identifier(), "path": self.path}
        return Pool(**{**known, **changes})


def new_identifier() -> str:
    return f"test-{next(_COUNT)}"


def pool_of(host: Host) -> Pool:
    """Return a session of the host's owner that nobody has used yet."""
    return Pool(host, owner_of(host).token, new_identifier())


def error_of(answer: requests.Response) -> tuple[int, str]:
    """Return status and code of an error, whose form is looked at."""
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "traceId"}, answer.text
    assert answer.headers["x-ms-error-code"] == error["code"]
    assert answer.headers["X-Request-Id"] == error["traceId"]
    return answer.status_code, str(error["code"])
