"""Audit of messages that can run code outside an execution: a rate-limited count for each caller, session and type."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ..ports import AuditTrail

#: Types of messages that can run code: completions and inspections evaluate names, and comms call handlers.
AUDITED_TYPES = frozenset({"complete_request", "inspect_request", "comm_open", "comm_msg", "comm_close"})
#: Time for which further messages are only counted.
WINDOW_SECONDS = 60.0


class _Key(NamedTuple):
    principal: str
    session_id: str
    msg_type: str


class MessageAudit:
    """Writer of audit records about messages.

    The first message leaves a record at once. Those of the next minute leave one record with their count. There is one
    window for each caller, live session and type, so their number is bounded with that of sessions.

    Parameters
    ----------
    audit : AuditTrail
        The audit trail.
    """

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit
        self._counts: dict[_Key, int] = {}
        self._timers: dict[_Key, asyncio.TimerHandle] = {}

    def count_message(self, principal: str, session_id: str, msg_type: str) -> None:
        """Count a message that was sent to a kernel.

        Parameters
        ----------
        principal : str
            Principal of the sender.
        session_id : str
            Id of the session.
        msg_type : str
            Type of the message. Types outside `AUDITED_TYPES` are not counted.
        """
        if msg_type not in AUDITED_TYPES:
            return
        key = _Key(principal, session_id, msg_type)
        if key in self._timers:
            self._counts[key] = self._counts.get(key, 0) + 1
            return
        self._record(key, 1)
        self._timers[key] = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end_window, key)

    def _end_window(self, key: _Key) -> None:
        self._timers.pop(key).cancel()
        if count := self._counts.pop(key, 0):
            self._record(key, count)

    def _record(self, key: _Key, count: int) -> None:
        self._audit.record("session", "messages_sent", key.principal, key.session_id, message=key.msg_type, count=count)

    def close(self) -> None:
        """Write the counts of open windows."""
        for key in [*self._timers]:
            self._end_window(key)
