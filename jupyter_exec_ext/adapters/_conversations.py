"""One session for each conversation, where one agent has many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack

from ..models import Execution
from ._code_session import CodeSession
from ._tool_text import NotRun

#: How many conversations keep their session, where nobody says another number.
MAX_CONVERSATIONS = 16
#: An application that begins conversations and never says that they are over leaves kernels for as long as this.
CONVERSATION_IDLE_SECONDS = 3600.0
# How many conversations without a session are remembered, so that they are told when they go on.
_MAX_REMEMBERED = 10_000


class Conversations:
    """The sessions of an agent's conversations, so that none sees another's variables.

    A session lasts as long as somebody holds its conversation, or all of them, and until others need its place.

    Parameters
    ----------
    new_session : callable
        Makes a session; it opens itself when it is first used.
    max_conversations : int
        How many sessions there are at most. For one more, the one is closed that was not used for longest, of those in
        which nothing runs and that nobody holds by itself; where there is none, there is one more for the time being.

    Raises
    ------
    ValueError
        If not a single one is allowed.
    """

    def __init__(self, new_session: Callable[[], CodeSession], max_conversations: int = MAX_CONVERSATIONS) -> None:
        if max_conversations < 1:
            raise ValueError("max_conversations must be at least 1")
        self._new_session = new_session
        self._max_conversations = max_conversations
        self._sessions: dict[Hashable, CodeSession] = {}  # the one that was used last is the last
        self._runs: Counter[Hashable] = Counter()
        self._holders: Counter[Hashable] = Counter()
        self._holders_of_all = 0
        self._displaced: dict[Hashable, None] = {}  # the one that was displaced last is the last

    async def run(self, conversation: Hashable, code: str) -> Execution | NotRun:
        """Run code in a conversation's session; see `CodeSession.run`."""
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
            self._runs -= Counter({conversation: 1})

    async def _make_room_for(self, conversation: Hashable) -> None:
        while len(self._sessions) + (conversation not in self._sessions) > self._max_conversations:
            in_use = self._runs.keys() | self._holders.keys()
            longest_unused = next((other for other in self._sessions if other not in in_use), None)
            if longest_unused is None:
                return
            self._displaced[longest_unused] = None
            if len(self._displaced) > _MAX_REMEMBERED:
                del self._displaced[next(iter(self._displaced))]
            await self._close_session(longest_unused)

    def hold(self, conversation: Hashable) -> None:
        """Keep a conversation's session until `release`."""
        self._holders[conversation] += 1

    async def release(self, conversation: Hashable) -> None:
        """Close a conversation's session, unless somebody else holds it."""
        self._holders -= Counter({conversation: 1})
        await self._close_unless_held([conversation])

    def hold_all(self) -> None:
        """Keep every session until `release_all`."""
        self._holders_of_all += 1

    async def release_all(self) -> None:
        """Close all sessions that nobody else holds."""
        self._holders_of_all -= 1
        await self._close_unless_held(list(self._sessions))

    async def close(self, conversation: Hashable) -> None:
        """Close a conversation's session; its next run gets a fresh one."""
        self._displaced.pop(conversation, None)
        await self._close_session(conversation)

    async def close_all(self) -> None:
        """Close all sessions, whoever holds them."""
        self._displaced.clear()
        await self._close(list(self._sessions))

    async def _close_session(self, conversation: Hashable) -> None:
        session = self._sessions.pop(conversation, None)
        if session is not None:
            await session.close()

    async def _close_unless_held(self, conversations: list[Hashable]) -> None:
        if not self._holders_of_all:
            await self._close([conversation for conversation in conversations if not self._holders[conversation]])

    async def _close(self, conversations: list[Hashable]) -> None:
        async with AsyncExitStack() as stack:  # one that fails keeps none of the others
            for conversation in conversations:
                stack.push_async_callback(self.close, conversation)
