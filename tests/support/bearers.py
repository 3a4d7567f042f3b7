"""Scoped tokens for tests, made by a host's owner or by another token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from tests.support import canaries
from tests.support.hosts import Host

# What a host needs that is to let scoped tokens use kernels without isolation.
UNPROTECTED = "--ExecEngine.allow_unprotected_tokens=True"


@dataclass
class Bearer:
    """Whoever sends a token to a host."""

    host: Host
    token: str = field(repr=False)
    id: str = ""

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request to a path under ``exec/v1``."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        url = f"{self.host.info.url}exec/v1{path}"
        options.setdefault("timeout", 90)  # longer than a kernel may take to start
        options.setdefault("verify", self.host.info.verify)
        return requests.request(method, url, headers=headers, allow_redirects=False, **options)

    def session(self, **request: Any) -> str:
        """Create a session; return its id."""
        created = self.call("POST", "/sessions", json=request)
        assert created.status_code == 201, created.text
        return str(created.json()["id"])

    def run(self, session_id: str, code: str, **request: Any) -> requests.Response:
        """Run code and wait for its end."""
        return self.call("POST", f"/sessions/{session_id}/executions", json={"code": code, **request})


def owner_of(host: Host) -> Bearer:
    """Return the host's owner."""
    assert host.info.token is not None
    return Bearer(host, host.info.token)


def mint(
    by: Host | Bearer,
    scopes: Iterable[str] = ALL_SCOPES,
    policy: str | None = None,
    *,
    name: str = "test",
    expires_in_seconds: float | None = None,
    **limits: Any,
) -> Bearer:
    """Create a token; `by` is a host, for its owner, or the bearer of a token. `limits` narrow its policy."""
    creator = by if isinstance(by, Bearer) else owner_of(by)
    request: dict[str, Any] = {"name": name, "scopes": sorted(scopes), "limits": limits}
    if policy is not None:
        request["policy"] = policy
    if expires_in_seconds is not None:
        request["expires_in_seconds"] = expires_in_seconds
    created = creator.call("POST", "/tokens", json=request)
    assert created.status_code == 201, created.text
    return Bearer(creator.host, canaries.note(created.json()["token"]), created.json()["id"])
