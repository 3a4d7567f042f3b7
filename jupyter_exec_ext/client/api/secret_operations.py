"""Operations on the server's secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...models import RecordList, Secret
from ...protocol.view_json import secret_from_json
from .answers import list_in, parsed
from .event_stream import API
from .request_exchange import exchange, segment
from .retries import RetryPolicy
from .steps import Operation, Request


def list_secrets(retry: RetryPolicy) -> Operation[RecordList[Secret]]:
    """List the secrets."""
    found = list_in((yield from _call("GET", "secrets", retry)), "secrets")
    return RecordList(Secret, [secret_from_json(item) for item in found])


def put_secret(
    name: str, value: str, hosts: Sequence[str] | None, header: str | None, retry: RetryPolicy
) -> Operation[Secret]:
    """Set a secret."""
    body: dict[str, Any] = {"value": value}
    if hosts is not None:
        body["hosts"] = list(hosts)
    if header is not None:
        body["header"] = header
    return secret_from_json((yield from _call("PUT", f"secrets/{segment(name)}", retry, body)))


def delete_secret(name: str, retry: RetryPolicy) -> Operation[None]:
    """Delete a secret."""
    yield from _call("DELETE", f"secrets/{segment(name)}", retry)


def rotate_secret_key(retry: RetryPolicy) -> Operation[int]:
    """Encrypt all secrets with a new key."""
    return int((yield from _call("POST", "secret-key/rotate", retry)).get("secrets", 0))


def _call(method: str, path: str, retry: RetryPolicy, json: Any = None) -> Operation[Any]:
    return parsed((yield from exchange(Request(method, API + path, json), retry)))
