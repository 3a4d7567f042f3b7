"""Operations on the open ports of a session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...models import RecordList, SessionPort
from ...protocol.view_json import session_port_from_json
from .answers import list_in, parsed
from .event_stream import API
from .request_exchange import exchange, segment
from .retries import DEFAULT_RETRY, RetryPolicy
from .steps import Operation, Request


@dataclass(frozen=True, slots=True)
class PortsApi:
    """Operations on ports.

    Parameters
    ----------
    server_url : str
        Base URL of the server, as the client reaches it.
    session_id : str
        Id of the session.
    """

    server_url: str
    session_id: str
    retry: RetryPolicy = DEFAULT_RETRY

    @property
    def _path(self) -> str:
        return f"{API}sessions/{segment(self.session_id)}/ports"

    def _call(self, method: str, path: str, json: Any = None) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, path, json), self.retry)))

    def _read(self, data: Any) -> SessionPort:
        # The server names its own path; a pool of servers has another one.
        record = session_port_from_json(data)
        return replace(record, url=f"{self.server_url}{self._path}/{record.port}/")

    def open(self, port: int) -> Operation[SessionPort]:
        """Open a port, or make a new link to an open one."""
        return self._read((yield from self._call("POST", self._path, {"port": port})))

    def list(self) -> Operation[RecordList[SessionPort]]:
        """List the open ports."""
        found = list_in((yield from self._call("GET", self._path)), "ports")
        return RecordList(SessionPort, [self._read(item) for item in found])

    def close(self, port: int) -> Operation[None]:
        """Close a port."""
        yield from self._call("DELETE", f"{self._path}/{port}")
