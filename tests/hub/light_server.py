"""A user's server that does nothing but answer: for tests of starting and stopping, in a tenth of a second."""

from __future__ import annotations

import http.server
import os
from urllib.parse import urlsplit


class Answer(http.server.BaseHTTPRequestHandler):
    """Says yes to whatever the Hub asks to see whether somebody is there."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815  # named by the library


address = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
http.server.ThreadingHTTPServer((address.hostname or "127.0.0.1", address.port or 0), Answer).serve_forever()
