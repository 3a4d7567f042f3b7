"""Leases: a client's sessions end soon after it stops renewing its lease, well before their idle time is over.

The program at standard input and output (`adapters.mcp`) holds one. It names its lease in a header of each request, and
sends a message in time if there is nothing else to send. If it is killed, its sessions end once the lease runs out.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import InvalidRequest, PolicyLimitReached
from .caller_time_limits import renewal_seconds_of

#: Header that names the lease of a request's client, and how many seconds it lasts without another request.
LEASE_HEADER = "Jupyter-Exec-Lease"
_FORM = re.compile(r"([A-Za-z0-9_-]{16,64}); seconds=([1-9][0-9]{0,2})")
#: Leases of one principal, and of all together.
MAX_PER_PRINCIPAL, MAX_LEASES = 500, 1000


class Lease:
    """One client's lease.

    Attributes
    ----------
    state : dict
        Data of the tools about this client.
    sessions : list of str
        Ids of the sessions that were made for it.
    is_over : bool
        Whether its sessions have been ended.
    ends_at : float
        Time of the event loop at which it runs out.
    renewal_seconds : float
        Time between two renewals of its sessions, whose idle time may be shorter than the lease.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.sessions: list[str] = []
        self.is_over = False
        self.ends_at = self.renewal_seconds = 0.0
        self.timer: asyncio.TimerHandle | None = None


class Leases:
    """All leases of a server. A lease belongs to the caller that has named it first; others cannot use it.

    Parameters
    ----------
    engine : ExecEngine
        Has the sessions.
    """

    def __init__(self, engine: ExecEngine) -> None:
        self._engine = engine
        self._leases: dict[tuple[str, str], Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def renew(self, caller: Caller, header: str) -> Lease:
        """Return the lease that a request names, with its whole time ahead.

        Raises
        ------
        InvalidRequest
            If the header has another form.
        PolicyLimitReached
            If there are too many leases.
        """
        name, seconds = _parse(header)
        principal = caller.principal
        key = principal, name
        lease = self._leases.get(key)
        if lease is None:
            if len(self) >= MAX_LEASES or sum(owner == principal for owner, _ in self._leases) >= MAX_PER_PRINCIPAL:
                raise PolicyLimitReached("too many MCP clients hold leases; close one", retry_after_seconds=1.0)
            lease = self._leases[key] = Lease()
        lease.ends_at = asyncio.get_running_loop().time() + seconds
        lease.renewal_seconds = renewal_seconds_of(caller, self._engine.mcp_idle_seconds)
        self._renew_sessions(key)
        return lease

    async def release(self, principal: str, header: str) -> None:
        """End a lease and its sessions now; one that is over is left alone."""
        await self._end((principal, _parse(header)[0]))

    def _renew_sessions(self, key: tuple[str, str]) -> None:
        lease, loop = self._leases[key], asyncio.get_running_loop()
        left_seconds = lease.ends_at - loop.time()
        if left_seconds <= 0:
            self._engine.background.start(self._end(key))
            return
        if lease.timer is not None:
            lease.timer.cancel()
        lease.sessions = [*self._engine.sessions.renew(lease.sessions)]
        lease.timer = loop.call_later(min(left_seconds, lease.renewal_seconds), self._renew_sessions, key)

    async def _end(self, key: tuple[str, str]) -> None:
        lease = self._leases.pop(key, None)
        if lease is None:
            return
        lease.is_over = True
        if lease.timer is not None:
            lease.timer.cancel()
        ends = [self._engine.sessions.end(session_id, "its MCP client was gone") for session_id in lease.sessions]
        await asyncio.gather(*ends)


def _parse(header: str) -> tuple[str, int]:
    match = _FORM.fullmatch(header)
    if match is None:
        raise InvalidRequest(f"the header {LEASE_HEADER} must have the form 'ID; seconds=45'")
    return match[1], int(match[2])
