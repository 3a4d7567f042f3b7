"""Lookup of a pool's server: the one with the session or run that a request names, where the id does not say."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from ..protocol.record_ids import new_id, parse_id
from ..store.accepted_executions import AcceptedExecution, AcceptedExecutions
from ..store.audit_trail import AuditLog
from .placement import is_pool_server

_MAX_ENTRIES = 100_000
K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """Mapping that forgets its oldest entries beyond a bound."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > _MAX_ENTRIES:
            self.popitem(last=False)


class RunKey(NamedTuple):
    """Idempotency key of a run: the same key in another session, or of another principal, is another run."""

    principal: str
    session_id: str
    key: str


class AcaName(NamedTuple):
    """A session of the ACA protocol: by its caller, the path of its session pool, and its identifier."""

    principal: str
    pool: str
    identifier: str


class McpClient(NamedTuple):
    """A client of MCP, as far as it can be told from others of its principal: by the lease that it may hold."""

    principal: str
    lease: str


class ServerLookup:
    """Servers by what they have.

    Parameters
    ----------
    accepted : AcceptedExecutions
        The executions that the pool has accepted.
    audit : AuditLog
        The pool's audit trail.

    Attributes
    ----------
    aca_servers : mapping
        Servers of sessions of the ACA protocol.
    mcp_streams : mapping
        Servers by the ids of MCP's protocol sessions.
    mcp_homes : mapping
        Servers of clients' MCP requests that name nothing.
    """

    def __init__(self, accepted: AcceptedExecutions, audit: AuditLog) -> None:
        self._accepted = accepted
        self._audit = audit
        self._sent: Recent[RunKey, str] = Recent()
        self._turns: dict[RunKey, asyncio.Event] = {}
        self.aca_servers: Recent[AcaName, str] = Recent()
        self.mcp_streams: Recent[str, str] = Recent()
        self.mcp_homes: Recent[McpClient, str] = Recent()

    def audit_placement(self, principal: str, server: str, path: str) -> None:
        """Record in the audit trail that a server has something new, at a path, or requests to a path from now on."""
        self._audit.record("server", "placed", principal, server, path="exec/" + path.partition("/exec/")[2])

    def note_sent(self, key: RunKey, server: str) -> bool:
        """Remember where a run with a key is sent, before its execution has an id; return whether this is news."""
        is_new = self._sent.get(key) != server
        if key.key:
            self._sent[key] = server
            self._end_turn(key)
        return is_new

    def note_not_sent(self, key: RunKey) -> None:
        """Forget a run that no server has got."""
        self._sent.pop(key, None)

    def note_accepted(self, key: RunKey, execution_id: str, server: str) -> None:
        """Record an execution that a server has named."""
        self._sent.pop(key, None)
        self._accepted.note(
            AcceptedExecution(execution_id, key.session_id, server, key.principal, key.key, time.time())
        )

    @asynccontextmanager
    async def turn(self, key: RunKey) -> AsyncIterator[None]:
        """Hold a key until its run is sent or the block ends; other requests with it wait for their turn.

        So requests that come at once go to one server, although it takes time to find out whether a run was sent
        before, and to choose a server.
        """
        while key in self._turns:
            await self._turns[key].wait()
        ended = asyncio.Event()
        if key.key:
            self._turns[key] = ended
        try:
            yield
        finally:
            if self._turns.get(key) is ended:
                self._end_turn(key)

    def _end_turn(self, key: RunKey) -> None:
        ended = self._turns.pop(key, None)
        if ended is not None:
            ended.set()

    async def server_of_run(self, key: RunKey) -> str | None:
        """Return the server that a run with this key was sent to before."""
        if not key.key:
            return None
        accepted = None if key in self._sent else await self._accepted.find_by_key(*key)
        return accepted.server if accepted is not None else self._sent.get(key)

    async def lost_run(self, key: RunKey) -> AcceptedExecution | None:
        """Return the execution of a run that was sent to a server that is lost; it gets an id if it had none yet."""
        server = self._sent.get(key) if key.key else None
        if server is not None:
            self.note_accepted(key, new_id("exe", server), server)
        return await self._accepted.find_by_key(*key) if key.key else None

    async def lost_execution(self, execution_id: str) -> AcceptedExecution | None:
        """Return an execution that the pool has accepted."""
        return await self._accepted.find(execution_id)


def server_in(record_id: str) -> str | None:
    """Return the name of the server that has made an id; None for an id that no server of a pool has made."""
    parsed = parse_id(record_id)
    return parsed.server_name if parsed is not None and is_pool_server(parsed.server_name) else None


_MCP_ID = re.compile(r"(?:ses|exe)_[a-z0-9]{1,16}_[0-9a-f]{24}")
_MCP_FIELDS, _MCP_ARGUMENTS = ("uri", "taskId"), ("session", "execution")
_MAKE_SESSIONS = frozenset({"execute_code", "start_session"})


def server_in_mcp(message: Any) -> str | None:
    """Return the server that the ids in a message of MCP name; never one in the code that it has."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return None
    arguments = params.get("arguments")
    fields = [params.get(name) for name in _MCP_FIELDS]
    if isinstance(arguments, dict):
        fields += [arguments.get(name) for name in _MCP_ARGUMENTS]
    for field in fields:
        match = _MCP_ID.search(field) if isinstance(field, str) else None
        if match is not None:
            return server_in(match[0])
    return None


def makes_mcp_session(message: Any) -> bool:
    """Return whether a message of MCP that names no session may make one."""
    params = message.get("params") if isinstance(message, dict) else None
    return isinstance(params, dict) and params.get("name") in _MAKE_SESSIONS
