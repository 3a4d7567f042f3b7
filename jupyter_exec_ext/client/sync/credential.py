"""Access tokens of the synchronous client: threads that wait for a token share one call of the credential."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import Any

from ..access_tokens import (
    AccessToken,
    TokenCache,
    TokenProvider,
    credential_error,
    run_in_daemon_thread,
    token_request_of,
)
from ..api.steps import GetToken
from ..fork_safety import ProcessLock, renew_after_fork


class SyncCredential:
    """Source of access tokens for threads."""

    def __init__(self, credential: TokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._lock = ProcessLock()
        self._asking: dict[str | None, Future[Any]] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the parent's pending calls: their threads do not exist in the child."""
        self._asking = {}

    def get(self, step: GetToken) -> AccessToken:
        """Return a token, from the cache or from the credential; concurrent threads wait for the same call."""
        with self._lock:
            held = self._cache.current(step.rejected)
            if held is not None and step.claims is None:
                return held
            asking = self._asking.get(step.claims)
            if asking is None:
                asking = run_in_daemon_thread(lambda: self._fetch(step.claims))
                self._asking[step.claims] = asking
        wait([asking], step.timeout_seconds)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise credential_error(self._credential, error) from error
        token: AccessToken = asking.result()
        return token

    def _fetch(self, claims: str | None) -> AccessToken:
        try:
            given = token_request_of(self._credential, self._scope, claims)()
            with self._lock:
                return self._cache.store(given)
        finally:
            with self._lock:
                self._asking.pop(claims, None)

    def close(self) -> None:
        """Do nothing: pending calls run in daemon threads."""
