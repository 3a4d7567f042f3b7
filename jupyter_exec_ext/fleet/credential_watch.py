"""Credential watch: ends what goes on in the name of a token soon after the Hub, or the pool, has revoked it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .callers import FRESH_SECONDS, Callers, PoolCaller
from .server_tokens import ServerTokens

# A Hub answers some hundred questions a second, and each round is one of `FRESH_SECONDS`.
_MAX_WITHOUT_REQUESTS = 50

EndWork = Callable[[str, str], Awaitable[None]]


@dataclass(slots=True)
class _OpenRequests:
    """Open requests with one credential."""

    caller: PoolCaller
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)


class CredentialWatch:
    """Asks again about tokens that have open requests or stand for something on a server, and ends their work.

    A token with a session or a run has a token on its server. That one is revoked, and asked about until it is.

    Parameters
    ----------
    callers : Callers
        Knows whether a token has ended.
    tokens : ServerTokens
        Knows the principals that have tokens on servers.
    end_work : callable
        Called with the principal and the credential of a token that has ended.
    log : logging.Logger
        The pool's log.
    """

    def __init__(self, callers: Callers, tokens: ServerTokens, end_work: EndWork, log: logging.Logger) -> None:
        self._callers = callers
        self._tokens = tokens
        self._end_work = end_work
        self._log = log
        self._open: dict[str, _OpenRequests] = {}
        # Principals with tokens on servers; the one that was asked about least recently comes first.
        self._turns: list[str] = []

    @contextmanager
    def open_request(self, caller: PoolCaller) -> Iterator[None]:
        """Count the current task as a request of a caller; it is cancelled when the caller's token ends."""
        task = asyncio.current_task()
        assert task is not None
        opened = self._open.setdefault(caller.credential, _OpenRequests(caller))
        opened.tasks.add(task)
        try:
            yield
        finally:
            opened.tasks.discard(task)
            if not opened.tasks and self._open.get(caller.credential) is opened:
                del self._open[caller.credential]

    async def run(self) -> None:
        """Ask about the tokens, one round every `FRESH_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(FRESH_SECONDS)
            self._tokens.note_use({each for opened in self._open.values() for each in _credentials(opened.caller)})
            credentials = self._tokens.credentials()
            checks = [self._check_open(opened) for opened in self._open.values()]
            checks += [self._check(each, credentials[each]) for each in self._next_principals(credentials)]
            for problem in await asyncio.gather(*checks, return_exceptions=True):
                if isinstance(problem, Exception):  # of one token; the next rounds ask about it again
                    self._log.error("pool: a token could not be checked", exc_info=problem)

    def _next_principals(self, credentials: dict[str, str]) -> list[str]:
        """Return the principals without open requests to ask about in this round."""
        known = set(self._turns)
        self._turns = [each for each in self._turns if each in credentials]
        self._turns += [each for each in credentials if each not in known]
        chosen = [each for each in self._turns if credentials[each] not in self._open][:_MAX_WITHOUT_REQUESTS]
        asked = set(chosen)
        self._turns = [each for each in self._turns if each not in asked] + chosen
        return chosen

    async def _check_open(self, opened: _OpenRequests) -> None:
        caller = opened.caller
        if any([await self._callers.is_ended(each) for each in _credentials(caller)]):
            for task in list(opened.tasks):
                task.cancel()
            await self._end_work(caller.principal, caller.credential)

    async def _check(self, principal: str, credential: str) -> None:
        # An issued token's creator has a token on the same servers, and is asked about itself.
        if await self._callers.is_ended(credential):
            await self._end_work(principal, credential)


def _credentials(caller: PoolCaller) -> list[str]:
    return [caller.credential] if caller.creator is None else [caller.credential, caller.creator.credential]
