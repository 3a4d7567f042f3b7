"""Pool of sessions: one for each conversation of an agent, closed when unused for longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack

from ..models import Execution
from ._code_session import CodeSession
from ._tool_text import NotRun

#: Default number of conversations that keep their session.
MAX_CONVERSATIONS = 16
#: Idle time after which the server ends the session of a conversation that the application has not closed.
CONVERSATION_IDLE_SECONDS = 3600.0
# Conversations remembered after they lost their session, so that the model is told when they go on.
_MAX_REMEMBERED = 10_000


class Conversations:
    """The sessions of an agent's conversations, which do not share variables.

    A session is closed once its conversation is not retained any more, neither by `retain` nor by `retain_all`.
    `max_conversations` closes sessions earlier: only `retain` and a running execution protect a session from it.

    Parameters
    ----------
    new_session : callable
        Makes a `CodeSession`.
    max_conversations : int
        Largest number of sessions. One more closes the least recently used one that is idle and whose conversation is
        not retained by `retain`. If all are in use, the limit is exceeded until one is free.

    Raises
    ------
    ValueError
        If `max_conversations` is below 1.
    """

    def __init__(self, new_session: Callable[[], CodeSession], max_conversations: int = MAX_CONVERSATIONS) -> None:
        if max_conversations < 1:
            raise ValueError("max_conversations must be at least 1")
        self._new_session = new_session
        self._max_conversations = max_conversations
        self._sessions: dict[Hashable, CodeSession] = {}  # the most recently used is the last
        self._runs: Counter[Hashable] = Counter()
        self._retained: Counter[Hashable] = Counter()
        self._retained_all_count = 0
        self._displaced: dict[Hashable, None] = {}  # the most recently displaced is the last

    async def run(self, conversation: Hashable, code: str) -> Execution | NotRun:
        """Run code in a conversation's session, as `CodeSession.run` does."""
        # Before the first await, so that no other run closes this session.
        self._runs[conversation] += 1
        try:
            if conversation in self._displaced:
                del self._displaced[conversation]
                return NotRun.from_lost_session("the session was closed to make room for other conversations")
            await self._make_room_for(conversation)
            session = self._sessions.pop(conversation) if conversation in self._sessions else self._new_session()
            self._sessions[conversation] = session
            return await session.run(code)
        finally:
            # Unlike `subtract`, this drops counts of 0, so the keys are the conversations in use.
            self._runs -= Counter({conversation: 1})

    async def _make_room_for(self, conversation: Hashable) -> None:
        while len(self._sessions) + (conversation not in self._sessions) > self._max_conversations:
            in_use = self._runs.keys() | self._retained.keys()
            least_recent = next((other for other in self._sessions if other not in in_use), None)
            if least_recent is None:
                return
            self._displaced[least_recent] = None
            if len(self._displaced) > _MAX_REMEMBERED:
                del self._displaced[next(iter(self._displaced))]
            await self._close_session(least_recent)

    def retain(self, conversation: Hashable) -> None:
        """Keep a conversation's session open until `release`, also beyond `max_conversations`."""
        self._retained[conversation] += 1

    async def release(self, conversation: Hashable) -> None:
        """Undo a `retain`; close the conversation's session unless it is still retained."""
        self._retained -= Counter({conversation: 1})
        await self._close_unless_retained([conversation])

    def retain_all(self) -> None:
        """Keep idle sessions open until `release_all`; the limit `max_conversations` still applies."""
        self._retained_all_count += 1

    async def release_all(self) -> None:
        """Undo a `retain_all`; close all sessions that are not retained."""
        self._retained_all_count -= 1
        await self._close_unless_retained(list(self._sessions))

    async def close(self, conversation: Hashable) -> None:
        """Close a conversation's session; its next run gets a fresh one."""
        self._displaced.pop(conversation, None)
        await self._close_session(conversation)

    async def close_all(self) -> None:
        """Close all sessions, also retained ones."""
        self._displaced.clear()
        await self._close(list(self._sessions))

    async def _close_session(self, conversation: Hashable) -> None:
        session = self._sessions.pop(conversation, None)
        if session is not None:
            await session.close()

    async def _close_unless_retained(self, conversations: list[Hashable]) -> None:
        if not self._retained_all_count:
            await self._close([conversation for conversation in conversations if not self._retained[conversation]])

    async def _close(self, conversations: list[Hashable]) -> None:
        async with AsyncExitStack() as stack:  # a failure must not keep the others open
            for conversation in conversations:
                stack.push_async_callback(self.close, conversation)
