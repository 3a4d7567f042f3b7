"""Kernel message service: what clients of Jupyter's own protocol do with a session beside running code in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...auth.caller import Caller
from ...auth.policy import check_code
from ...errors import PayloadTooLarge
from ...protocol.strict_json import dump_bytes, utf8_size
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
        self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any], *, channel: str = "shell"
    ) -> Mapping[str, Any]:
        """Return the content of the kernel's reply to a request.

        Raises
        ------
        PolicyDenied, PayloadTooLarge
            If the request exceeds the caller's limit on code, or the reply the limit on output.
        ExecError
            As `watch` and `PendingKernelRequests.ask`.
        """
        live = await self._sessions.get_live(caller, session_id)
        code = content.get("code")
        self._require_small(caller, len(dump_bytes(content)), utf8_size(code) if isinstance(code, str) else 0)
        live.renew_idle_timeout()
        reply = await live.requests.ask(msg_type, content, ANSWER_SECONDS, channel=channel)
        max_bytes = EffectiveLimits(self._settings, caller).output_bytes
        if len(dump_bytes(reply)) > max_bytes:
            raise PayloadTooLarge(f"the kernel's reply has more than {max_bytes} bytes (max_output_bytes)")
        return reply

    async def send_comm(
        self,
        caller: Caller,
        session_id: str,
        msg_type: str,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        header: Mapping[str, str],
    ) -> None:
        """Send a message of a comm to the kernel.

        Its handler has the time and the output of an execution.

        Parameters
        ----------
        caller : Caller
            The sender.
        session_id : str
            The session.
        msg_type : str
            Type of the message.
        content, metadata : mapping
            Its content and metadata.
        header : mapping
            The header of the caller's message, which is the parent of all that the kernel sends in return.

        Raises
        ------
        PolicyDenied, PayloadTooLarge
            If the message exceeds the caller's limit on code.
        ExecError
            As `watch` and `PendingKernelRequests.send_comm`.
        """
        live = await self._sessions.get_live(caller, session_id)
        size_bytes = len(dump_bytes(content)) + len(dump_bytes(metadata))
        self._require_small(caller, size_bytes, size_bytes)  # any part of it can be code to the comm's handler
        live.renew_idle_timeout()
        limits = EffectiveLimits(self._settings, caller)
        await live.requests.send_comm(
            msg_type,
            content,
            metadata,
            header,
            max_output_bytes=limits.output_bytes,
            timeout_seconds=limits.run_seconds(None),
        )

    def _require_small(self, caller: Caller, size_bytes: int, code_bytes: int) -> None:
        max_bytes = self._settings.max_code_bytes
        if size_bytes > max_bytes:
            raise PayloadTooLarge(f"a message may have at most {max_bytes} bytes (max_code_bytes)")
        for policy in caller.policies:
            check_code(policy, code_bytes)
