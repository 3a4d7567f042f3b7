"""Connections to the programs of a session: into its sandbox, or to ports that its own processes have.

Everything that blocks runs in threads of this module's own, since a program that accepts no connection holds one for
some seconds.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

from tornado.iostream import IOStream

from ..engine.sessions.live_session import LiveSession
from ..errors import PortsNotAvailable, PortUnreachable
from ..isolation.sandbox.namespace_sockets import NamespaceSockets
from ..models import Session
from ..system.marked_processes import listening_address

_CONNECT_SECONDS = 5.0
_MAX_BUFFER_BYTES = 1024 * 1024
_THREADS = 8

T = TypeVar("T")


def require_reachable(session: Session) -> None:
    """Check that ports of a session can be reached; raises `PortsNotAvailable` with the reason."""
    if session.attached:
        raise PortsNotAvailable(
            "the session is attached to its user's kernel, whose ports stay private; start a session of its own"
        )
    if session.isolation == "landlock":
        raise PortsNotAvailable(
            "a kernel under Landlock shares this machine's network, where its ports cannot be told from others'; start "
            "the session with isolation 'sandbox'"
        )
    if session.isolation not in ("none", "sandbox"):
        raise PortsNotAvailable(
            "the session's kernel runs on another machine, whose ports this server does not reach; start the session "
            "with isolation 'sandbox'"
        )


class PortConnector:
    """Connections to the programs of one session; they follow its kernel through restarts.

    Parameters
    ----------
    live : LiveSession
        The session.
    """

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._turn = asyncio.Lock()  # one session blocks one thread at most
        self._sockets: NamespaceSockets | None = None
        self._pid: int | None = None
        self._is_closed = False

    async def connect(self, port: int) -> IOStream:
        """Return a connection to a program of the session.

        Raises
        ------
        PortUnreachable
            If none listens on the port, or the kernel does not run.
        """
        async with self._turn:
            opened: socket.socket | None = None
            pid = self._live.kernel.pid
            if pid is not None and not self._is_closed:
                with suppress(OSError):  # the kernel may end at any moment
                    if self._live.record.isolation == "sandbox":
                        opened = await _in_thread(lambda: self._connect_inside(pid, port))
                    else:
                        opened = await _in_thread(lambda: _connect_outside(self._live.record.id, port))
            # If the kernel has ended meanwhile, its process id may be another one's.
            if opened is not None and self._live.kernel.pid != pid:
                opened.close()
                opened = None
            if self._is_closed:
                self._end_sockets()
        if opened is None:
            raise PortUnreachable(
                f"no program of the session listens on port {port} of 127.0.0.1; start it, or wait until it has started"
            )
        return IOStream(opened, max_buffer_size=_MAX_BUFFER_BYTES)

    def _connect_inside(self, pid: int, port: int) -> socket.socket:
        if self._sockets is None or self._pid != pid:
            self._end_sockets()
            if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
                raise ConnectionRefusedError  # a sandbox with this machine's network, where the ports are others' too
            self._sockets, self._pid = NamespaceSockets(pid), pid
        try:
            return self._sockets.connect(port)
        except ConnectionRefusedError:
            raise
        except OSError:  # its helper may have ended, so the next connection has a new one
            self._end_sockets()
            raise

    def _end_sockets(self) -> None:
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.close()

    async def close(self) -> None:
        """End the helper process; connections go on."""
        self._is_closed = True
        async with self._turn:
            await _in_thread(self._end_sockets)


def _connect_outside(session_id: str, port: int) -> socket.socket:
    address = listening_address(session_id, port)
    if address is None:
        raise ConnectionRefusedError
    opened = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
    if listening_address(session_id, port) != address:  # it has ended, and another program may have its port
        opened.close()
        raise ConnectionRefusedError
    return opened


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_executor(), work)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="session-ports")
