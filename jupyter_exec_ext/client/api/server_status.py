"""Operations on the state of a server: its readiness, its load and its drain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UnexpectedAnswer
from ...models import Readiness, ServerLoad
from ...protocol.strict_json import loads_strict
from ...protocol.view_json import readiness_from_json, server_load_from_json
from .answers import parsed
from .event_stream import API
from .request_exchange import exchange
from .retries import DEFAULT_RETRY, NO_RETRY, RetryPolicy
from .steps import Operation, Request

_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class ServerStatusApi:
    """Operations on the state of a server.

    Parameters
    ----------
    retry : RetryPolicy
        When requests are repeated.
    """

    retry: RetryPolicy = DEFAULT_RETRY

    def ready(self) -> Operation[Readiness]:
        """Read the readiness, once: a probe reports what it finds."""
        reply = yield from exchange(Request("GET", f"{API}ready"), NO_RETRY)
        if reply.status == _UNAVAILABLE:  # from the server itself, or from a proxy before it
            try:
                return readiness_from_json(loads_strict(reply.body))
            except (ValueError, UnexpectedAnswer):
                pass
        return readiness_from_json(parsed(reply))

    def load(self) -> Operation[ServerLoad]:
        """Read the load."""
        return server_load_from_json((yield from self._call("GET", "load")))

    def drain(self, *, undo: bool) -> Operation[Readiness]:
        """Begin or end the drain."""
        return readiness_from_json((yield from self._call("DELETE" if undo else "POST", "drain")))

    def _call(self, method: str, path: str) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, API + path), self.retry)))
