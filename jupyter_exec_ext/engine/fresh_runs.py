"""Runs in sessions of their own: a fresh one for each, which ends with it.

A session that is only still ending is nobody's any more. Where there may be no further one, it is waited for, so that
who may have one session at a time can run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..auth.caller import Caller
from ..errors import ExecError, PolicyLimitReached, TooManyKernels, TooManySessions
from ..models import ExecutionRequest, IdempotencyKey, Session, SessionRequest
from .executions import ExecutionHandle
from .idempotency import idempotency_of

_END = "it was for one run, which has ended"
_NO_ROOM = (TooManySessions, TooManyKernels, PolicyLimitReached)


class FreshRuns:
    """Makes such sessions, and ends them.

    Parameters
    ----------
    create, execute
        Those of the engine.
    earlier : callable
        Returns the execution of an earlier request with the same key, if there is one.
    end : callable
        Ends a session, for a reason.
    in_background : callable
        Does something that nobody waits for.
    """

    def __init__(
        self,
        *,
        create: Callable[[Caller, SessionRequest], Awaitable[Session]],
        execute: Callable[[Caller, str, ExecutionRequest, IdempotencyKey | None], Awaitable[ExecutionHandle]],
        earlier: Callable[[str, str, IdempotencyKey | None], Awaitable[ExecutionHandle | None]],
        end: Callable[[str, str], Awaitable[None]],
        in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._create = create
        self._execute = execute
        self._earlier = earlier
        self._end = end
        self._in_background = in_background
        # For each session its end, and what it is for, if it came to that.
        self._ends: dict[asyncio.Future[None], ExecutionHandle | None] = {}

    async def run(
        self, caller: Caller, session: SessionRequest, request: ExecutionRequest, key: str | None = None
    ) -> ExecutionHandle:
        """Accept code into a fresh session, which ends when the code has.

        Parameters
        ----------
        key : str, optional
            With the key of an earlier such request, nothing is run: that request's execution is returned.

        Raises
        ------
        ExecError
            As making a session and running code in it do. The session is ended.
        """
        idempotency = idempotency_of(key, request, session)
        try:
            made = await self._make(caller, session)
        except ExecError:
            # It needs no room if it has had its own: an answer that was lost is given again.
            earlier = await self._earlier("", caller.principal, idempotency)
            if earlier is None:
                raise
            return earlier
        try:
            execution = await self._execute(caller, made.id, request, idempotency)
        except BaseException:
            self._end_with(None, made.id)
            raise
        own = execution.record.session_id == made.id  # and not of an earlier request with the same key
        self._end_with(execution if own else None, made.id)
        return execution

    async def _make(self, caller: Caller, request: SessionRequest) -> Session:
        while True:
            try:
                return await self._create(caller, request)
            except _NO_ROOM:
                ending = [end for end, of in self._ends.items() if of is None or of.record.state.finished]
                if not ending:
                    raise
                await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)

    def _end_with(self, execution: ExecutionHandle | None, session_id: str) -> None:
        """Have a session end with its execution; at once if it has none."""
        ended = asyncio.get_running_loop().create_future()
        self._ends[ended] = execution
        self._in_background(self._end_session(ended, session_id))

    async def _end_session(self, ended: asyncio.Future[None], session_id: str) -> None:
        try:
            execution = self._ends[ended]
            if execution is not None:
                await execution.outcome()  # those who wait for it began earlier, and so are answered first
                await execution.wait()
            await self._end(session_id, _END)
        finally:
            del self._ends[ended]
            ended.set_result(None)
