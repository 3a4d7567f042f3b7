"""Access tokens for services that want one with every request: what gives them, and when to ask for another.

A credential of ``azure.identity`` is such a provider, as it is; nothing of Azure's is imported here.
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

# A token is renewed this long before its end, or at half of its time if it lives shorter than twice that.
REFRESH_SECONDS = 300.0
_CLAIMS = re.compile(r"""\bclaims\s*=\s*"([A-Za-z0-9+/=_-]{1,8000})\"""", re.IGNORECASE)


class AccessTokenLike(Protocol):
    """What a provider gives: ours or ``azure.core``'s."""

    @property
    def token(self) -> str:
        """The secret."""

    @property
    def expires_on(self) -> int | float:
        """Its end, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token and its end.

    Parameters
    ----------
    token : str
        The secret; `repr` does not show it.
    expires_on : int or float
        In seconds since 1970, UTC.
    """

    token: str = field(repr=False)
    expires_on: int | float


class TokenProvider(Protocol):
    """Gives access tokens: a credential of ``azure.identity``, or anything with this method."""

    def get_token(
        self, *scopes: str, claims: str | None = None, tenant_id: str | None = None, **kwargs: Any
    ) -> AccessTokenLike:
        """Return a token that is good now; it may block.

        Parameters
        ----------
        *scopes : str
            What it must be good for.
        claims : str, optional
            What the service wants in it, after it refused one. The provider must not answer from a cache then.
        """


class AsyncTokenProvider(Protocol):
    """Gives access tokens on the event loop: a credential of ``azure.identity.aio``, or anything with this method."""

    async def get_token(
        self, *scopes: str, claims: str | None = None, tenant_id: str | None = None, **kwargs: Any
    ) -> AccessTokenLike:
        """Return a token that is good now; see `TokenProvider`."""


class TokenCache:
    """The token in use."""

    def __init__(self) -> None:
        self._token: AccessToken | None = None
        self._renew_at = -math.inf

    def current(self, rejected: str | None) -> AccessToken | None:
        """Return the token to send, None if it is time for another or if it is the one that was rejected."""
        if self._token is None or self._token.token == rejected or time.time() >= self._renew_at:
            return None
        return self._token

    def keep(self, given: Any) -> AccessToken:
        """Check what a provider gave, and use it from now on.

        Raises
        ------
        Unauthenticated
            If it is no token.
        """
        text, expires_on = getattr(given, "token", None), getattr(given, "expires_on", None)
        # Any other character would be refused further down, in messages that show the whole header.
        if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()) or " " in text:
            raise Unauthenticated("the credential gave something that is not an access token")
        if isinstance(expires_on, bool) or not isinstance(expires_on, (int, float)):
            raise Unauthenticated("the credential gave an access token without an end (expires_on)")
        now = time.time()
        self._token = AccessToken(text, expires_on)
        self._renew_at = expires_on - min(REFRESH_SECONDS, max(0.0, expires_on - now) / 2)
        return self._token


def asked(credential: Any, scope: str, claims: str | None) -> Callable[[], Any]:
    """Return the call that asks a credential; `claims` are left out where there are none, for simple providers."""
    return lambda: credential.get_token(scope) if claims is None else credential.get_token(scope, claims=claims)


def in_a_thread(call: Callable[[], Any]) -> Future[Any]:
    """Call in a thread that nobody has to wait for: a credential that hangs must hold up neither a call nor an exit."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # who leaves must not cancel it for the others

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="access token", daemon=True).start()
    return future


def no_token(credential: Any, error: BaseException | None) -> ExecError:
    """Return the error to raise where a credential gave no token; what it raised itself is to be the cause."""
    name = type(credential).__name__
    if error is None:
        return ConnectionFailed(f"{name} gave no access token in time; nothing was sent")
    if isinstance(error, ExecError):
        return error
    # The error's own text is left to the traceback: it is somebody else's and may hold more than people may read.
    return Unauthenticated(f"{name} gave no access token: it raised {type(error).__name__}; nothing was sent")


def claims_in(challenge: str) -> str | None:
    """Return the claims that a ``WWW-Authenticate`` asks for, as JSON text, or None where it asks for none."""
    match = _CLAIMS.search(challenge)
    if match is None:
        return None
    text = match[1].rstrip("=")
    try:
        claims = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & set("-_") else b"+/").decode()
        return claims if isinstance(json.loads(claims), dict) else None
    except (ValueError, RecursionError):
        return None


class Refusals:
    """How often a call may come back with another token: once, and some times more if the token had just expired."""

    _MOST = 4

    def __init__(self) -> None:
        self._count = 0

    def may_renew(self, token: AccessToken) -> bool:
        """Whether a call that was refused (401) with this token is worth another."""
        self._count += 1
        return self._count <= (self._MOST if time.time() >= token.expires_on else 1)
