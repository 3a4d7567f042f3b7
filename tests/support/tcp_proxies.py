"""TCP proxies that cut or silence connections, for what a network does to a client."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_exec_ext import JupyterConnectionInfo

if TYPE_CHECKING:
    from typing_extensions import Self


def hang_up(side: socket.socket) -> None:
    """Wake whoever waits for this socket, on both ends."""
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Accepts connections and hands each to `_serve` in a thread of its own."""

    def __init__(self, target: JupyterConnectionInfo) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.info = replace(target, port=self._server.getsockname()[1])

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads.pop(0).join(10)  # from here on no connection is added
        for side in self._sockets:
            hang_up(side)
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    server = socket.create_connection((self._target.host, self._target.port or 0))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        raise NotImplementedError


class CuttingProxy(Proxy):
    """Forwards to a server and cuts each connection after so many bytes of answers.

    Parameters
    ----------
    cut_after_bytes : int
        How much of the answers on one connection gets through.
    cut_requests_to : str
        Only the answers from the first request on are cut whose request line holds this.
    max_cuts : int
        From then on all get through.
    """

    def __init__(
        self,
        target: JupyterConnectionInfo,
        *,
        cut_after_bytes: int,
        cut_requests_to: str = "",
        max_cuts: int = 1_000_000,
    ) -> None:
        super().__init__(target)
        self._cut_after_bytes = cut_after_bytes
        self._cut_requests_to = cut_requests_to
        self._max_cuts = max_cuts
        self.cuts = 0

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        cut = threading.Event()
        with client, server:
            self._start(self._pump, client, server, cut)
            left = self._cut_after_bytes
            with contextlib.suppress(OSError):
                while data := server.recv(2**14):
                    if cut.is_set() and len(data) >= left:
                        client.sendall(data[:left])
                        self.cuts += 1
                        break
                    client.sendall(data)
                    left -= len(data) if cut.is_set() else 0
            hang_up(client)
            hang_up(server)

    def _pump(self, source: socket.socket, target: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                if self._cut_requests_to.encode() in data.partition(b"\r\n")[0] and self.cuts < self._max_cuts:
                    cut.set()
                target.sendall(data)


class OutageProxy(Proxy):
    """Forwards to a server. `cut()` closes what is open; `go_down()` also stops listening, until `come_back()`."""

    def __init__(self, target: JupyterConnectionInfo) -> None:
        super().__init__(target)
        self.answers = bytearray()

    def cut(self) -> None:
        for side in self._sockets:
            hang_up(side)

    def go_down(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads.pop(0).join(10)
        self.cut()

    def come_back(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.info.port or 0))
        self._start(self._accept)
        self._threads.insert(0, self._threads.pop())

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            self._start(self._forward, client, server)
            with contextlib.suppress(OSError):
                while data := server.recv(2**16):
                    self.answers += data
                    client.sendall(data)
            hang_up(client)
            hang_up(server)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**14):
                target.sendall(data)
        hang_up(target)


class SilencingProxy(Proxy):
    """Forwards to a server; `silence()` makes the WebSockets that are open silent, without closing them."""

    def __init__(self, target: JupyterConnectionInfo) -> None:
        super().__init__(target)
        self._open: list[threading.Event] = []

    def silence(self) -> None:
        for silent in self._open:
            silent.set()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        silent = threading.Event()
        with client, server:
            back = threading.Thread(target=self._pump, args=(client, server, silent), daemon=True)
            back.start()
            self._pump(server, client, silent)
            back.join(10)

    def _pump(self, source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**14):
                if b"/channels?" in data.partition(b"\r\n")[0]:  # also on a connection that was used before
                    self._open.append(silent)
                if not silent.is_set():
                    target.sendall(data)
        if not silent.is_set():
            hang_up(source)
            hang_up(target)


class DroppingProxy(Proxy):
    """Forwards every request, and of the answers loses some: it closes the connection in their place.

    Parameters
    ----------
    rng : random.Random
        Decides.
    dropped : float
        How many of the pieces that a server sends are lost, from 0 to 1.
    """

    def __init__(self, target: JupyterConnectionInfo, rng: random.Random, dropped: float) -> None:
        super().__init__(target)
        self._rng = rng
        self._dropped = dropped
        self.drops = 0

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            self._start(self._forward, client, server)
            with contextlib.suppress(OSError):
                while data := server.recv(2**16):
                    if self._rng.random() < self._dropped:
                        self.drops += 1
                        client.sendall(data[: self._rng.randrange(len(data))])
                        break
                    client.sendall(data)
            hang_up(client)
            hang_up(server)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**14):
                target.sendall(data)


class RandomCutProxy(Proxy):
    """Forwards to a server, and cuts each connection after some bytes of either direction, or after some time.

    Parameters
    ----------
    rng : random.Random
        Decides where.
    """

    def __init__(self, target: JupyterConnectionInfo, rng: random.Random) -> None:
        super().__init__(target)
        self._rng = rng

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        where = self._rng.choice(["request", "answer", "time"])
        request_bytes = self._rng.randrange(600) if where == "request" else 2**62
        answer_bytes = self._rng.randrange(1500) if where == "answer" else 2**62
        timer = threading.Timer(self._rng.uniform(0.0, 0.05), self._cut, (client, server))
        with client, server:
            if where == "time":
                timer.start()
            self._start(self._forward, client, server, request_bytes)
            self._forward(server, client, answer_bytes)
            timer.cancel()

    def _forward(self, source: socket.socket, target: socket.socket, most_bytes: int) -> None:
        left = most_bytes
        with contextlib.suppress(OSError):
            while left and (data := source.recv(2**14)[:left]):
                target.sendall(data)
                left -= len(data)
        self._cut(source, target)

    @staticmethod
    def _cut(client: socket.socket, server: socket.socket) -> None:
        hang_up(client)
        hang_up(server)
