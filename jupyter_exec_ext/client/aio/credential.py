"""Access tokens of the asynchronous client: tasks that wait for a token share one call of the credential."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..access_tokens import (
    AccessToken,
    AsyncTokenProvider,
    TokenCache,
    TokenProvider,
    credential_error,
    run_in_daemon_thread,
    token_request_of,
)
from ..api.steps import GetToken


class AioCredential:
    """Source of access tokens on an event loop. A credential that blocks is called in a thread."""

    def __init__(self, credential: TokenProvider | AsyncTokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._asking: dict[str | None, asyncio.Task[AccessToken]] = {}

    async def get(self, step: GetToken) -> AccessToken:
        """Return a token, from the cache or from the credential; concurrent tasks wait for the same call."""
        held = self._cache.current(step.rejected)
        if held is not None and step.claims is None:
            return held
        asking = self._asking.get(step.claims)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._fetch(step.claims))
            self._asking[step.claims] = asking
            asking.add_done_callback(lambda task: self._forget(step.claims, task))
        await asyncio.wait(
            [asking], timeout=step.timeout_seconds
        )  # unlike wait_for, it does not cancel the call, for which other tasks may wait
        if asking.cancelled():
            raise credential_error(self._credential, None)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise credential_error(self._credential, error) from error
        return asking.result()

    async def _fetch(self, claims: str | None) -> AccessToken:
        request = token_request_of(self._credential, self._scope, claims)
        if inspect.iscoroutinefunction(self._credential.get_token):
            given: Any = request()
        else:
            given = await asyncio.wrap_future(run_in_daemon_thread(request))
        if inspect.isawaitable(given):
            given = await given
        return self._cache.store(given)

    def _forget(self, claims: str | None, task: asyncio.Task[AccessToken]) -> None:
        self._asking.pop(claims, None)
        if not task.cancelled():
            task.exception()  # retrieved here, so that asyncio does not log it if no task waits any more

    async def close(self) -> None:
        """Cancel pending calls."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
