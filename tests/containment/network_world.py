"""Listeners outside of a sandbox that keep all they receive, and a proxy without rules for the control run."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE_SECONDS = 0.3
_WAIT_SECONDS = 15.0
_REDIRECT = b"/redirect/"
_RULED = ("allowed", "paths", "ended")


class NetworkWorld:
    """Listeners on the host's loopback addresses, and on ports 80 and 443 of one of them, if this process may.

    `facts` has their ports: ``allowed``, ``paths`` and ``ended`` are for rules, and no rule is for ``refused`` and
    ``dns``. ``six`` is for a rule, and has no IPv4 address.
    """

    def __init__(self) -> None:
        self._received: list[bytes] = []
        self._stack = ExitStack()
        self.facts: dict[str, Any] = {"abstract": f"probe-{secrets.token_hex(8)}"}

    def __enter__(self) -> Self:
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.facts["socket_file"] = os.path.join(directory, "socket")
        for name in _RULED:
            self.facts[name] = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        address = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}.1"
        with suppress(OSError):
            self._listen(socket.AF_INET, (address, 80))
            self._listen(socket.AF_INET, (address, 443))
            self.facts["web"] = address
        self.facts["six"] = self._listen(socket.AF_INET6, ("::1", 0))
        for name in ("refused", "dns"):
            port = self.facts[name] = self._listen(socket.AF_INET, ("0.0.0.0", 0))
            self._listen(socket.AF_INET6, ("::1", port))
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            self._receive_datagrams(family, (address, self.facts["dns"]))
        self._listen(socket.AF_UNIX, "\0" + self.facts["abstract"])
        self._listen(socket.AF_UNIX, self.facts["socket_file"])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_open_proxy(self) -> tuple[str, int]:
        """Start a proxy that reaches everything, and return its address."""
        return "127.0.0.1", self._serve(socket.AF_INET, ("127.0.0.1", 0), self._proxy)

    def arrived(self, marks: dict[str, str]) -> set[str]:
        """Return the attempts whose marks have arrived."""
        received = b"\n".join(self._received)
        return {name for name, mark in marks.items() if mark.encode() in received}

    def count(self, data: bytes) -> int:
        """Return how often some bytes have arrived."""
        return b"\n".join(self._received).count(data)

    def wait_for(self, marks: dict[str, str]) -> set[str]:
        """Return the attempts whose marks have arrived, when all have, or after some time."""
        until = time.monotonic() + _WAIT_SECONDS
        while (found := self.arrived(marks)) != marks.keys() and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def _listen(self, family: int, address: Any) -> int:
        return self._serve(family, address, self._answer)

    def _serve(self, family: int, address: Any, handle: Any) -> int:
        listener = self._stack.enter_context(socket.socket(family))
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(128)

        def accept() -> None:
            with suppress(OSError):  # closed at the end
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=self._guard, args=(handle, connection), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self._stack.callback(thread.join, 5)
        self._stack.callback(listener.shutdown, socket.SHUT_RDWR)
        return int(listener.getsockname()[1]) if family != socket.AF_UNIX else 0

    @staticmethod
    def _guard(handle: Any, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, IndexError):
            connection.settimeout(5)
            handle(connection)

    def _answer(self, connection: socket.socket) -> None:
        """Keep what comes, and answer its first part as a web server would."""
        self._received.append(first := connection.recv(65536))
        if _REDIRECT in first:
            target = bytes.fromhex(first.partition(_REDIRECT)[2].split()[0].decode())
            answer = (
                b"HTTP/1.1 302 Found\r\nLocation: " + target + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        elif b"upgrade: websocket" in first.lower():
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            answer = connection.recv(65536)  # the first frame goes back as it came
            self._received.append(answer)
        else:
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        connection.sendall(answer)
        connection.settimeout(_IDLE_SECONDS)
        while data := connection.recv(65536):
            self._received.append(data)

    def _receive_datagrams(self, family: int, address: Any) -> None:
        receiver = self._stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        receiver.bind(address)

        def receive() -> None:
            while (data := receiver.recv(65536)) != b"end":
                self._received.append(data)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()

        def stop() -> None:
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"end", address)
            thread.join(5)

        self._stack.callback(stop)

    def _proxy(self, client: socket.socket) -> None:
        """Connect to whatever a program asks for, by HTTP, SOCKS 4, 4a or 5, and pass on all bytes."""
        data = client.recv(65536)
        host = ""
        if data[0] == 5:
            client.sendall(b"\x05\x00")
            data = client.recv(65536)
            kind, rest = data[3], data[4:]
            if kind == 3:
                host, rest = rest[1 : 1 + rest[0]].decode(), rest[1 + rest[0] :]
            else:
                size = 4 if kind == 1 else 16
                host, rest = (
                    socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, rest[:size]),
                    rest[size:],
                )
            port, first, reply = struct.unpack("!H", rest[:2])[0], b"", b"\x05\x00\x00\x01" + bytes(6)
        elif data[0] == 4:
            (port,) = struct.unpack("!H", data[2:4])
            host = data[8:].split(b"\0")[1].decode() if data[4:7] == b"\0\0\0" else socket.inet_ntoa(data[4:8])
            first, reply = b"", b"\0\x5a" + bytes(6)
        else:
            head, _, rest = data.partition(b"\r\n\r\n")
            words = head.split(b"\r\n")[0].decode().split(" ")
            is_tunnel = words[0] == "CONNECT"
            authority = words[1] if is_tunnel else words[1].split("/")[2]
            host, _, number = unquote(authority.rpartition("@")[2]).rpartition(":")
            port = int(number)
            first, reply = (rest, b"HTTP/1.1 200 OK\r\n\r\n") if is_tunnel else (data, b"")
        with self._connect_anywhere(host.strip("[]"), port) as upstream:
            client.sendall(reply)
            upstream.sendall(first)
            back = threading.Thread(target=_copy, args=(upstream, client), daemon=True)
            back.start()
            _copy(client, upstream)
            back.join(5)

    def _connect_anywhere(self, host: str, port: int) -> socket.socket:
        try:
            return socket.create_connection((host, port), 5)
        except (OSError, UnicodeError):  # a name, however it is written
            address = self.facts["web"] if port in (80, 443) else "127.0.0.1"
            return socket.create_connection((address, port), 5)


def _copy(source: socket.socket, destination: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            destination.sendall(data)
        destination.shutdown(socket.SHUT_WR)
