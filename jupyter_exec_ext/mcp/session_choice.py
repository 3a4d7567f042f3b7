"""Session choice: finds or creates the session for a tool call, and frees room for it.

A session that MCP has made is marked in its metadata. It ends after `ExecEngine.mcp_idle_seconds` without use, or
earlier if a policy says so. While a client of the handshake revisions keeps its GET open, or a client holds a lease,
its sessions count as used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import InvalidRequest, LimitReached, PolicyLimitReached, SessionNotFound, TooManyKernels, TooManySessions
from ..models import Session, SessionRequest, SessionState
from ..server.rights import CREATE_SESSION
from .caller_time_limits import idle_seconds_of
from .handshake_sessions import HandshakeSession
from .tool_call import ToolCall

#: Key in the metadata of sessions that MCP has made; its value names the client.
MADE_FOR = "mcp_client"
_DEFAULT, _MADE, _LOCK = "default_session", "made_sessions", "lock"


@dataclass(frozen=True)
class SessionChoice:
    """A session for a call.

    Parameters
    ----------
    is_new : bool
        Whether it was made for this call.
    notes : tuple of str
        Sentences for the model about sessions that have ended.
    """

    id: str
    is_new: bool = False
    notes: tuple[str, ...] = ()


async def choose_session(call: ToolCall, requested_id: str, kernel_name: str) -> SessionChoice:
    """Return the session for code: the one asked for, the client's default one, or a new one."""
    if requested_id:
        return SessionChoice(requested_id)
    state = call.client_state
    if state is None:
        session, more = await make_session(call, kernel_name)
        return SessionChoice(session.id, True, more)
    # Two first calls at once must not make two sessions.
    async with state.setdefault(_LOCK, asyncio.Lock()):
        notes: tuple[str, ...] = ()
        default = state.get(_DEFAULT)
        if default is not None:
            ended = await _find_ended(call, default)
            if ended is None:
                return SessionChoice(default)
            notes = (ended,)
        session, more = await make_session(call, kernel_name)
        state[_DEFAULT] = session.id
        return SessionChoice(session.id, True, (*notes, *more))


async def _find_ended(call: ToolCall, session_id: str) -> str | None:
    """Return a sentence about a session that is over; None for one that is not."""
    try:
        session = await call.engine.get_session(call.caller, session_id)
    except SessionNotFound:
        reason = "its record is no longer kept"
    else:
        if session.state is not SessionState.ENDED:
            return None
        reason = session.ended_reason or "it was ended"
    return f"The session before this one has ended ({reason}): variables, imports and definitions are gone."


def resolve_session_id(call: ToolCall, requested_id: str) -> str:
    """Return the id of an existing session: the requested one, or the client's default.

    Raises
    ------
    InvalidRequest
        If none was requested and the client has no default.
    """
    default: str | None = (call.client_state or {}).get(_DEFAULT)
    if not requested_id and default is None:
        raise InvalidRequest("name the 'session'; execute_code and start_session return its id, list_sessions has all")
    return requested_id or str(default)


async def make_session(call: ToolCall, kernel_name: str = "", name: str = "") -> tuple[Session, tuple[str, ...]]:
    """Make a session; where a limit stands against it, the caller's longest idle one of MCP ends first.

    Returns
    -------
    Session, tuple of str
        Notes are sentences for the model.
    """
    await call.request.check(CREATE_SESSION)
    request = SessionRequest(
        kernel_name=kernel_name or None,
        name=name or call.client_name or "MCP",
        metadata={MADE_FOR: call.client_name},
        idle_timeout_seconds=idle_seconds_of(call.caller, call.engine.mcp_idle_seconds),
    )
    notes: tuple[str, ...] = ()
    try:
        session = await call.engine.create_session(call.caller, request)
    except (PolicyLimitReached, TooManySessions, TooManyKernels) as error:
        idle = await _find_longest_idle(call.engine, call.caller) if _is_about_sessions(error) else None
        if idle is None:
            raise
        await call.engine.sessions.end(idle.id, "a newer session of its MCP client took its place")
        notes = (f"The session {idle.id}, which was idle longest, has ended to make room for this one.",)
        session = await call.engine.create_session(call.caller, request)
    await tie_session_to_client(call, session.id)
    return session, notes


async def tie_session_to_client(call: ToolCall, session_id: str) -> None:
    """Make a session end when the call's client goes away; end it at once if the client is gone already."""
    lease, is_gone = call.request.lease, False
    if lease is not None:
        lease.sessions.append(session_id)
        is_gone = lease.is_over
    elif call.client is not None:
        _tie_to_handshake_session(call.engine, call.client, session_id)
    else:
        is_gone = call.request.handler.is_abandoned
    if is_gone:
        await call.engine.sessions.end(session_id, "its MCP client was gone")  # and will never know the session's id


def _tie_to_handshake_session(engine: ExecEngine, client: HandshakeSession, session_id: str) -> None:
    """Renew a session while the client of a handshake session is there, and end it with the handshake session."""
    made: list[str] | None = client.state.get(_MADE)
    if made is None:
        made = client.state[_MADE] = []

        def renew() -> None:
            made[:] = engine.sessions.renew(made)

        client.on_alive = renew
        client.connection.exit_stack.callback(lambda: engine.background.start(_end_all(engine, made)))
    made.append(session_id)


async def _end_all(engine: ExecEngine, session_ids: Sequence[str]) -> None:
    for session_id in session_ids:
        await engine.sessions.end(session_id, "its MCP client has ended")


def _is_about_sessions(error: LimitReached) -> bool:
    return not isinstance(error, PolicyLimitReached) or (error.limit or {}).get("name") == "max_sessions"


async def _find_longest_idle(engine: ExecEngine, caller: Caller) -> Session | None:
    sessions = await engine.list_sessions(caller)
    idle = [
        session
        for session in sessions
        if session.owner == caller.principal and session.state is SessionState.IDLE and MADE_FOR in session.metadata
    ]
    return min(idle, key=lambda session: session.last_activity_at, default=None)
