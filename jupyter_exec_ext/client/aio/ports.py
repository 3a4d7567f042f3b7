"""Ports of a session of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from ...models import RecordList, SessionPort
from ..api.port_operations import PortsApi
from .driver import AioDriver


class AsyncExecPorts:
    """Methods of a session for its ports."""

    _driver: AioDriver
    _ports: PortsApi

    async def open_port(self, port: int) -> SessionPort:
        """Make a program of the session reachable through the server; its port stays open until the session ends.

        Parameters
        ----------
        port : int
            Port on which the program listens, now or later, at 127.0.0.1.

        Returns
        -------
        SessionPort
            With the address for programs, and a link for one browser. Each call makes a new link.

        Raises
        ------
        PortsNotAvailable
            If the session's kernel has no ports that the server can reach.
        PolicyDenied, PolicyLimitReached
            If a policy allows no more open ports.
        """
        return await self._driver.perform(self._ports.open(port))

    async def list_ports(self) -> RecordList[SessionPort]:
        """List the open ports, without links."""
        return await self._driver.perform(self._ports.list())

    async def close_port(self, port: int) -> None:
        """Close a port, and all connections through it."""
        await self._driver.perform(self._ports.close(port))
