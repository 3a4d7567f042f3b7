"""Kernel messages of clients of Jupyter's protocol, other than code: requests, comm messages, and watchers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...auth.caller import Caller
from ...auth.policy import check_code
from ...errors import PayloadTooLarge
from ...protocol.strict_json import dump_bytes, utf8_size
from ..access.caller_limits import EffectiveLimits
from ..ports import AuditTrail
from ..settings import EngineSettings
from .message_audit import MessageAudit
from .session_registry import SessionRegistry
from .session_service import SessionService
from .session_watchers import SessionWatcher

#: Timeout of a kernel's reply. The kernel replies after the code that runs, so this is long.
ANSWER_SECONDS = 600.0


class KernelMessageService:
    """Messages between callers and the kernels of their sessions.

    Parameters
    ----------
    sessions : SessionService
        Service that finds a caller's sessions.
    registry : SessionRegistry
        Registry of the executions that have not ended.
    settings : EngineSettings
        Settings with the limits on code and output.
    audit : AuditTrail
        The audit trail.
    """

    def __init__(
        self, sessions: SessionService, registry: SessionRegistry, settings: EngineSettings, audit: AuditTrail
    ) -> None:
        self._sessions = sessions
        self._registry = registry
        self._settings = settings
        self._message_audit = MessageAudit(audit)

    def close(self) -> None:
        """Write the audit records that are still to be written."""
        self._message_audit.close()

    async def watch(self, caller: Caller, session_id: str, watcher: SessionWatcher) -> Callable[[], None]:
        """Add a watcher to a session, and notify it at once of the executions that have not ended.

        Parameters
        ----------
        caller : Caller
            Owner of the watcher.
        session_id : str
            Id of the session.
        watcher : SessionWatcher
            The watcher.

        Returns
        -------
        callable
            Removes the watcher.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        live = await self._sessions.get_live(caller, session_id)
        for execution in self._registry.executions_of(session_id):
            watcher.on_execution(execution)
        return live.watchers.add(watcher)

    async def send_request(
        self, caller: Caller, session_id: str, msg_type: str, content: Mapping[str, Any], *, channel: str = "shell"
    ) -> Mapping[str, Any]:
        """Send a request to the kernel, and wait for the reply.

        Parameters
        ----------
        caller : Caller
            Sender of the request.
        session_id : str
            Id of the session.
        msg_type : str
            Type of the request.
        content : mapping
            Content of the request.
        channel : str
            ``shell`` or ``control``.

        Returns
        -------
        mapping
            Content of the reply.

        Raises
        ------
        PolicyDenied, PayloadTooLarge
            If the request exceeds the caller's limit on code, or the reply its limit on output.
        ExecError
            As for `watch` and `PendingKernelRequests.send_request`.
        """
        live = await self._sessions.get_live(caller, session_id)
        code = content.get("code")
        self._check_message_size(caller, len(dump_bytes(content)), utf8_size(code) if isinstance(code, str) else 0)
        live.renew_idle_timeout()
        self._message_audit.count_message(caller.principal, session_id, msg_type)
        reply = await live.requests.send_request(msg_type, content, ANSWER_SECONDS, channel=channel)
        max_bytes = EffectiveLimits(self._settings, caller).output_bytes
        if len(dump_bytes(reply)) > max_bytes:
            raise PayloadTooLarge(f"the kernel's reply exceeds the limit of {max_bytes} bytes (max_output_bytes)")
        return reply

    async def send_comm_message(
        self,
        caller: Caller,
        session_id: str,
        msg_type: str,
        content: Mapping[str, Any],
        metadata: Mapping[str, Any],
        header: Mapping[str, str],
    ) -> None:
        """Send a comm message to the kernel.

        Its handler has the time limit and the output limit of an execution.

        Parameters
        ----------
        caller : Caller
            Sender of the message.
        session_id : str
            Id of the session.
        msg_type : str
            Type of the message.
        content : mapping
            Content of the message.
        metadata : mapping
            Metadata of the message.
        header : mapping
            Header of the caller's message. Watchers get it as the parent of the handler's output.

        Raises
        ------
        PolicyDenied, PayloadTooLarge
            If the message exceeds the caller's limit on code.
        ExecError
            As for `watch` and `PendingKernelRequests.send_comm_message`.
        """
        live = await self._sessions.get_live(caller, session_id)
        size_bytes = len(dump_bytes(content)) + len(dump_bytes(metadata))
        self._check_message_size(caller, size_bytes, size_bytes)  # the comm's handler may run any part of it
        live.renew_idle_timeout()
        self._message_audit.count_message(caller.principal, session_id, msg_type)
        limits = EffectiveLimits(self._settings, caller)
        await live.requests.send_comm_message(
            msg_type,
            content,
            metadata,
            header,
            max_output_bytes=limits.output_bytes,
            timeout_seconds=limits.run_seconds(None),
        )

    def _check_message_size(self, caller: Caller, size_bytes: int, code_bytes: int) -> None:
        max_bytes = self._settings.max_code_bytes
        if size_bytes > max_bytes:
            raise PayloadTooLarge(f"the message has {size_bytes} bytes; the limit is {max_bytes} (max_code_bytes)")
        for policy in caller.policies:
            check_code(policy, code_bytes)
