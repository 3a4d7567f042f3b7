"""Kernel message service: what clients of Jupyter's own protocol do with a session beside running code in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...auth.caller import Caller
from ...errors import PayloadTooLarge
from ...protocol.strict_json import dump_bytes
from ..access.caller_limits import EffectiveLimits
from ..settings import EngineSettings
from .session_registry import SessionRegistry
from .session_service import SessionService
from .session_watchers import SessionWatcher

#: How long a kernel may take to answer; it does so when the code that it runs has ended.
ANSWER_SECONDS = 600.0


class KernelMessageService:
    """Messages between callers and the kernels of their sessions.

    Parameters
    ----------
    sessions : SessionService
        Finds a caller's sessions.
    registry : SessionRegistry
        Has the executions that have not ended.
    settings : EngineSettings
        Has the limits on output.
    """

    def __init__(self, sessions: SessionService, registry: SessionRegistry, settings: EngineSettings) -> None:
        self._sessions = sessions
        self._registry = registry
        self._settings = settings

    async def watch(self, caller: Caller, session_id: str, watcher: SessionWatcher) -> Callable[[], None]:
        """Notify a watcher of what happens in a session; return a function that ends that.

        The first are the executions that have not ended.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        live = await self._sessions.get_live(caller, session_id)
        for execution in self._registry.executions_of(session_id):
            watcher.on_execution(execution)
        return live.watchers.add(watcher)

    async def ask(
        self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the content of the kernel's reply to a request.

        Raises
        ------
        PayloadTooLarge
            If the reply exceeds the caller's limit on output.
        ExecError
            As `watch` and `PendingKernelRequests.ask`.
        """
        live = await self._sessions.get_live(caller, session_id)
        reply = await live.requests.ask(msg_type, content, ANSWER_SECONDS)
        max_bytes = EffectiveLimits(self._settings, caller).output_bytes
        if len(dump_bytes(reply)) > max_bytes:
            raise PayloadTooLarge(f"the kernel's reply has more than {max_bytes} bytes (max_output_bytes)")
        return reply

    async def send_comm(
        self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any], header: Mapping[str, str]
    ) -> None:
        """Send a message of a comm to the kernel; raise as `watch` and `PendingKernelRequests.send_comm`.

        Parameters
        ----------
        header : mapping
            The header of the caller's message. What the kernel sends in return has it as its parent.
        """
        live = await self._sessions.get_live(caller, session_id)
        await live.requests.send_comm(
            msg_type, content, header, max_output_bytes=EffectiveLimits(self._settings, caller).output_bytes
        )
