"""Runs in sessions of their own: a fresh one for each, which ends with it.

A session that is only still ending is nobody's any more. Where there may be no further one, it is waited for, so that
who may have one session at a time can run one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ...auth.caller import Caller
from ...errors import ExecError, PolicyLimitReached, TooManyKernels, TooManySessions, Unavailable
from ...models import ExecutionRequest, IdempotencyKey, Session, SessionRequest
from ..executions.idempotency import idempotency_of
from ..executions.live_execution import ExecutionHandle

_END = "it was for one run, which has ended"
_NO_ROOM = (TooManySessions, TooManyKernels, PolicyLimitReached)
_PATIENCE_SECONDS = 10.0


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
        # For each session its end, whose it is and what it is for, if it came to that.
        self._ends: dict[asyncio.Future[None], tuple[str, ExecutionHandle | None]] = {}
        # Requests with a key that have not come to an execution yet, by their caller and it.
        self._begun: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def run(
        self,
        caller: Caller,
        session: SessionRequest,
        request: ExecutionRequest,
        key: str | None = None,
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> ExecutionHandle:
        """Accept code into a fresh session, which ends when the code has.

        Parameters
        ----------
        key : str, optional
            With the key of an earlier such request, nothing is run: that request's execution is returned.
        wanted : callable
            Whether the caller is still there; code is not begun for nobody.

        Raises
        ------
        ExecError
            As making a session and running code in it do. The session is ended.
        """
        idempotency = idempotency_of(key, request, session)
        if idempotency is None:
            return await self._run(caller, session, request, None, wanted)
        mine = (caller.principal, idempotency.key)
        while mine in self._begun:
            await asyncio.wait([self._begun[mine]])
            earlier = await self._earlier("", caller.principal, idempotency)
            if earlier is not None:
                return earlier
        begun = self._begun[mine] = asyncio.get_running_loop().create_future()
        try:
            return await self._run(caller, session, request, idempotency, wanted)
        finally:
            del self._begun[mine]
            begun.set_result(None)

    async def _run(
        self,
        caller: Caller,
        session: SessionRequest,
        request: ExecutionRequest,
        idempotency: IdempotencyKey | None,
        wanted: Callable[[], bool],
    ) -> ExecutionHandle:
        try:
            made = await self._make(caller, session, wanted)
        except ExecError:
            # It needs no room if it has had its own: an answer that was lost is given again.
            earlier = await self._earlier("", caller.principal, idempotency)
            if earlier is None:
                raise
            return earlier
        try:
            _require(wanted)
            execution = await self._execute(caller, made.id, request, idempotency)
        except BaseException:
            self._end_with(None, made)
            raise
        own = execution.record.session_id == made.id  # and not of an earlier request with the same key
        self._end_with(execution if own else None, made)
        return execution

    async def _make(self, caller: Caller, request: SessionRequest, wanted: Callable[[], bool]) -> Session:
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            _require(wanted)
            try:
                return await self._create(caller, request)
            except _NO_ROOM as error:
                bounds = caller.bounds if isinstance(error, PolicyLimitReached) else ()
                ending = [
                    end
                    for end, (principal, execution) in self._ends.items()
                    if (execution is None or execution.record.state.finished)
                    and (not bounds or any(bound.covers(principal) for bound in bounds))
                ]
                left_seconds = give_up_at - time.monotonic()
                if not ending or left_seconds <= 0:
                    raise
                await asyncio.wait(ending, timeout=left_seconds, return_when=asyncio.FIRST_COMPLETED)

    def _end_with(self, execution: ExecutionHandle | None, session: Session) -> None:
        """Have a session end with its execution; at once if it has none."""
        ended = asyncio.get_running_loop().create_future()
        self._ends[ended] = session.owner, execution
        self._in_background(self._end_session(ended, session.id, execution))

    async def _end_session(
        self, ended: asyncio.Future[None], session_id: str, execution: ExecutionHandle | None
    ) -> None:
        try:
            if execution is not None:
                await execution.outcome()  # those who wait for it began earlier, and so are answered first
                await execution.wait()
            await self._end(session_id, _END)
        finally:
            del self._ends[ended]
            ended.set_result(None)


def _require(wanted: Callable[[], bool]) -> None:
    if not wanted():
        raise Unavailable("whoever has asked for this is gone, so it was not begun")
