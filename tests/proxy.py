"""A TCP proxy that cuts connections, for what a network does to a client."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_exec_ext import JupyterConnectionInfo

if TYPE_CHECKING:
    from typing_extensions import Self


class CuttingProxy:
    """Forwards to a server and cuts each connection after so many bytes of answers.

    Parameters
    ----------
    cut_after_bytes : int
        How much of the answers on one connection gets through.
    cut_requests_to : str
        Only connections whose first request names a path with this are cut.
    """

    def __init__(self, target: JupyterConnectionInfo, *, cut_after_bytes: int, cut_requests_to: str = "") -> None:
        self._target = target
        self._cut_after_bytes = cut_after_bytes
        self._cut_requests_to = cut_requests_to
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.cuts = 0
        self.info = replace(target, port=self._server.getsockname()[1])

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
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
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        assert self._target.port is not None
        with client, socket.create_connection((self._target.host, self._target.port)) as server:
            first = client.recv(2**16)
            server.sendall(first)
            cut = self._cut_requests_to.encode() in first.partition(b"\r\n")[0]
            self._start(self._pump, client, server)
            left = self._cut_after_bytes if cut else None
            with contextlib.suppress(OSError):
                while data := server.recv(2**14):
                    if left is not None and len(data) >= left:
                        client.sendall(data[:left])
                        self.cuts += 1
                        break
                    client.sendall(data)
                    left = None if left is None else left - len(data)
            for side in (client, server):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**14):
                target.sendall(data)
