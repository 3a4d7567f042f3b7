"""Blocking HTTP request on a watched connection: a flag of whether it was sent, and a total timeout.

A socket's own timeout starts again with every byte, so it never ends a request to a server that sends one now and then.
A timer here shuts the socket down instead, which wakes the thread that reads from it or writes to it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ..fork_safety import ProcessLock

if TYPE_CHECKING:
    _Base = HTTPConnection
else:
    _Base = object

# urllib3 does not pass arguments to its connections, so a connection finds the attempt by its thread.
_current = threading.local()
_lock = ProcessLock()


class Attempt:
    """A request that is under way.

    Parameters
    ----------
    total_seconds : float, optional
        Time after which its connection is cut.
    """

    def __init__(self, total_seconds: float | None) -> None:
        self.total_seconds = total_seconds
        self.was_sent = False
        self.has_timed_out = False
        self._connection: _WatchedConnection | None = None
        self._silence_seconds: float | None = None
        self._timer = None if total_seconds is None else threading.Timer(total_seconds, self._cut)
        if self._timer is not None:
            self._timer.daemon = True  # a long total timeout must not delay the exit of the program
            self._timer.start()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the connection that this thread uses in the context."""
        _current.attempt = self
        try:
            yield
        finally:
            _current.attempt = None

    def watch(self, connection: _WatchedConnection) -> None:
        """Watch a connection; called again when its socket has changed."""
        with _lock:
            self._connection = connection
            connection.attempt = self
            # urllib3 takes the socket off the connection when an answer begins that ends with the connection.
            connection.watched_socket = connection.sock
            if self.has_timed_out:  # the time was up while it was connecting
                connection.cut()

    def limit_silence(self, seconds: float | None) -> None:
        """Set the timeout without a byte; None leaves it as it is."""
        if seconds is not None and seconds != self._silence_seconds:
            self._silence_seconds = seconds
            if self._connection is not None and self._connection.watched_socket is not None:
                self._connection.watched_socket.settimeout(seconds)

    def end(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        with _lock:
            self.has_timed_out = True
            # The connection may serve another request by now.
            if self._connection is not None and self._connection.attempt is self:
                self._connection.cut()


class _WatchedConnection(_Base):
    """Connection that reports to the thread's attempt."""

    attempt: Attempt | None = None
    watched_socket: socket.socket | None = None
    is_connecting = False

    def cut(self) -> None:
        if self.watched_socket is not None:
            with contextlib.suppress(OSError):  # it has been closed in the meantime
                # The method of the plain socket: that of a TLS socket would wait for the other end.
                socket.socket.shutdown(self.watched_socket, socket.SHUT_RDWR)

    def connect(self) -> None:
        self.is_connecting = True
        try:
            super().connect()
        finally:
            self.is_connecting = False
        attempt: Attempt | None = getattr(_current, "attempt", None)
        if attempt is not None:
            attempt.watch(self)

    def send(self, data: Any) -> None:
        # Before `was_sent` is set: http.client connects inside its own `send`, and a refused connection sends nothing.
        if self.sock is None:
            self.connect()
        attempt: Attempt | None = getattr(_current, "attempt", None)
        if attempt is not None and not attempt.was_sent:
            # A connection that the pool reuses is not connected again, so it is watched from here.
            attempt.watch(self)
            # While it connects, this is the request for a proxy's tunnel, without which nothing reaches the server.
            attempt.was_sent = not self.is_connecting
        super().send(data)


class _WatchedHTTPConnection(_WatchedConnection, HTTPConnection):
    pass


class _WatchedHTTPSConnection(_WatchedConnection, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _WatchedHTTPConnection


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedHTTPSConnection


# urllib3 creates connections by the classes of these pools; it has no other hook for them.
_POOLS = {"http": _HTTPPool, "https": _HTTPSPool}


class WatchedAdapter(HTTPAdapter):
    """Transport adapter of requests that uses watched connections."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Create the pools."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """Create the pools of a proxy."""
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager
