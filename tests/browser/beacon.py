"""A server that must not be asked for anything: it notes who comes all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The one path that the test itself asks for: what was sent before it has come.
FENCE = "/fence"


class Beacon:
    """What has come: paths of requests, and connections on which nothing was asked."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.connections = 0
        self.address = ""


@contextmanager
def running_beacon() -> Iterator[Beacon]:
    """Listen on an address of its own."""
    beacon = Beacon()

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            beacon.connections += 1
            super().setup()

        def do_GET(self) -> None:
            beacon.paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_OPTIONS(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        beacon.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield beacon
        server.shutdown()
        thread.join()
