"""Connections to the programs of a session: into its sandbox, or to ports that its own processes have.

Finding a program blocks, so it runs in threads of this module, at most one for each session. Connecting does not block:
a program that accepts no connections must not take threads from other sessions.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TypeVar

from tornado.iostream import IOStream

from ..engine.sessions.live_session import LiveSession
from ..errors import PortsNotAvailable, PortUnreachable
from ..isolation.sandbox.namespace_sockets import NamespaceSockets
from ..models import Session
from ..system.marked_processes import listening_address

_LOOPBACK = "127.0.0.1"
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

    async def connect(self, port: int, is_wanted: Callable[[], bool]) -> IOStream:
        """Return a connection to a program of the session.

        Parameters
        ----------
        port : int
            The program's port.
        is_wanted : callable
            Returns whether the connection is still of use; it is asked when a thread would be taken.

        Raises
        ------
        PortUnreachable
            If none listens on the port, the kernel does not run, or the connection is not wanted any more.
        """
        pid = self._live.kernel.pid
        try:
            if pid is None:
                raise ConnectionRefusedError
            if self._live.record.isolation == "sandbox":
                opened = await self._in_turn(partial(self._socket_inside, pid), is_wanted)
                stream = await _connect(opened, _LOOPBACK, port)
            else:
                stream = await self._connect_outside(port, is_wanted)
            # If the kernel has ended meanwhile, its process id may be another one's.
            if self._live.kernel.pid != pid:
                stream.close()
                raise ConnectionRefusedError
        except OSError:  # the kernel may end at any moment
            raise PortUnreachable(
                f"no program of the session listens on port {port} of 127.0.0.1; start it, or wait until it has started"
            ) from None
        return stream

    async def _in_turn(self, work: Callable[[], T], is_wanted: Callable[[], bool]) -> T:
        """Return the result of `work`, which blocks; one session blocks one thread at most."""
        async with self._turn:
            if not is_wanted():
                raise ConnectionAbortedError
            return await _in_thread(partial(self._while_open, work))

    def _while_open(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise ConnectionAbortedError
        return work()

    def _socket_inside(self, pid: int) -> socket.socket:
        if self._sockets is None or self._pid != pid:
            self._close_sockets()
            if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
                raise ConnectionRefusedError  # a sandbox with this machine's network, where the ports are others' too
            self._sockets, self._pid = NamespaceSockets(pid), pid
        try:
            return self._sockets.new_socket()
        except OSError:  # its helper may have ended, so the next connection has a new one
            self._close_sockets()
            raise

    async def _connect_outside(self, port: int, is_wanted: Callable[[], bool]) -> IOStream:
        find = partial(listening_address, self._live.record.id, port)
        address = await self._in_turn(find, is_wanted)
        if address is None:
            raise ConnectionRefusedError
        stream = await _connect(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET), address, port)
        try:
            if await self._in_turn(find, is_wanted) != address:  # it has ended, and another program may have its port
                raise ConnectionRefusedError
        except BaseException:
            stream.close()
            raise
        return stream

    def _close_sockets(self) -> None:
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.close()

    async def stop_helper(self) -> None:
        """Stop the helper process until the next connection; open connections stay open."""
        async with self._turn:
            if self._sockets is not None:
                await _in_thread(self._close_sockets)

    async def close(self) -> None:
        """Stop the helper process for good; open connections stay open."""
        self._is_closed = True
        await self.stop_helper()


async def _connect(opened: socket.socket, address: str, port: int) -> IOStream:
    stream = IOStream(opened, max_buffer_size=_MAX_BUFFER_BYTES)
    try:
        await asyncio.wait_for(stream.connect((address, port)), _CONNECT_SECONDS)
    except asyncio.TimeoutError:
        stream.close()
        raise ConnectionRefusedError from None
    except BaseException:
        stream.close()
        raise
    return stream


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_executor(), work)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="session-ports")
