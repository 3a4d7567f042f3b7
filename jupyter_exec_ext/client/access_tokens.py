"""Access tokens for services such as Azure's: providers, the cache of the current token, and its renewal.

Credentials of ``azure.identity`` are providers. This module imports nothing of Azure's.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import ConnectionFailed, ExecError, Unauthenticated

# A token is renewed this long before it expires, or after half of its lifetime if that is later.
REFRESH_SECONDS = 300.0
# The bound on the length keeps the match fast on a header of any size.
_CLAIMS = re.compile(r"""\bclaims\s*=\s*"([A-Za-z0-9+/=_-]{1,8000})\"""", re.IGNORECASE)


class AccessTokenLike(Protocol):
    """Interface of an access token, which those of ``azure.core`` have."""

    @property
    def token(self) -> str:
        """The secret."""

    @property
    def expires_on(self) -> int | float:
        """Its expiry, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token and its expiry.

    Parameters
    ----------
    token : str
        The secret; `repr` leaves it out.
    expires_on : int or float
        Its expiry, in seconds since 1970, UTC.
    """

    token: str = field(repr=False)
    expires_on: int | float


class TokenProvider(Protocol):
    """Interface of a source of access tokens, which credentials of ``azure.identity`` have."""

    def get_token(
        self, *scopes: str, claims: str | None = None, tenant_id: str | None = None, **kwargs: Any
    ) -> AccessTokenLike:
        """Return a valid token; this may block.

        Parameters
        ----------
        *scopes : str
            The scopes that it must have.
        claims : str, optional
            Claims that the service requires after it has refused a token. The provider must not use a cache then.
        tenant_id : str, optional
            Not used by this package.
        **kwargs
            Not used by this package.
        """


class AsyncTokenProvider(Protocol):
    """Interface of an asynchronous source of access tokens, which credentials of ``azure.identity.aio`` have."""

    async def get_token(
        self, *scopes: str, claims: str | None = None, tenant_id: str | None = None, **kwargs: Any
    ) -> AccessTokenLike:
        """Return a valid token; see `TokenProvider`."""


class TokenCache:
    """Cache of the current token."""

    def __init__(self) -> None:
        self._token: AccessToken | None = None
        self._renew_at = -math.inf

    def current(self, rejected: str | None) -> AccessToken | None:
        """Return the current token, None if it has to be renewed or is the one that was rejected."""
        # Only the rejected token is stale. Another task may have renewed it since that request was sent.
        if self._token is None or self._token.token == rejected or time.time() >= self._renew_at:
            return None
        return self._token

    def store(self, given: Any) -> AccessToken:
        """Check and keep a token from a provider.

        Raises
        ------
        Unauthenticated
            If it is not a token, or has no expiry.
        """
        text, expires_on = getattr(given, "token", None), getattr(given, "expires_on", None)
        # HTTP libraries reject other characters with a message that shows the whole header.
        if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()) or " " in text:
            raise Unauthenticated("the credential gave something that is not an access token")
        # In Python a bool is an int; as an expiry, True would be one second after 1970.
        if isinstance(expires_on, bool) or not isinstance(expires_on, (int, float)):
            raise Unauthenticated("the credential gave an access token without an end (expires_on)")
        now = time.time()
        self._token = AccessToken(text, expires_on)
        self._renew_at = expires_on - min(REFRESH_SECONDS, max(0.0, expires_on - now) / 2)
        return self._token


def token_request_of(credential: Any, scope: str, claims: str | None) -> Callable[[], Any]:
    """Return the call of a credential; it passes `claims` only if there are any, for providers without them."""
    return lambda: credential.get_token(scope) if claims is None else credential.get_token(scope, claims=claims)


def run_in_daemon_thread(call: Callable[[], Any]) -> Future[Any]:
    """Run a call in a daemon thread: a credential that hangs must delay neither its caller nor the exit."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it for the others

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised in the threads that wait
            future.set_exception(error)

    threading.Thread(target=work, name="access token", daemon=True).start()
    return future


def credential_error(credential: Any, error: BaseException | None) -> ExecError:
    """Return the error for a credential without a token; `error` is its own, None after a timeout."""
    name = type(credential).__name__
    if error is None:
        return ConnectionFailed(f"{name} gave no access token in time; nothing was sent")
    if isinstance(error, ExecError):
        return error
    # The credential's own text stays in the traceback, since it may hold secrets.
    return Unauthenticated(f"{name} gave no access token: it raised {type(error).__name__}; nothing was sent")


def parse_claims(challenge: str) -> str | None:
    """Return the claims that a ``WWW-Authenticate`` header requires, as JSON text, or None."""
    match = _CLAIMS.search(challenge)
    if match is None:
        return None
    # The base64 may have its padding or lack it, so it is cut off and computed again.
    text = match[1].rstrip("=")
    try:
        claims = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & set("-_") else b"+/").decode()
        return claims if isinstance(json.loads(claims), dict) else None
    except (ValueError, RecursionError):  # deeply nested JSON exhausts the parser's stack
        return None


class RefusalCounter:
    """Limit of a call's retries after status 401: one, and a few more if the token has just expired."""

    _MAX_REFUSALS = 4

    def __init__(self) -> None:
        self._count = 0

    def can_retry(self, token: AccessToken) -> bool:
        """Return whether to retry a call that was refused with this token."""
        self._count += 1
        return self._count <= (self._MAX_REFUSALS if time.time() >= token.expires_on else 1)
