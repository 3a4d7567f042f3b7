"""Idempotency keys: recognise a retried request so that its code runs once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

from ...models import ExecutionRequest, IdempotencyKey, SessionRequest

_FIELDS = tuple(field.name for field in fields(ExecutionRequest))
_SESSION_FIELDS = tuple(field.name for field in fields(SessionRequest))


def idempotency_of(
    key: str | None, request: ExecutionRequest, session: SessionRequest | None = None
) -> IdempotencyKey | None:
    """Return the key and digest that identify a retry of a request; None if its caller has given no key.

    Parameters
    ----------
    session : SessionRequest, optional
        The session that is made for it.
    """
    if key is None:
        return None
    values = {name: getattr(request, name) for name in _FIELDS}
    if session is not None:
        values["session"] = {name: getattr(session, name) for name in _SESSION_FIELDS}
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return IdempotencyKey(key, hashlib.sha256(canonical.encode()).hexdigest(), session is not None)
