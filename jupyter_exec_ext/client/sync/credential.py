"""Asks a credential for access tokens, blocking: one call at a time, whoever waits for it."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import Any

from ..access_tokens import AccessToken, TokenCache, TokenProvider, asked, in_a_thread, no_token
from ..api.steps import GetToken
from ..fork_safety import ProcessLock, renew_after_fork


class SyncCredential:
    """The access tokens of a client that blocks."""

    def __init__(self, credential: TokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._lock = ProcessLock()
        self._asking: dict[str | None, Future[Any]] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Wait for no thread of the parent's."""
        self._asking = {}

    def get(self, step: GetToken) -> AccessToken:
        """Return the token to send, asking for one if need be; threads that come meanwhile wait for the same."""
        with self._lock:
            held = self._cache.current(step.rejected)
            if held is not None and step.claims is None:
                return held
            asking = self._asking.get(step.claims)
            if asking is None:
                asking = in_a_thread(lambda: self._fetch(step.claims))
                self._asking[step.claims] = asking
        wait([asking], step.timeout_seconds)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise no_token(self._credential, error) from error
        token: AccessToken = asking.result()
        return token

    def _fetch(self, claims: str | None) -> AccessToken:
        try:
            given = asked(self._credential, self._scope, claims)()
            with self._lock:
                return self._cache.keep(given)
        finally:
            with self._lock:
                self._asking.pop(claims, None)

    def close(self) -> None:
        """Have nothing to do: the threads end by themselves."""
