"""Programs in sessions that listen on a port, and requests to them as programs and browsers send them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import requests
import websocket

from tests.support.bearers import Bearer

PORT = 8501
#: Starts, in the kernel's own event loop, an app that answers with what it got.
ECHO_APP = """
import json, tornado.web, tornado.websocket, tornado.httpserver, tornado.netutil

class Echo(tornado.web.RequestHandler):
    SUPPORTED_METHODS = (*tornado.web.RequestHandler.SUPPORTED_METHODS,)
    def check_xsrf_cookie(self):
        pass
    async def answer(self):
        if self.request.path == "/large":
            for _ in range(200):
                self.write(b"x" * 65536)
                await self.flush()
            return
        if self.request.path == "/redirect":
            self.set_status(307)
            self.set_header("Location", self.get_query_argument("to"))
            return
        self.set_header("Content-Type", "application/json")
        self.add_header("Set-Cookie", "app=1; Domain=localhost; Path=/")
        self.add_header("Set-Cookie", "_xsrf=stolen; Path=/")
        self.set_header("Service-Worker-Allowed", "/")
        self.set_header("Clear-Site-Data", '"cookies"')
        self.set_header("Access-Control-Allow-Origin", "*")
        self.set_header("Cache-Control", "max-age=3600")
        self.write(json.dumps({
            "method": self.request.method, "uri": self.request.uri, "headers": list(self.request.headers.get_all()),
            "body_bytes": len(self.request.body), "version": VERSION,
        }))
    get = head = post = put = patch = delete = options = answer

class EchoSocket(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        headers = list(self.request.headers.get_all()) if message == "headers" else None
        self.write_message(json.dumps({"headers": headers, "message": message, "version": VERSION}))

VERSION = %(version)d
sockets = tornado.netutil.bind_sockets(%(port)d, "127.0.0.1")
app = tornado.web.Application([("/socket", EchoSocket), ("/.*", Echo)])
server = tornado.httpserver.HTTPServer(app, max_body_size=10**9)
server.add_sockets(sockets)
print(sockets[0].getsockname()[1])
"""


def start_echo_app(bearer: Bearer, session_id: str, port: int = PORT, version: int = 1) -> int:
    """Start the app in a session, and return its port; 0 asks for any."""
    answer = bearer.run(session_id, ECHO_APP % {"port": port, "version": version})
    assert answer.status_code in (200, 201) and answer.json()["state"] == "ok", answer.text
    return int(answer.json()["stdout"])


def open_port(bearer: Bearer, session_id: str, port: int = PORT) -> dict[str, Any]:
    """Open a port, and return its record."""
    answer = bearer.call("POST", f"/sessions/{session_id}/ports", json={"port": port})
    assert answer.status_code in (200, 201), answer.text
    record: dict[str, Any] = answer.json()
    return record


@dataclass
class Page:
    """A browser that has used a link: it sends the Host header of the link, and its cookie."""

    bearer: Bearer
    host: str
    cookie: str

    def get(self, path: str, method: str = "GET", **headers: str) -> requests.Response:
        sent = {"Host": self.host, "Cookie": self.cookie, **headers}
        return requests.request(
            method, f"{self.address}{path}", headers=sent, timeout=30, allow_redirects=False, data=b""
        )

    @property
    def address(self) -> str:
        info = self.bearer.host.info
        return f"http://127.0.0.1:{info.port}"

    def socket(self, path: str = "/socket", origin: str | None = None) -> websocket.WebSocket:
        made: websocket.WebSocket = websocket.create_connection(
            self.address.replace("http", "ws") + path,
            host=self.host,
            origin=origin or f"http://{self.host}",
            cookie=self.cookie,
            timeout=30,
        )
        return made


def visit(bearer: Bearer, url: str) -> requests.Response:
    """Use a link as a browser does, without a way to resolve its name."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    address = f"{scheme}://127.0.0.1:{bearer.host.info.port}/{path}"
    return requests.get(address, headers={"Host": host}, timeout=30, allow_redirects=False)


def enter(bearer: Bearer, url: str) -> Page:
    """Use a link, and return the page."""
    answer = visit(bearer, url)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/"), answer.text
    return Page(bearer, url.split("/")[2], answer.headers["Set-Cookie"].partition(";")[0])


def until_refused(page: Page, seconds: float = 10.0) -> None:
    """Wait until a page's cookie is not valid any more."""
    give_up_at = time.monotonic() + seconds
    while page.get("/").status_code != 403:
        assert time.monotonic() < give_up_at, "the cookie still works"
        time.sleep(0.05)
