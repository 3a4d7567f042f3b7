"""Base of the handlers that pass requests on to a session's port, by HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import responses
from typing import Any

from tornado.httputil import HTTPHeaders, ResponseStartLine
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler, stream_request_body

from ..auth.caller import Caller
from ..errors import InvalidRequest, PortUnreachable
from .open_port import OpenPort, PortUse
from .port_exchange import MAX_BODY_BYTES, SWITCHING_PROTOCOLS, PortExchange, copy_stream
from .port_headers import PortMode, headers_for_client, headers_for_port

_TARGET = re.compile(r"/[\x21-\x7e]*")
_MAX_TARGET_CHARACTERS = 32 * 1024
# HTTP/1.1 cannot say that there is a body of unknown length with other methods, as far as the library is concerned.
_WITH_CHUNKS = ("POST", "PUT", "PATCH")
_WEBSOCKET_HEADERS = ("Sec-WebSocket-Accept", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions")


@stream_request_body
class PortRelay(RequestHandler):
    """Passes a request on. Subclasses find the port in `prepare`, and call `begin_relay`."""

    mode: PortMode
    _use: PortUse | None = None
    _exchange: PortExchange | None = None
    _was_cut = False

    @property
    def is_websocket(self) -> bool:
        """True if the client asks for a WebSocket."""
        headers = self.request.headers
        return self.request.method == "GET" and headers.get("Upgrade", "").strip().lower() == "websocket"

    async def begin_relay(
        self, opened: OpenPort, caller: Caller, target: str, host: str, forwarded: dict[str, str]
    ) -> None:
        """Connect to the program, and send it the head of the request.

        Parameters
        ----------
        opened : OpenPort
            The port.
        caller : Caller
            In whose name the request is.
        target : str
            Path and query for the program.
        host : str
            The Host header for the program.
        forwarded : dict
            Headers that say how the program is reached.

        Raises
        ------
        InvalidRequest, TooManyPortRequests
            If the request is not passed on.
        PortUnreachable
            If no program listens, or the request was cut meanwhile.
        """
        request = self.request
        if len(target) > _MAX_TARGET_CHARACTERS or not _TARGET.fullmatch(target):
            raise InvalidRequest(f"a path has up to {_MAX_TARGET_CHARACTERS} printable ASCII characters; encode others")
        if "Transfer-Encoding" in request.headers and request.method not in _WITH_CHUNKS:
            raise InvalidRequest(f"a body of {request.method} needs a Content-Length here")
        connection: Any = request.connection
        connection.set_max_body_size(MAX_BODY_BYTES)
        self._transforms = []  # the answer is passed on as it is, not compressed once more
        self._use = opened.begin_use(caller, self._cut)
        stream = await opened.connector.connect(opened.port, lambda: not self._was_cut)
        if self._was_cut:  # the program must not get a request for which its sender has no right any more
            stream.close()
            raise PortUnreachable(f"port {opened.port} was closed, or the right to use it ended, before the connection")
        self._exchange = PortExchange(stream, may_upgrade=self.is_websocket)
        headers = headers_for_port(request.headers, self.mode, host, forwarded, self.is_login_cookie)
        if self.is_websocket:
            headers["Connection"], headers["Upgrade"] = "Upgrade", "websocket"
        else:
            headers["Connection"] = "close"
        await self._exchange.send_head(request.method or "", target, headers)

    def is_login_cookie(self, name: str) -> bool:
        """Return whether a cookie of this name may be Jupyter's."""
        del name
        return False

    def redirection(self, location: str) -> str | None:
        """Return the Location header for the client; None to leave it out."""
        return location

    async def data_received(self, chunk: bytes) -> None:
        """Pass a piece of the body on; the client waits meanwhile."""
        if self._exchange is not None and self._use is not None:
            self._use.note_sent(len(chunk))
            await self._exchange.send_data(chunk)

    async def relay(self) -> None:
        """Pass the answer on."""
        assert self._exchange is not None
        is_whole = await self._exchange.read_answer(self)
        if self._exchange.upgraded is not None:
            await self._relay_websocket()
        elif is_whole:
            self.finish()
        else:
            self._cut()  # so that the client does not take a part for the whole

    async def receive_head(self, status: int, headers: HTTPHeaders) -> None:
        """Send the status and the headers to the client."""
        kept = headers_for_client(headers, self.mode)
        location = self.redirection(headers["Location"]) if "Location" in headers else None
        if location is not None:
            kept["Location"] = location
        with self._until_closed():
            if status == SWITCHING_PROTOCOLS:
                await self._send_switch(headers, kept)
                return
            self.set_status(status, responses.get(status, "Unknown"))
            for name in [name for name, _ in self._headers.get_all() if name != "X-Request-Id"]:
                self.clear_header(name)
            for name, value in kept.get_all():
                self.add_header(name, value)
            await self.flush()

    async def receive_data(self, data: bytes) -> None:
        """Send a piece of the body to the client."""
        if self._use is not None:
            self._use.note_received(len(data))
        with self._until_closed():
            self.write(data)
            await self.flush()

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        """Close the connection to the program if the client has gone, or cannot be sent the program's headers."""
        try:
            yield
        except (StreamClosedError, ValueError):
            self._cut()

    async def _send_switch(self, headers: HTTPHeaders, kept: HTTPHeaders) -> None:
        switch = HTTPHeaders({"Upgrade": "websocket", "Connection": "Upgrade"})
        for name in _WEBSOCKET_HEADERS:
            if name in headers:
                switch[name] = headers[name]
        for cookie in kept.get_list("Set-Cookie"):
            switch.add("Set-Cookie", cookie)
        connection: Any = self.request.connection
        await connection.write_headers(
            ResponseStartLine("HTTP/1.1", SWITCHING_PROTOCOLS, responses[SWITCHING_PROTOCOLS]), switch
        )

    async def _relay_websocket(self) -> None:
        """Copy bytes both ways, at the pace of the slower side, until one side closes."""
        assert self._exchange is not None and self._exchange.upgraded is not None and self._use is not None
        program, client, use = self._exchange.upgraded, self.detach(), self._use

        def cut() -> None:
            program.close()
            client.close()

        use.cut = cut
        try:
            if use not in use.port.uses:  # it was cut while the answer was read
                cut()
            await asyncio.gather(
                copy_stream(client, program, use.note_sent), copy_stream(program, client, use.note_received)
            )
        finally:
            cut()
            self.end_relay()

    def _cut(self) -> None:
        """End both connections, also that to the program which is still to be made."""
        self._was_cut = True
        if self._exchange is not None:
            self._exchange.close()
        stream = getattr(self.request.connection, "stream", None)
        if stream is not None:
            stream.close()

    def end_relay(self) -> None:
        """Release what the request held; may be called twice."""
        if self._exchange is not None:
            self._exchange.close()
        if self._use is not None:
            self._use.end()
