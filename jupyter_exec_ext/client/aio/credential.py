"""Asks a credential for access tokens, off the event loop if it blocks: one call at a time, whoever waits for it."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..access_tokens import AccessToken, AsyncTokenProvider, TokenCache, TokenProvider, asked, in_a_thread, no_token
from ..api.steps import GetToken


class AioCredential:
    """The access tokens of a client on an event loop; the credential may block or be asynchronous."""

    def __init__(self, credential: TokenProvider | AsyncTokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._asking: dict[str | None, asyncio.Task[AccessToken]] = {}

    async def get(self, step: GetToken) -> AccessToken:
        """Return the token to send, asking for one if need be; tasks that come meanwhile wait for the same."""
        held = self._cache.current(step.rejected)
        if held is not None and step.claims is None:
            return held
        asking = self._asking.get(step.claims)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._fetch(step.claims))
            self._asking[step.claims] = asking
            asking.add_done_callback(lambda task: self._asked(step.claims, task))
        await asyncio.wait([asking], timeout=step.timeout_seconds)  # unlike wait_for, leaves it to the others
        if asking.cancelled():
            raise no_token(self._credential, None)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise no_token(self._credential, error) from error
        return asking.result()

    async def _fetch(self, claims: str | None) -> AccessToken:
        ask = asked(self._credential, self._scope, claims)
        if inspect.iscoroutinefunction(self._credential.get_token):
            given: Any = ask()
        else:
            given = await asyncio.wrap_future(in_a_thread(ask))
        if inspect.isawaitable(given):
            given = await given
        return self._cache.keep(given)

    def _asked(self, claims: str | None, task: asyncio.Task[AccessToken]) -> None:
        self._asking.pop(claims, None)
        if not task.cancelled():
            task.exception()  # told to whoever waits; those who left need no complaint of asyncio's

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
