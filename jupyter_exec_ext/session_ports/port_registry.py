"""Registry of open ports, by session and by host name."""

from __future__ import annotations

from collections.abc import Sequence

from ..auth.caller import Caller
from ..auth.policy import check_ports
from ..engine.engine import ExecEngine
from ..engine.sessions.live_session import LiveSession, ended_error
from ..errors import PortNotFound, TooManyPortRequests
from .open_port import OpenPort
from .port_connector import PortConnector, require_reachable

#: Ports of one session that may be open, where no policy says less.
MAX_SESSION_PORTS = 100


class PortRegistry:
    """The open ports of all sessions.

    Parameters
    ----------
    engine : ExecEngine
        The engine.
    """

    def __init__(self, engine: ExecEngine) -> None:
        self._engine = engine
        self._ports: dict[str, dict[int, OpenPort]] = {}
        self._connectors: dict[str, PortConnector] = {}
        self._by_label: dict[str, OpenPort] = {}

    async def open(self, caller: Caller, session_id: str, port: int) -> tuple[OpenPort, bool]:
        """Return an open port, and whether it was opened now.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        PortsNotAvailable
            If its kernel has no ports that can be reached.
        PolicyDenied, PolicyLimitReached, TooManyPortRequests
            If the session may have no more open ports.
        """
        live = await self._engine.sessions.get_live(caller, session_id)
        if live.is_closing:
            raise ended_error(live.record)
        require_reachable(live.record)
        ports = self._ports.get(session_id, {})
        found = ports.get(port)
        for policy in caller.policies:
            check_ports(policy, 0 if found is not None else len(ports))
        if found is not None:
            return found, False
        if len(ports) >= MAX_SESSION_PORTS:
            raise TooManyPortRequests(f"the session has {len(ports)} open ports, the most that there may be; close one")
        return self._add(caller, live, port), True

    def _add(self, caller: Caller, live: LiveSession, port: int) -> OpenPort:
        session_id = live.record.id
        if session_id not in self._connectors:
            self._connectors[session_id] = PortConnector(live)
        if session_id not in self._ports:
            self._ports[session_id] = {}
            live.on_end(lambda: self._close_all(session_id))
        opened = OpenPort(self._engine, live, self._connectors[session_id], port, caller.principal)
        self._ports[session_id][port] = self._by_label[opened.label] = opened
        opened.note_opened()
        self._note(live)
        return opened

    async def list(self, caller: Caller, session_id: str) -> Sequence[OpenPort]:
        """Return the open ports of a session."""
        await self._engine.get_session(caller, session_id)
        return sorted(self._ports.get(session_id, {}).values(), key=lambda opened: opened.port)

    async def find(self, caller: Caller, session_id: str, port: int) -> OpenPort:
        """Return an open port for a request to it.

        Raises
        ------
        SessionNotFound, SessionEnded, PortNotFound
            If there is none that the caller may see.
        PolicyDenied
            If a policy of the caller allows no ports.
        """
        live = await self._engine.sessions.get_live(caller, session_id)
        if live.is_closing:
            raise ended_error(live.record)
        found = self._ports.get(session_id, {}).get(port)
        if found is None:
            raise PortNotFound(f"port {port} of the session is not open; open it with POST …/ports first")
        for policy in caller.policies:
            check_ports(policy, 0)
        return found

    def find_by_label(self, label: str) -> OpenPort | None:
        """Return the port of a host name, if it is open."""
        found = self._by_label.get(label)
        return None if found is None or found.live.is_closing else found

    async def close_port(self, caller: Caller, session_id: str, port: int) -> None:
        """Close a port; raises `SessionNotFound`, `SessionEnded` or `PortNotFound` if there is none."""
        found = await self.find(caller, session_id, port)
        self._remove(found, caller.principal, "closed by the caller")
        self._note(found.live)
        if not self._ports[session_id]:
            # The connector stays until the session ends: another one could block another thread for it.
            self._engine.background.start(self._connectors[session_id].stop_helper())

    def _close_all(self, session_id: str) -> None:
        for opened in list(self._ports.get(session_id, {}).values()):
            self._remove(opened, "", "the session has ended")
        self._ports.pop(session_id, None)
        connector = self._connectors.pop(session_id, None)
        if connector is not None:
            self._engine.background.start(connector.close())

    def _remove(self, opened: OpenPort, principal: str, reason: str) -> None:
        del self._ports[opened.session_id][opened.port], self._by_label[opened.label]
        opened.close(principal, reason)

    def _note(self, live: LiveSession) -> None:
        live.note(open_ports=tuple(sorted(self._ports.get(live.record.id, {}))))

    def end_owners_passes(self) -> None:
        """End what the server's owner has opened in browsers, since a person has logged out."""
        for opened in self._by_label.values():
            opened.end_owners_passes()
