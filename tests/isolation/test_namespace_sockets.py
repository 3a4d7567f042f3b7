"""Sockets in a sandbox's network namespace, opened from outside of a real one."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from jupyter_exec_ext.isolation.sandbox.bubblewrap import NAMESPACES, NO_NETWORK
from jupyter_exec_ext.isolation.sandbox.namespace_sockets import NamespaceSockets

pytestmark = pytest.mark.needs("sandbox")
_TIMEOUT_SECONDS = 20.0
# Answers at any free port, whose number it prints, and then asks at the port that it reads.
_INSIDE = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
asked = socket.create_connection(("127.0.0.1", int(input())))
asked.sendall(b"from inside")
print(asked.recv(100).decode(), flush=True)
connection, _ = server.accept()
connection.sendall(connection.recv(100).upper())
connection.recv(1)
"""


class Inside:
    """A sandbox with a program in it."""

    def __init__(self) -> None:
        status, write = os.pipe()
        options = ["--ro-bind", "/", "/", "--proc", "/proc", "--json-status-fd", str(write)]
        command = ["bwrap", *NAMESPACES, NO_NETWORK, *options, "--", sys.executable, "-I", "-S", "-c", _INSIDE]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=[write])
        os.close(write)
        with open(status) as lines:
            self.pid: int = json.loads(lines.readline())["child-pid"]
        self.port = int(self.read())

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@pytest.fixture
def inside() -> Iterator[Inside]:
    sandbox = Inside()
    with sandbox.process:
        yield sandbox
        sandbox.process.kill()


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def test_sockets_reach_a_program_in_the_sandbox_and_are_reached_by_it(inside: Inside) -> None:
    with closing(NamespaceSockets(inside.pid)) as sockets, sockets.listen(0) as listener:
        # It cannot be reached in the server's own namespace.
        with socket.socket() as here:
            assert here.connect_ex(("127.0.0.1", _port(listener))) == errno.ECONNREFUSED
        inside.write(str(_port(listener)))
        listener.settimeout(_TIMEOUT_SECONDS)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b"from inside"
            connection.sendall(b"from outside\n")
        assert inside.read() == "from outside"
        with sockets.new_socket() as connection:
            connection.connect(("127.0.0.1", inside.port))
            connection.sendall(b"question")
            assert connection.recv(100) == b"QUESTION"


def test_taken_and_closed_ports_are_errors_and_others_still_open(inside: Inside) -> None:
    with closing(NamespaceSockets(inside.pid)) as sockets:
        with pytest.raises(OSError, match="in use") as taken:
            sockets.listen(inside.port)
        assert taken.value.errno == errno.EADDRINUSE
        with sockets.listen(0) as listener:
            free = _port(listener)
        for port, result in ((free, errno.ECONNREFUSED), (inside.port, 0)):
            with sockets.new_socket() as connection:
                assert connection.connect_ex(("127.0.0.1", port)) == result


def test_sandbox_that_has_ended_is_an_error() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    with pytest.raises(OSError, match="ended"):
        NamespaceSockets(ended.pid)
