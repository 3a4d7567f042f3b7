"""Credential watch: ends what goes on in the name of a token soon after the Hub, or the pool, has revoked it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import ExecError
from .callers import FRESH_SECONDS, Callers, PoolCaller

# As long as one of the latest may still run, its token is asked about.
_MAX_EXECUTIONS = 1000

EndWork = Callable[[PoolCaller], Awaitable[None]]


@dataclass(slots=True)
class _Work:
    """Work that was begun with a credential: open requests, and executions that may still run."""

    caller: PoolCaller
    requests: set[asyncio.Task[Any]] = field(default_factory=set)
    executions: OrderedDict[str, float] = field(default_factory=OrderedDict)  # with the time of their acceptance


class CredentialWatch:
    """Asks again about tokens with open requests or executions, and ends these when a token has ended.

    Parameters
    ----------
    callers : Callers
        Knows whether a token has ended.
    may_run : callable
        Returns whether an execution that was accepted at a time of the monotonic clock may still run.
    end_work : callable
        Called once with the bearer of a token that has ended.
    log : logging.Logger
        The pool's log.
    """

    def __init__(
        self, callers: Callers, may_run: Callable[[str, float], bool], end_work: EndWork, log: logging.Logger
    ) -> None:
        self._callers = callers
        self._may_run = may_run
        self._end_work = end_work
        self._log = log
        self._work: dict[str, _Work] = {}

    @contextmanager
    def open_request(self, caller: PoolCaller) -> Iterator[None]:
        """Count the current task as a request of a caller; it is cancelled when the caller's token ends."""
        task = asyncio.current_task()
        assert task is not None
        work = self._work.setdefault(caller.credential, _Work(caller))
        work.requests.add(task)
        try:
            yield
        finally:
            work.requests.discard(task)
            if not work.requests and not work.executions:
                self._work.pop(caller.credential, None)

    def note_execution(self, caller: PoolCaller, execution_id: str) -> None:
        """Remember an execution, so that the caller's token is asked about while it may run."""
        work = self._work.setdefault(caller.credential, _Work(caller))
        work.executions[execution_id] = time.monotonic()
        if len(work.executions) > _MAX_EXECUTIONS:
            work.executions.popitem(last=False)

    async def run(self) -> None:
        """Ask about the tokens, one round every `FRESH_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(FRESH_SECONDS)
            await asyncio.gather(*(self._check(credential) for credential in list(self._work)))

    async def _check(self, credential: str) -> None:
        work = self._work.get(credential)
        if work is None:
            return
        for execution_id in [each for each, at in work.executions.items() if not self._may_run(each, at)]:
            del work.executions[execution_id]
        if not work.requests and not work.executions:  # nobody need be asked
            del self._work[credential]
            return
        creator = work.caller.creator
        credentials = [credential] if creator is None else [credential, creator.credential]
        if not any([await self._callers.is_ended(each) for each in credentials]):
            return
        self._work.pop(credential, None)
        for task in list(work.requests):
            task.cancel()
        try:
            await self._end_work(work.caller)
        except ExecError as error:  # a server that cannot be reached ends them itself, when its token there expires
            self._log.warning(
                "pool: work of %s could not be ended everywhere: %s", work.caller.principal, error.message
            )
