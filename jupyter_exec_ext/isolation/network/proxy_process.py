"""The egress proxy's process: accepts connections of all sessions, each on the listening socket of its session.

It runs as an unprivileged user with limits, and ends with the server. ``proxy_supervisor`` is the server's side.
"""

from __future__ import annotations

import asyncio
import ctypes
import encodings.idna  # noqa: F401  # for host names; the unprivileged user may not be able to read the library
import gc
import json
import os
import pwd
import resource
import signal
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from .certificates import CertificateAuthority
from .client_connection import ClientConnection
from .control_messages import ControlSocket, ProxySettings, access_from_json
from .proxy_session import ProxySession
from .trusted_certificates import make_trust
from .upstream import Lookup, Upstream

#: Writable memory, of which the interpreter and its libraries have 30 MiB.
MAX_DATA_BYTES = 96 << 20
MAX_DESCRIPTORS = 8192
MAX_CONNECTIONS, MAX_SESSION_CONNECTIONS, RESERVED_CONNECTIONS = 768, 64, 4
_LOOKUP_THREADS = 16
_THREAD_STACK_BYTES = 512 * 1024
_ACCEPT_RETRY_SECONDS = 0.5
_CLOSE_SECONDS = 5.0
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


class Proxy:
    """The proxy in an event loop.

    Parameters
    ----------
    control : ControlSocket
        Connection to the server.
    upstream : Upstream
        Opens connections to hosts.
    authority : CertificateAuthority
        Makes certificates for hosts whose TLS is terminated.
    trust : ssl.SSLContext
        Certificate authorities of hosts.
    """

    def __init__(
        self, control: ControlSocket, upstream: Upstream, authority: CertificateAuthority, trust: ssl.SSLContext
    ) -> None:
        self.upstream, self.authority, self.trust = upstream, authority, trust
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[str, ProxySession] = {}
        self._waiting: set[str] = set()
        self._number = self._open_connections = 0

    async def serve(self) -> None:
        """Handle control messages until the server closes the connection."""
        self._loop.call_later(1.0, self._end_overdue)
        while (received := await self._control.receive()) is not None:
            message, descriptors = received
            await self._handle_message(message, descriptors)
            await self._control.send({"op": "done", "id": message["id"]})

    def next_number(self) -> int:
        """Return a number for a request."""
        self._number += 1
        return self._number

    async def report(self, op: str, number: int, fields: dict[str, object]) -> None:
        """Send the record of a request to the server."""
        await self._control.send({"op": op, "number": number, "request": fields})

    def release(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended, and accept others in its place."""
        connection.session.connections.discard(connection)
        self._open_connections -= 1
        waiting, self._waiting = self._waiting, set()
        for session_id in waiting:
            if session_id in self._sessions:
                self._listen(self._sessions[session_id])

    async def _handle_message(self, message: dict[str, Any], descriptors: list[int]) -> None:
        session = self._sessions.get(message["session_id"])
        if message["op"] == "open":
            listener = socket.socket(fileno=descriptors[0])
            access = access_from_json(message["access"])
            if session is not None:
                listener.close()
                session.access = access
                for connection in [each for each in session.connections if not each.is_still_allowed()]:
                    connection.cut("the rules or secrets of the session have changed")
            else:
                listener.setblocking(False)
                session = ProxySession(message["session_id"], listener, access, message["uploaded_bytes"])
                self._sessions[session.session_id] = session
                self._listen(session)
        elif session is not None:
            del self._sessions[session.session_id]
            self._loop.remove_reader(session.listener)
            session.listener.close()
            tasks = [connection.task for connection in session.connections]
            for connection in list(session.connections):
                connection.cut("the session has ended")
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    def _listen(self, session: ProxySession) -> None:
        self._loop.add_reader(session.listener, self._accept, session)

    def _accept(self, session: ProxySession) -> None:
        own = len(session.connections)
        is_within_share = own < MAX_SESSION_CONNECTIONS and self._open_connections < MAX_CONNECTIONS
        if own >= RESERVED_CONNECTIONS and not is_within_share:
            self._loop.remove_reader(session.listener)  # others wait in the backlog
            self._waiting.add(session.session_id)
            return
        try:
            sock, _ = session.listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptors or memory: `_end_overdue` tries again
            self._loop.remove_reader(session.listener)
            self._waiting.add(session.session_id)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open_connections += 1
        session.connections.add(ClientConnection(self, session, sock))

    def _end_overdue(self) -> None:
        """End connections in which nothing has happened for too long; runs every second."""
        now = self._loop.time()
        for session in list(self._sessions.values()):
            for connection in [each for each in session.connections if each.deadline < now]:
                connection.cut("nothing happened for too long")
        waiting, self._waiting = self._waiting, set()
        for session_id in waiting & self._sessions.keys():
            self._listen(self._sessions[session_id])
        self._loop.call_later(1.0, self._end_overdue)


def main() -> None:
    """Run the proxy on the control socket whose descriptor is the first argument."""
    server, control = int(sys.argv[2]), socket.socket(fileno=int(sys.argv[1]))
    packet, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
    if not packet:
        return
    settings = ProxySettings(**json.loads(packet))
    saved = Path(f"/proc/self/fd/{descriptors[0]}").read_bytes()
    authority, trust = CertificateAuthority(saved), make_trust(settings.ca_file)
    if not saved:
        os.write(descriptors[0], authority.save())
    os.close(descriptors[0])
    _load_lazy_modules(authority, trust)
    _restrict_process(server)
    asyncio.run(_serve(control, settings, authority, trust))


async def _serve(
    sock: socket.socket,
    settings: ProxySettings,
    authority: CertificateAuthority,
    trust: ssl.SSLContext,
    lookup: Lookup | None = None,
) -> None:
    control = ControlSocket(sock)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_LOOKUP_THREADS))
    await control.send({"op": "ready", "certificate": authority.certificate})
    await Proxy(control, Upstream(settings, lookup), authority, trust).serve()
    os._exit(0)  # at once, also while names are being looked up


def _load_lazy_modules(authority: CertificateAuthority, trust: ssl.SSLContext) -> None:
    """Load what is loaded at first use: the unprivileged user may not be able to read Python's own files."""
    authority.context_for("localhost").wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    trust.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    with suppress(OSError):
        socket.getaddrinfo("localhost", 80)


def _restrict_process(server: int) -> None:
    """Give up rights, set limits, and end with the server."""
    threading.stack_size(_THREAD_STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
        os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
    libc = ctypes.CDLL(None, use_errno=True)
    # After the change of the user, which resets the signal. No other process of the user may read the memory.
    for option, value in ((_PR_SET_PDEATHSIG, signal.SIGKILL), (_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        arguments = [ctypes.c_ulong(each) for each in (value, 0, 0, 0)]
        if libc.prctl(option, *arguments):
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != server:  # it ended before
        os._exit(0)
    gc.freeze()
