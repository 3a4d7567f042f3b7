"""Fresh runs: executions in a session of their own, which is ended after the run.

A session that is still ending is waited for where there is no room for another one, so that a caller who may have one
session at a time can run one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

from ...auth.caller import Caller
from ...errors import ExecError, PolicyLimitReached, TooManyKernels, TooManySessions, Unavailable
from ...models import ExecutionRequest, IdempotencyKey, Session, SessionRequest
from ..concurrency import BackgroundTasks
from ..executions.live_execution import ExecutionHandle
from .execution_service import ExecutionService, idempotency_of
from .session_service import SessionService

_END_REASON = "it was for one run, which has ended"
_NO_ROOM = (TooManySessions, TooManyKernels, PolicyLimitReached)
_WAIT_FOR_ROOM_SECONDS = 10.0


class FreshRuns:
    """Creates such sessions, and ends them."""

    def __init__(self, sessions: SessionService, executions: ExecutionService, background: BackgroundTasks) -> None:
        self._sessions = sessions
        self._executions = executions
        self._background = background
        # By a future of each session's end: its owner and its execution, if there is one.
        self._ends: dict[asyncio.Future[None], tuple[str, ExecutionHandle | None]] = {}
        # Requests with a key whose execution is not accepted yet, by caller and key.
        self._begun: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def run(
        self,
        caller: Caller,
        session: SessionRequest,
        request: ExecutionRequest,
        key: str | None = None,
        *,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> ExecutionHandle:
        """Accept code into a fresh session, which ends after the run.

        Parameters
        ----------
        key : str, optional
            With the key of an earlier such request, nothing is run: that request's execution is returned.
        is_wanted : callable
            Returns whether the client is still connected; no code is started for one that is gone.

        Raises
        ------
        ExecError
            As `ExecEngine.create_session` and `ExecEngine.execute`. The session is ended.
        """
        idempotency = idempotency_of(key, request, session)
        if idempotency is None:
            return await self._run(caller, session, request, None, is_wanted)
        mine = (caller.principal, idempotency.key)
        # The first request may have failed. Then one of those that wait becomes the first.
        while mine in self._begun:
            await asyncio.wait([self._begun[mine]])
            earlier = await self._executions.find_earlier("", caller.principal, idempotency)
            if earlier is not None:
                return earlier
        begun = self._begun[mine] = asyncio.get_running_loop().create_future()
        try:
            return await self._run(caller, session, request, idempotency, is_wanted)
        finally:
            del self._begun[mine]
            begun.set_result(None)

    async def _run(
        self,
        caller: Caller,
        session: SessionRequest,
        request: ExecutionRequest,
        idempotency: IdempotencyKey | None,
        is_wanted: Callable[[], bool],
    ) -> ExecutionHandle:
        try:
            made = await self._create_session(caller, session, is_wanted)
        except ExecError:
            # A retried request needs no room: it gets the execution that its first try started.
            earlier = await self._executions.find_earlier("", caller.principal, idempotency)
            if earlier is None:
                raise
            return earlier
        with ExitStack() as undo:
            undo.callback(self._end_with, None, made)
            # Again: the client may have gone while the kernel started.
            _require(is_wanted)
            execution = await self._executions.execute(caller, made.id, request, idempotency)
            undo.pop_all()
        own = execution.record.session_id == made.id  # and not of an earlier request with the same key
        self._end_with(execution if own else None, made)
        return execution

    async def _create_session(self, caller: Caller, request: SessionRequest, is_wanted: Callable[[], bool]) -> Session:
        give_up_at = time.monotonic() + _WAIT_FOR_ROOM_SECONDS
        while True:
            _require(is_wanted)
            try:
                return await self._sessions.create(caller, request)
            except _NO_ROOM as error:
                # Only an end that counts under the caller's policies makes room there. Sessions that still run code are
                # left out, since they may take any time.
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
        """End a session in the background, after its execution if it has one."""
        ended = asyncio.get_running_loop().create_future()
        self._ends[ended] = session.owner, execution
        self._background.start(self._end_session(ended, session.id, execution))

    async def _end_session(
        self, ended: asyncio.Future[None], session_id: str, execution: ExecutionHandle | None
    ) -> None:
        try:
            if execution is not None:
                await execution.outcome()  # clients wait for it since earlier, so they are answered first
                await execution.wait()
            await self._sessions.end(session_id, _END_REASON)
        finally:
            del self._ends[ended]
            ended.set_result(None)


def _require(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise Unavailable("whoever has asked for this is gone, so it was not begun")
