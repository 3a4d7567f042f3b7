"""One blocking request on a connection: whether anything of it was sent, in one piece, and the end of its time.

A socket's timeout begins anew with every byte, so that a server that sends one now and then would never be given up;
here a timer shuts the socket down, which wakes whoever reads from it or writes to it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import ConnectionPool, HTTPConnectionPool, HTTPSConnectionPool

from ..fork_safety import ProcessLock

if TYPE_CHECKING:
    _Base = HTTPConnection
else:
    _Base = object

_SHORT_BYTES = 64 * 1024

_here = threading.local()
_guard = ProcessLock()


class Attempt:
    """A request that is under way.

    Parameters
    ----------
    total_seconds : float, optional
        After this time its connection is cut.
    """

    def __init__(self, total_seconds: float | None) -> None:
        self.total_seconds = total_seconds
        self.sent = False
        self.over = False
        self._connection: _Watched | None = None
        self._silence_seconds: float | None = None
        self._timer = None if total_seconds is None else threading.Timer(total_seconds, self._cut)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Belong to the connection that this thread uses in here."""
        _here.attempt = self
        try:
            yield
        finally:
            _here.attempt = None

    def uses(self, connection: _Watched) -> None:
        """Take note of the connection; called again when its socket has changed."""
        with _guard:
            self._connection = connection
            connection.attempt = self
            connection.watched = connection.sock
            if self.over:
                connection.cut()

    def allow_silence(self, seconds: float | None) -> None:
        """Let reading fail after this long without a byte; None leaves it as it is."""
        if seconds is not None and seconds != self._silence_seconds:
            self._silence_seconds = seconds
            if self._connection is not None and self._connection.watched is not None:
                self._connection.watched.settimeout(seconds)

    def end(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        with _guard:
            self.over = True
            # The connection may serve another request by now.
            if self._connection is not None and self._connection.attempt is self:
                self._connection.cut()


class _Watched(_Base):
    """A connection that tells the thread's attempt what it does."""

    attempt: Attempt | None = None
    watched: socket.socket | None = None
    _held: bytes | None = None

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        """Send a request; a short one in one piece, so that the server is woken up once."""
        self._held = b"" if isinstance(body, bytes) else None
        try:
            super().request(method, url, body, headers, **options)
            self._release()
        finally:
            self._held = None

    def cut(self) -> None:
        if self.watched is not None:
            with contextlib.suppress(OSError):  # it was closed just now
                socket.socket.shutdown(self.watched, socket.SHUT_RDWR)  # TLS has no say in it

    def _tell(self) -> Attempt | None:
        attempt: Attempt | None = getattr(_here, "attempt", None)
        if attempt is not None:
            attempt.uses(self)
        return attempt

    def connect(self) -> None:
        super().connect()
        self._tell()

    def send(self, data: Any) -> None:
        if self._held is not None and isinstance(data, bytes) and len(data) <= _SHORT_BYTES:
            self._held += data
            return
        self._release()
        self._send_now(data)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._send_now(held)

    def _send_now(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        attempt = getattr(_here, "attempt", None)
        if attempt is not None:
            if not attempt.sent:
                attempt.uses(self)
            attempt.sent = True
        super().send(data)


class _WatchedHTTP(_Watched, HTTPConnection):
    pass


class _WatchedHTTPS(_Watched, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _WatchedHTTP


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedHTTPS


_POOLS = {"http": _HTTPPool, "https": _HTTPSPool}


class WatchedAdapter(HTTPAdapter):
    """Lets requests use such connections.

    Parameters
    ----------
    one_server : bool
        All requests go to one server in one way, with no proxy before it; its pool is looked up once.
    """

    def __init__(self, *, one_server: bool, **options: Any) -> None:
        self._one_server = one_server
        self._pool: ConnectionPool | None = None
        super().__init__(**options)

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> ConnectionPool:
        """Return the pool that a request's connection is in."""
        if self._pool is not None:
            return self._pool
        pool = super().get_connection_with_tls_context(request, verify, proxies, cert)
        if self._one_server:
            self._pool = pool
        return pool

    def close(self) -> None:
        """Close all connections; urllib3 closes those of a pool when nobody holds it any more."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        super().close()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make the pools."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """Make the pools of a proxy."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager
