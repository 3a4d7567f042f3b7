"""Named sessions: found by a caller's own name for them, and created on first use.

Each principal has names of its own. A name is remembered until its session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...auth.caller import Caller
from ...errors import SessionEnded
from ...models import Session
from .live_session import LiveSession
from .session_registry import SessionRegistry

Name = tuple[str, ...]
Create = Callable[[], Coroutine[Any, Any, Session]]
T = TypeVar("T")


class NamedSessions:
    """Sessions by name; concurrent requests for a missing one create a single session."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._ids: dict[tuple[str, Name], str] = {}
        self._starting: dict[tuple[str, Name], asyncio.Task[Session]] = {}

    async def find(self, caller: Caller, name: Name) -> Session | None:
        """Return the caller's session of this name, once it has started; None if there is none.

        The session's idle time starts anew.
        """
        starting = self._starting.get((caller.principal, name))
        if starting is not None:
            return await asyncio.shield(starting)
        live = self._living((caller.principal, name))
        return live.record if live is not None and live.renew_idle_timeout() else None

    async def use(self, caller: Caller, name: Name, create: Create, verb: Callable[[str], Awaitable[T]]) -> T:
        """Call `verb` with the id of the caller's session of this name, which is created if there is none.

        A session that ends before `verb` could use it is replaced.
        """
        session = await self._find_or_create(caller, name, create)
        try:
            return await verb(session.id)
        except SessionEnded:
            session = await self._find_or_create(caller, name, create)
            return await verb(session.id)

    def list(self, caller: Caller) -> dict[Name, Session]:
        """Return the caller's sessions that have names, oldest first."""
        found = {}
        for principal, name in self._ids:
            live = self._living((principal, name))
            if principal == caller.principal and live is not None and not live.is_closing:
                found[name] = live.record
        return found

    async def _find_or_create(self, caller: Caller, name: Name, create: Create) -> Session:
        # Nothing is awaited between the lookup and the entry in `_starting`, so no second session is created.
        session = await self.find(caller, name)
        if session is not None:
            return session
        key = (caller.principal, name)
        starting = self._starting.get(key)
        if starting is None:
            starting = asyncio.get_running_loop().create_task(self._create(key, create))
            self._starting[key] = starting
        return await asyncio.shield(starting)

    async def _create(self, key: tuple[str, Name], create: Create) -> Session:
        try:
            session = await create()
            self._ids = {known: at for known, at in self._ids.items() if self._living(known) is not None}
            self._ids[key] = session.id
            return session
        finally:
            del self._starting[key]

    def _living(self, key: tuple[str, Name]) -> LiveSession | None:
        return self._registry.sessions.get(self._ids.get(key, ""))
