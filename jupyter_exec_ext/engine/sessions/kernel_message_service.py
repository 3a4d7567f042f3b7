"""Message service: what clients of Jupyter's own protocol do with a session beside running code in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...auth.caller import Caller
from .live_session import LiveSession, ended_error
from .session_registry import SessionRegistry
from .session_service import SessionService
from .session_watchers import SessionWatcher

#: How long a kernel may take to answer; it does so when the code that it runs has ended.
ANSWER_SECONDS = 600.0


class KernelMessageService:
    """Messages between callers and the kernels of their sessions."""

    def __init__(self, sessions: SessionService, registry: SessionRegistry) -> None:
        self._sessions = sessions
        self._registry = registry

    async def watch(self, caller: Caller, session_id: str, watcher: SessionWatcher) -> Callable[[], None]:
        """Tell a watcher what happens in a session; return a function that ends that.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        return (await self._live(caller, session_id)).watchers.add(watcher)

    async def ask(
        self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the content of the kernel's reply to a request; raise as `watch` and `PendingKernelRequests.ask`."""
        return await (await self._live(caller, session_id)).questions.ask(msg_type, content, ANSWER_SECONDS)

    async def send_comm(self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any]) -> None:
        """Send a message of a comm to the kernel; raise as `watch`."""
        live = await self._live(caller, session_id)
        await live.kernel.ensure()
        assert live.kernel.connection is not None  # of `ensure`
        live.kernel.connection.send("shell", msg_type, content)

    async def _live(self, caller: Caller, session_id: str) -> LiveSession:
        record = await self._sessions.get(caller, session_id)
        live = self._registry.sessions.get(session_id)
        if live is None or live.is_closing:
            raise ended_error(record)
        return live
