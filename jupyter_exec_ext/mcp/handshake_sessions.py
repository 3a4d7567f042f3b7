"""Protocol sessions of the handshake revisions (2025-11-25 and older), by their ``Mcp-Session-Id``.

Such a session belongs to the caller that opened it; to any other it does not exist. Revision 2026-07-28 has none.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, REQUEST_TIMEOUT, ErrorData, RequestId

from ..errors import PolicyLimitReached
from .call_context import make_notification
from .message_stream import MessageStream
from .open_responses import OpenResponse, UnreadResponses

#: Protocol sessions of one principal, and of all together. Beyond them, the one that was unused longest ends.
MAX_PER_PRINCIPAL = 500
MAX_SESSIONS = 1000
#: Requests that one client may have open at a time.
MAX_CALLS = 64
#: Size of the messages that are kept for a GET, which one principal can leave unread in all of its sessions.
STANDALONE_BYTES = 64 * 1024
#: Time that a client gets to answer a question of the server, such as one to its user.
ANSWER_SECONDS = 600.0


class HandshakeSession:
    """One client's protocol session: what it has negotiated, its open calls, and the questions that it has to answer.

    Parameters
    ----------
    principal : str
        The caller that it belongs to.
    server : Server
        Dispatches the client's requests.
    options : InitializationOptions, optional
        Answer to the handshake; by default made from `server`.

    Attributes
    ----------
    calls : dict
        Tasks of the requests that are handled, by the client's ids.
    responses : dict
        Responses that the client can come back for, by the names of their streams.
    standalone : MessageStream
        Messages that belong to no request: the response to the client's GET.
    state : dict
        Data of the tools about this client.
    on_alive : callable
        Called while the client's GET is open.
    """

    def __init__(self, principal: str, server: Server[Any], options: InitializationOptions | None = None) -> None:
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.connection = Connection.for_loop(self, session_id=self.id)
        self.runner: ServerRunner[Any] = ServerRunner(server, self.connection, {}, init_options=options)
        self.calls: dict[RequestId, asyncio.Task[None]] = {}
        self.responses: dict[str, OpenResponse] = {}
        self.standalone = MessageStream("get", STANDALONE_BYTES)
        self.state: dict[str, Any] = {}
        self.on_alive: Callable[[], object] = _do_nothing
        self.used_at = time.monotonic()
        self._answers: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        self._asked = 0

    def touch(self) -> None:
        """Note that the client is there."""
        self.used_at = time.monotonic()
        self.on_alive()

    # --- the channel to the client, as `mcp.shared.dispatcher.Outbound` has it ---

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client on its GET."""
        return await self.ask(self.standalone, method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification on the client's GET."""
        self.standalone.add(make_notification(method, params))

    async def ask(self, stream: MessageStream, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request on a stream, and wait for the client's answer.

        Raises
        ------
        MCPError
            If the client answers with an error, or not in time.
        """
        self._asked += 1
        request_id = self._asked
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        stream.add({**make_notification(method, params), "id": request_id})
        try:
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except asyncio.TimeoutError:
            raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time") from None
        finally:
            del self._answers[request_id]

    def resolve(self, request_id: RequestId, result: dict[str, Any] | None, error: ErrorData | None) -> None:
        """Deliver the client's answer; one that nobody waits for is dropped."""
        answer = self._answers.get(request_id)
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(MCPError.from_error_data(error))
        else:
            answer.set_result(result or {})

    # --- the end ---

    def has_room(self) -> bool:
        """Return whether the client may make one more call; drops the oldest response that nobody came back for."""
        if len(self.responses) >= MAX_CALLS:
            kept = self.responses.items()
            unread = (name for name, each in kept if each.stream.is_ended and not each.stream.readers)
            oldest = next(unread, None)
            if oldest is not None:
                self.forget(oldest)
        return max(len(self.calls), len(self.responses)) < MAX_CALLS

    def forget(self, name: str) -> None:
        """Forget a response, by the name of its stream."""
        response = self.responses.pop(name, None)
        if response is not None:
            response.close()

    async def close(self) -> None:
        """Stop its calls, each of which ends its own stream, and end its GET."""
        for task in list(self.calls.values()):
            task.cancel()
        for name in list(self.responses):
            self.forget(name)
        self.standalone.end()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(MCPError(INTERNAL_ERROR, "the protocol session has ended"))
        await aclose_shielded(self.connection)


def _do_nothing() -> None:
    pass


class HandshakeSessions:
    """All protocol sessions of a server."""

    def __init__(self) -> None:
        self.unread = UnreadResponses()
        self._sessions: dict[str, HandshakeSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: str, principal: str) -> HandshakeSession | None:
        """Return a caller's session of this id; None if it has none."""
        found = self._sessions.get(session_id)
        return found if found is not None and found.principal == principal else None

    async def add(self, session: HandshakeSession) -> None:
        """Keep a session; where there is no room, one that is unused ends.

        Raises
        ------
        PolicyLimitReached
            If there is no room, and all sessions are in use.
        """
        mine = [known for known in self._sessions.values() if known.principal == session.principal]
        if len(mine) >= MAX_PER_PRINCIPAL:
            await self._end_longest_unused(mine)
        elif len(self._sessions) >= MAX_SESSIONS:
            await self._end_longest_unused(list(self._sessions.values()))
        self._sessions[session.id] = session

    async def _end_longest_unused(self, among: list[HandshakeSession]) -> None:
        unused = [known for known in among if not known.calls and not known.standalone.readers]
        if not unused:
            raise PolicyLimitReached("too many MCP clients are connected; close one", retry_after_seconds=1.0)
        await self.remove(min(unused, key=lambda known: known.used_at))

    async def remove(self, session: HandshakeSession) -> None:
        """End a session."""
        if self._sessions.pop(session.id, None) is not None:
            await session.close()

    async def close(self) -> None:
        """End all of them."""
        while self._sessions:
            await self.remove(next(iter(self._sessions.values())))
