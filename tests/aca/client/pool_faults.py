"""A proxy before a session pool that spoils answers, one fault for each session.

An identifier such as ``cut-2-17`` says which fault its first two requests meet; what follows gets through. Faults that
come from the network or from a proxy strike after the request was carried out as well as before.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import random
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.aca.client.pool_service import POOL, ACAService, Handler

if TYPE_CHECKING:
    from typing_extensions import Self

FAULTS = ("401", "403", "404", "409", "429", "5xx", "slow", "cut", "garbled")
GARBAGE = (
    b"",
    b"<html>busy</html>",
    b'{"status": "Succe',
    b'{"status": "Succeeded", "result": {"executionResult": NaN}}',
    b'{"status": "Odd"}',
    b"[]",
    b"null",
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"value": 1e999}',
)


class FaultProxy(http.server.ThreadingHTTPServer):
    """Forwards to a service, or does not."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: ACAService, rng: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), Faulty)
        self.service = service
        self.rng = rng
        self.endpoint = f"http://127.0.0.1:{self.server_port}{POOL}"
        self.met: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients leave in the middle."""

    def fault_for(self, identifier: str) -> str:
        """Return what the next request of a session meets, empty for nothing."""
        fault, _, rest = identifier.partition("-")
        with self.lock:
            self.met[identifier] += 1
            if fault not in FAULTS or self.met[identifier] > int(rest.partition("-")[0]):
                return ""
            self.struck[fault] += 1
            return fault


class Faulty(Handler):
    server: FaultProxy  # type: ignore[assignment]

    def _serve(self) -> None:
        body = self._body()
        identifier = parse_qs(urlsplit(self.path).query).get("identifier", [""])[0]
        fault = self.server.fault_for(identifier)
        rng = random.Random(f"{identifier} {self.server.met[identifier]}")
        before = fault.isdecimal() or (fault in ("5xx", "cut") and rng.random() < 0.3)
        answer = b"" if before else self._forwarded(body)
        if fault.isdecimal() or fault == "5xx":
            status = int(fault) if fault.isdecimal() else rng.choice((500, 502, 503, 504))
            after = f"Retry-After: {rng.choice((0, 1))}\r\n" if status == 429 and rng.random() < 0.5 else ""
            answer = f"HTTP/1.1 {status} Fault\r\n{after}Content-Length: 2\r\n\r\n{{}}".encode()
        elif fault == "garbled":
            garbage = rng.choice(GARBAGE)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(garbage), garbage)
        self.close_connection = fault in ("cut", "slow")
        if fault == "cut":
            self.connection.sendall(answer[: rng.randrange(len(answer))] if answer else b"")
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault == "slow":
            self._drag(answer, rng)
        else:
            self.connection.sendall(answer)

    def _forwarded(self, body: bytes) -> bytes:
        service = http.client.HTTPConnection("127.0.0.1", self.server.service.server_port, timeout=30)
        with contextlib.closing(service):
            headers = {
                n: v for n, v in self.headers.items() if n.lower() not in ("transfer-encoding", "content-length")
            }
            service.request(self.command, self.path, body, headers)
            reply = service.getresponse()
            content = reply.read()
            head = f"HTTP/1.1 {reply.status} OK\r\n"
            length = "" if reply.status == 204 else f"Content-Length: {len(content)}\r\n"
            return f"{head}{length}\r\n".encode() + content

    def _drag(self, answer: bytes, rng: random.Random) -> None:
        """Say nothing, or a part and then nothing, or one byte now and then."""
        kind = rng.choice(("silent", "half", "drip"))
        if kind == "half":
            self.connection.sendall(answer[: len(answer) // 2])
        with contextlib.suppress(OSError):
            at = 0
            while not self.server.stopping.wait(0.1):
                if kind == "drip":
                    self.connection.sendall(answer[at : at + 1])
                    at += 1
                    if at == len(answer):
                        return
                else:
                    self.connection.settimeout(0.01)
                    with contextlib.suppress(TimeoutError):
                        if not self.connection.recv(1):
                            return  # the client has left
