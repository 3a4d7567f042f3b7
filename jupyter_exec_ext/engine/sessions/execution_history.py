"""Execution history: pages of a session's executions, and the search in all that a caller may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...auth.caller import Caller
from ...models import Execution, FoundExecution
from ..ports import ExecutionStore
from .session_registry import SessionRegistry
from .session_service import SessionService


class ExecutionHistory:
    """Lists and searches executions. Those that have not ended are as they are now."""

    def __init__(self, executions: ExecutionStore, sessions: SessionService, registry: SessionRegistry) -> None:
        self._executions = executions
        self._sessions = sessions
        self._registry = registry

    async def list(
        self, caller: Caller, session_id: str, limit: int, before: str | None = None, after: str | None = None
    ) -> Sequence[Execution]:
        """Return the session's newest executions, oldest first.

        Parameters
        ----------
        limit : int
            The greatest number of executions.
        before : str, optional
            The id of an execution: only those that came before it.
        after : str, optional
            The id of an execution: the oldest of those that came after it.

        Raises
        ------
        SessionNotFound, ExecutionNotFound
            If there is no such session that the caller may see, or it has no such execution.
        """
        await self._sessions.get(caller, session_id)
        # Noted first: one that ends while the store is read is in the store as it was before.
        live = {execution.record.id: execution for execution in self._registry.executions_of(session_id)}
        stored = await self._executions.list(session_id, limit, before, after)
        return [live[one.id].record if one.id in live else one for one in stored]

    async def search(
        self, caller: Caller, text: str, before: str | None, limit: int, is_wanted: Callable[[], bool]
    ) -> tuple[Sequence[FoundExecution], bool]:
        """Return the newest executions that have a text, and whether all are in the index yet.

        Parameters and errors are those of the store's `search`.
        """
        found, is_complete = await self._executions.search(text, caller.principal, before, limit, is_wanted)
        live = self._registry.executions
        return [
            replace(one, execution=live[one.execution.id][1].record) if one.execution.id in live else one
            for one in found
        ], is_complete
