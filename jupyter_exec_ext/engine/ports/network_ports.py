"""Interface of the egress proxy, through which sessions with network rules reach the network."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from ...isolation.network.access_decision import NetworkAccess
from ...isolation.network.control_messages import NetworkRequest, ProxySettings


class NetworkProxy(Protocol):
    """The proxy of a server: it listens for each session, and lets through what the session's rules allow."""

    async def certificate(self) -> str:
        """Return the certificate of the proxy's authority in PEM, for kernels whose TLS it ends."""

    async def open(
        self, session_id: str, listener: socket.socket, access: NetworkAccess, uploaded_bytes: int = 0
    ) -> None:
        """Serve a session's programs, which connect to `listener`; the caller may close it afterwards."""

    def check(self, access: NetworkAccess) -> None:
        """Check that the proxy can take rules; raises `ValueError` if they are too many."""

    async def change(self, session_id: str, access: NetworkAccess) -> None:
        """Replace a session's rules."""

    async def close(self, session_id: str) -> None:
        """End the connections of a session, if it is open."""

    async def stop(self) -> None:
        """End the proxy and all connections."""


#: Makes the proxy, which calls the function with each request that has ended.
MakeProxy = Callable[[ProxySettings, Callable[[NetworkRequest], None]], NetworkProxy]
