"""A stand-in for a BinderHub, which needs a cluster: it tells the events that BinderHub's API documents, as scripted.

What it tells ready is a real server of the tests'. The frames are those of BinderHub's ``/build``: ``data:`` lines with
one JSON object each, without ids or types, and comments to keep the connection alive.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_exec_ext import JupyterConnectionInfo
from tests.support.tcp_proxies import hang_up

if TYPE_CHECKING:
    from typing_extensions import Self

KEEP_ALIVE = ":keepalive\n\n"


@dataclass
class Events:
    """A stream of events; texts are sent as they are.

    Parameters
    ----------
    then : str
        ``hold`` keeps the connection open and alive, as BinderHub does; ``cut`` drops it; ``end`` ends the answer.
    keep_alive_seconds : float
        How often there is a sign of life then.
    """

    events: Sequence[Mapping[str, Any] | str]
    then: str = "hold"
    keep_alive_seconds: float = 0.05


@dataclass
class Answer:
    """Anything else."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


class StandInBinderHub(http.server.ThreadingHTTPServer):
    """Gives each request the next of its answers. A context manager."""

    daemon_threads = False  # they are waited for at the end

    def __init__(self, *answers: Events | Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, Mapping[str, str]]] = []
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: StandInBinderHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        answer = self.server.answers.pop(0)
        self.close_connection = True
        if isinstance(answer, Answer):
            self._begin(answer.status, {"Content-Length": "0", **answer.headers})
            return
        self._begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for event in answer.events:
            self._send(event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n")
        if answer.then == "cut":
            hang_up(self.connection)
        elif answer.then == "end":
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._hold(answer.keep_alive_seconds)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _hold(self, seconds: float) -> None:
        """Keep the connection alive until the client is gone, or the test is over."""
        while not self.server.closing.wait(seconds):
            try:
                self._send(KEEP_ALIVE)
            except OSError:
                return


def log(phase: str, *messages: str) -> list[Mapping[str, Any] | str]:
    """Return events of one phase with a line of the log each."""
    return [{"phase": phase, "message": f"{message}\n"} for message in messages]


def ready(info: JupyterConnectionInfo) -> dict[str, Any]:
    """Return the event that names a server."""
    return {
        "phase": "ready",
        "message": f"server running at {info.url}\n",
        "url": info.url,
        "token": info.token,
        "image": "registry.example/org-repo:abc",
        "repo_url": "https://git.example/org/repo",
        "binder_ref_url": "https://git.example/org/repo/tree/abc",
        "binder_launch_host": "http://binder.example/",
        "binder_request": "v2/gh/org/repo/HEAD",
        "binder_persistent_request": "v2/gh/org/repo/abc",
    }


BUILD: list[Mapping[str, Any] | str] = [
    *log("waiting", "Waiting for build to start..."),
    KEEP_ALIVE,
    *log("fetching", "Picked Git content provider.", "Cloning into '/tmp/repo2dockerabc'..."),
    *log("building", "Step 1/3 : FROM base", "\x1b[91mwarning\x1b[0m: a\tlog", "Step 3/3 : CMD"),
    {"phase": "pushing", "message": "Pushing image\n", "progress": {"a": {"current": 1, "total": 4}, "b": "Pushed"}},
    *log("built", "Built image, launching..."),
    *log("launching", "Launching server...", "Launch attempt 1 failed, retrying..."),
]
