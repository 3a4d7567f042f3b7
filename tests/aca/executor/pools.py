"""Session pools for tests of the executor: real servers that answer as one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jupyter_exec_ext import AccessToken, CodeBlock
from jupyter_exec_ext.client import AsyncACAClient
from tests.support.hosts import Host

ENVELOPE, FLAT = "2024-02-02-preview", "2025-10-02-preview"


class HostsToken:
    """A credential that gives a server's own token."""

    def __init__(self, host: Host) -> None:
        assert host.info.token is not None
        self._token = host.info.token

    def get_token(self, *scopes: str, claims: str | None = None, **options: Any) -> AccessToken:
        return AccessToken(self._token, time.time() + 3600)


class Cancellation:
    """A cancellation token as AutoGen's, without AutoGen."""

    def __init__(self) -> None:
        self._cancelled = False
        self._callbacks: list[Any] = []

    def is_cancelled(self) -> bool:
        return self._cancelled

    def add_callback(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def cancel(self) -> None:
        self._cancelled = True
        for callback in self._callbacks:
            callback()


def endpoint_of(host: Host) -> str:
    return f"{host.info.url}exec/aca"


def python(*codes: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python") for code in codes]


async def sessions_of(host: Host) -> set[str]:
    """Return the identifiers of the sessions that a pool has."""

    def ask() -> Any:
        import requests

        url = f"{endpoint_of(host)}/listSessions?api-version={FLAT}"
        return requests.get(url, headers=host.info.auth_headers, timeout=30).json()

    return {session["identifier"] for session in (await asyncio.to_thread(ask))["sessions"]}


async def delete(host: Host, identifier: str) -> None:
    """Delete a session behind the executor's back, as the pool does when it was idle for long."""
    async with AsyncACAClient(endpoint_of(host), HostsToken(host)) as client:
        await client.delete_session(identifier)
