"""Sockets in a sandbox's network namespace, opened from outside.

A sandbox has a loopback interface that nothing outside reaches. To open a socket there, a process has to join the
sandbox's user and network namespaces, and one with threads cannot join a user namespace. So a small program joins both
and sends the sockets, which stay in the namespace wherever they are used.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading

from . import namespace_program

# It has to start Python and to join.
_ANSWER_SECONDS = 20.0
_END_SECONDS = 5.0
_MAX_ANSWER_BYTES = 64


class NamespaceSockets:
    """Opens sockets on the loopback interface of a sandbox; its methods block, for `_ANSWER_SECONDS` at most.

    Parameters
    ----------
    pid : int
        A process of the sandbox, as the server sees it.

    Raises
    ------
    OSError
        If the sandbox has ended, or its namespaces cannot be joined.
    """

    def __init__(self, pid: int) -> None:
        self._lock = threading.Lock()
        self._control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_SECONDS)
        with inner:
            command = [sys.executable, "-I", "-S", namespace_program.__file__, str(pid), str(inner.fileno())]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[inner.fileno()],
                    env={},
                    cwd="/",
                )
            except OSError:
                self._control.close()
                raise
        try:
            self._receive()
        except OSError:
            self.close()
            raise

    def listen(self, port: int) -> socket.socket:
        """Return a socket that listens on a port; 0 for any free one.

        Raises
        ------
        OSError
            With ``EADDRINUSE`` if a program in the sandbox has the port.
        """
        return self._request("listen", port)

    def new_socket(self) -> socket.socket:
        """Return a TCP socket with which the caller can connect to programs in the sandbox, without blocking."""
        return self._request("socket", 0)

    def close(self) -> None:
        """End the program; sockets that it has opened go on."""
        self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)

    def _request(self, verb: str, port: int) -> socket.socket:
        with self._lock:
            self._control.send(f"{verb} {port}".encode())
            opened = self._receive()
        if opened is None:
            raise OSError(errno.EPROTO, "a socket of a sandbox did not arrive")
        return opened

    def _receive(self) -> socket.socket | None:
        answer, descriptors, _, _ = socket.recv_fds(self._control, _MAX_ANSWER_BYTES, 1)
        if not answer:
            raise OSError(errno.ECHILD, "the program that opens sockets in a sandbox has ended")
        number = int(answer)
        if number:
            raise OSError(number, os.strerror(number))
        return socket.socket(fileno=descriptors[0]) if descriptors else None
