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

    @property
    def bearers(self) -> list[PoolCaller]:
        """The caller and its creator, whose tokens must be good."""
        return [self.caller] if self.caller.creator is None else [self.caller, self.caller.creator]


class CredentialWatch:
    """Asks again about tokens that have open requests or stand for something on a server, and ends their work.

    A caller with a session or a run has tokens on its servers. When its own token has ended, these are revoked, again
    and again until all are.

    Parameters
    ----------
    callers : Callers
        Knows whether a token has ended.
    tokens : ServerTokens
        Knows who has tokens on servers.
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
        # Principals and policies with tokens on servers; the one that was asked about least recently comes first.
        self._turns: list[tuple[str, str]] = []

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
            self._tokens.note_use({each.credential for opened in self._open.values() for each in opened.bearers})
            holders = self._tokens.holders()
            checks = [self._check_open(opened) for opened in self._open.values()]
            checks += [self._check(*each, holders[each]) for each in self._next_holders(holders)]
            for problem in await asyncio.gather(*checks, return_exceptions=True):
                if isinstance(problem, Exception):  # of one token; the next rounds ask about it again
                    self._log.error("pool: a token could not be checked", exc_info=problem)

    def _next_holders(self, holders: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
        """Return those without open requests to ask about in this round."""
        known = set(self._turns)
        self._turns = [each for each in self._turns if each in holders]
        self._turns += [each for each in holders if each not in known]
        opened = {(each.caller.principal, each.caller.policy) for each in self._open.values()}
        chosen = [each for each in self._turns if each not in opened][:_MAX_WITHOUT_REQUESTS]
        asked = set(chosen)
        self._turns = [each for each in self._turns if each not in asked] + chosen
        return chosen

    async def _check_open(self, opened: _OpenRequests) -> None:
        if any([await self._callers.is_ended(each.credential, each.policy) for each in opened.bearers]):
            for task in list(opened.tasks):
                task.cancel()
            await self._end_work(opened.caller.principal, opened.caller.credential)

    async def _check(self, principal: str, policy: str, credential: str) -> None:
        # An issued token's creator has a token on the same servers, and is asked about itself.
        if await self._callers.is_ended(credential, policy):
            await self._end_work(principal, credential)
