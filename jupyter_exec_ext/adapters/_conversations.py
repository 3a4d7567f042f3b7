"""One session for each conversation, where one agent has many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack

from ._code_session import CodeSession


class Conversations:
    """The sessions of an agent's conversations, so that none sees another's variables.

    A session lasts as long as somebody holds its conversation, or all of them.

    Parameters
    ----------
    new_session : callable
        Makes a session; it opens itself when it is first used.
    """

    def __init__(self, new_session: Callable[[], CodeSession]) -> None:
        self._new_session = new_session
        self._sessions: dict[Hashable, CodeSession] = {}
        self._holders: Counter[Hashable] = Counter()
        self._holders_of_all = 0

    def session(self, conversation: Hashable) -> CodeSession:
        """Return a conversation's session."""
        if conversation not in self._sessions:
            self._sessions[conversation] = self._new_session()
        return self._sessions[conversation]

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
        session = self._sessions.pop(conversation, None)
        if session is not None:
            await session.close()

    async def close_all(self) -> None:
        """Close all sessions, whoever holds them."""
        await self._close(list(self._sessions))

    async def _close_unless_held(self, conversations: list[Hashable]) -> None:
        if not self._holders_of_all:
            await self._close([conversation for conversation in conversations if not self._holders[conversation]])

    async def _close(self, conversations: list[Hashable]) -> None:
        async with AsyncExitStack() as stack:  # one that fails keeps none of the others
            for conversation in conversations:
                stack.push_async_callback(self.close, conversation)
