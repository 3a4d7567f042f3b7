"""Operations on the network of a session."""

from __future__ import annotations

from typing import Any

from ...models import SessionNetwork
from ...protocol.view_json import session_network_from_json
from .answers import parsed
from .event_stream import API
from .request_exchange import exchange, segment
from .retries import RetryPolicy
from .steps import Operation, Request


def read_network(session_id: str, retry: RetryPolicy) -> Operation[SessionNetwork]:
    """Read what a session reaches, and what it has asked for."""
    return (yield from _call("GET", session_id, retry))


def allow_network(session_id: str, rule: str, retry: RetryPolicy) -> Operation[SessionNetwork]:
    """Allow a session one thing more."""
    return (yield from _call("POST", session_id, retry, {"rule": rule}))


def _call(method: str, session_id: str, retry: RetryPolicy, json: Any = None) -> Operation[SessionNetwork]:
    path = f"{API}sessions/{segment(session_id)}/network"
    return session_network_from_json(parsed((yield from exchange(Request(method, path, json), retry))))
