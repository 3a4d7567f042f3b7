"""A session in the proxy's process: its rules, its counters and its rate limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .access_decision import NetworkAccess, NetworkSecret, Target

if TYPE_CHECKING:
    from .client_connection import ClientConnection


class TokenBucket:
    """Limit of a rate: so many at once, then so many a second; `wait` slows down what is more.

    Parameters
    ----------
    burst : int
        Number at once.
    per_second : float
        Number a second after that.
    """

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst, self._per_second = float(burst), per_second
        self._tokens, self._at = float(burst), 0.0

    async def wait(self) -> None:
        """Wait for a turn."""
        now = asyncio.get_running_loop().time()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._per_second)


@dataclass(eq=False)
class ProxySession:
    """A session in the proxy's process.

    Parameters
    ----------
    session_id : str
        Its id.
    listener : socket.socket
        Socket that its programs connect to.
    access : NetworkAccess
        Its rules.
    uploaded_bytes : int
        Bytes sent so far.
    connections : set of ClientConnection
        Open connections.
    """

    session_id: str
    listener: socket.socket
    access: NetworkAccess
    uploaded_bytes: int = 0
    connections: set[ClientConnection] = field(default_factory=set)
    requests: TokenBucket = field(default_factory=lambda: TokenBucket(1000, 200))
    refusals: TokenBucket = field(default_factory=lambda: TokenBucket(50, 10))


@dataclass
class OpenRecord:
    """Record of a request that has begun."""

    number: int
    target: Target
    method: str
    started_at: float
    bytes_sent: int = 0
    bytes_received: int = 0
    secrets: Sequence[NetworkSecret] = ()
