"""Operations on scoped tokens, policies and approvals.

Requests that create a secret or decide about code are sent once: after a lost answer, a person has to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...models import Execution, IssuedToken, Token
from ...protocol.records_json import execution_from_json, issued_token_from_json, token_from_json
from .event_stream import API
from .outage_retry import DEFAULT_RETRY, RetryPolicy
from .request_exchange import exchange, list_in, parsed, segment
from .steps import Operation, Request


@dataclass(frozen=True, slots=True)
class TokensApi:
    """Operations on scoped tokens, policies and approvals."""

    retry: RetryPolicy = DEFAULT_RETRY

    def _call(self, method: str, path: str, json: Any = None) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, API + path, json), self.retry)))

    def _list(self, path: str, name: str) -> Operation[Sequence[Any]]:
        return list_in((yield from self._call("GET", path)), name)

    def create(self, request: Mapping[str, Any]) -> Operation[IssuedToken]:
        """Create a token; see `token_request`."""
        return issued_token_from_json((yield from self._call("POST", "tokens", request)))

    def list(self, *, ended: bool) -> Operation[Sequence[Token]]:
        """List tokens."""
        return [token_from_json(item) for item in (yield from self._list(f"tokens{'?ended=true' * ended}", "tokens"))]

    def get(self, token_id: str) -> Operation[Token]:
        """Read a token."""
        return token_from_json((yield from self._call("GET", f"tokens/{segment(token_id)}")))

    def rotate(self, token_id: str, overlap_seconds: float) -> Operation[IssuedToken]:
        """Replace a token's secret."""
        body = {"overlap_seconds": overlap_seconds}
        return issued_token_from_json((yield from self._call("POST", f"tokens/{segment(token_id)}/rotate", body)))

    def revoke(self, token_id: str) -> Operation[None]:
        """Revoke a token."""
        yield from self._call("DELETE", f"tokens/{segment(token_id)}")

    def policies(self) -> Operation[Sequence[dict[str, Any]]]:
        """List the policies."""
        return (yield from self._list("policies", "policies"))

    def approvals(self) -> Operation[Sequence[Execution]]:
        """List the executions that wait for approval."""
        return [execution_from_json(item) for item in (yield from self._list("approvals", "executions"))]

    def decide(self, execution_id: str, answer: Mapping[str, Any]) -> Operation[Execution]:
        """Approve or reject an execution; see `approval` and `rejection`."""
        return execution_from_json((yield from self._call("POST", f"approvals/{segment(execution_id)}", answer)))


def token_request(
    name: str,
    scopes: Sequence[str],
    policy: str | None,
    expires_in_seconds: float | None,
    limits: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the body of ``POST /tokens``.

    Raises
    ------
    TypeError
        If `scopes` is a string, which would be sent as its letters.
    """
    if isinstance(scopes, str):
        raise TypeError("'scopes' is a list of scopes, not a string")
    optional = {"policy": policy, "expires_in_seconds": expires_in_seconds, "limits": dict(limits) if limits else None}
    return {"name": name, "scopes": list(scopes)} | {k: value for k, value in optional.items() if value is not None}


def approval(code: str | None, reason: str) -> dict[str, Any]:
    """Return the body of ``POST /approvals/{eid}`` that approves code, or other code in its place."""
    return {"decision": "approve", "reason": reason} | ({} if code is None else {"code": code})


def rejection(reason: str) -> dict[str, Any]:
    """Return the body of ``POST /approvals/{eid}`` that rejects code."""
    return {"decision": "reject", "reason": reason}
