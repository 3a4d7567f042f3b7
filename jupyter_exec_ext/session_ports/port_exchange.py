"""One HTTP request to a program in a session, and its answer, in pieces and in constant memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPInputError, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError

from ..errors import PortUnreachable

#: The largest body of a request, and of an answer.
MAX_BODY_BYTES = 4 * 1024**3
_MAX_HEADER_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
# A program may compute for as long before it answers.
_ANSWER_SECONDS = 600.0
SWITCHING_PROTOCOLS = 101


class AnswerReceiver(Protocol):
    """Receiver of a program's answer."""

    async def receive_head(self, status: int, headers: HTTPHeaders) -> None:
        """Handle the status and the headers."""

    async def receive_data(self, data: bytes) -> None:
        """Handle a piece of the body; the next one is read when it is done."""


class PortExchange(HTTPMessageDelegate):
    """A request to a program, over a connection of its own.

    Parameters
    ----------
    stream : IOStream
        The connection.
    may_upgrade : bool
        True if the request is for a WebSocket.
    """

    def __init__(self, stream: IOStream, *, may_upgrade: bool = False) -> None:
        parameters = HTTP1ConnectionParameters(
            no_keep_alive=True,
            chunk_size=_CHUNK_BYTES,
            max_header_size=_MAX_HEADER_BYTES,
            max_body_size=MAX_BODY_BYTES,
            header_timeout=_ANSWER_SECONDS,
        )
        self._connection = HTTP1Connection(stream, True, parameters)
        self._stream = stream
        self._may_upgrade = may_upgrade
        self._receiver: AnswerReceiver | None = None
        self._is_refusing_body = False
        self._is_whole = False
        self.is_answered = False
        #: The connection, if the program has changed to the WebSocket protocol.
        self.upgraded: IOStream | None = None

    async def send_head(self, method: str, path: str, headers: HTTPHeaders) -> None:
        """Send the request line and the headers; raises `PortUnreachable` if the program has gone."""
        try:
            await self._connection.write_headers(RequestStartLine(method, path, "HTTP/1.1"), headers)
        except StreamClosedError:
            raise PortUnreachable("the program closed the connection before it got the request") from None

    async def send_data(self, data: bytes) -> None:
        """Send a piece of the body. A program may answer without reading it; the rest is dropped then."""
        if self._is_refusing_body:
            return
        try:
            await self._connection.write(data)
        except StreamClosedError:
            self._is_refusing_body = True

    async def read_answer(self, receiver: AnswerReceiver) -> bool:
        """Receive the answer, and return whether it is whole.

        Raises
        ------
        PortUnreachable
            If the program does not answer, or not in HTTP.
        """
        self._receiver = receiver
        if not self._is_refusing_body:
            self._connection.finish()
        try:
            await self._connection.read_response(self)
        except (StreamClosedError, HTTPInputError, ValueError):
            self.close()
        if not self.is_answered:
            raise PortUnreachable("the program did not answer, or not in HTTP; see its output")
        return self._is_whole or self.upgraded is not None

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    # --- called by the connection ---

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Pass the head on, unless more of it follows."""
        assert isinstance(start_line, ResponseStartLine) and self._receiver is not None
        if start_line.code == SWITCHING_PROTOCOLS:
            stream = self._connection.detach()
            if not self._may_upgrade:
                stream.close()
                return None
            self.upgraded = stream
        elif start_line.code < 200:
            return None
        self.is_answered = True
        return self._receiver.receive_head(start_line.code, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass a piece of the body on."""
        assert self._receiver is not None
        return self._receiver.receive_data(chunk)

    def finish(self) -> None:
        """Note the end of the answer."""
        self._is_whole = True


async def copy_stream(source: IOStream, target: IOStream, note: Callable[[int], None]) -> None:
    """Copy until one of the streams is closed, and close both."""
    try:
        while True:
            data = await source.read_bytes(_CHUNK_BYTES, partial=True)
            note(len(data))
            await target.write(data)
    except StreamClosedError:
        source.close()
        target.close()
