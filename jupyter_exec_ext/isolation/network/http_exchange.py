"""HTTP/1.1 requests that the egress proxy reads: decides about each one, and writes it anew for its host."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import h11

from .access_decision import Target
from .rules import SCHEME_PORTS, RuleError, parse_authority
from .secret_filter import Headers, SecretFilter
from .streams import SocketStream, Stream, TlsStream, copy_streams, run_both
from .timeouts import finish_within
from .upstream import Refused, Unreachable
from .url_paths import PathError, split_target

if TYPE_CHECKING:
    from .client_connection import ClientConnection

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 20.0
# Of one connection only: https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
    *(b"trailer", b"upgrade", b"expect", b"host", b"proxy-authentication-info"),
}
# Servers that know these serve another method or path than the one that was compared with the rule.
_OVERRIDES = {
    *(b"x-http-method-override", b"x-http-method", b"x-method-override"),
    *(b"x-original-url", b"x-rewrite-url"),
}


_EVENTS_IN_A_TURN = 50


class HttpPeer:
    """One side of HTTP over a stream.

    Parameters
    ----------
    role : type
        ``h11.SERVER`` towards the program, ``h11.CLIENT`` towards the host.
    stream : Stream
        Connection.
    """

    def __init__(self, role: Any, stream: Stream) -> None:
        self.stream = stream
        self.state = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._events = 0

    async def next_event(self) -> Any:
        """Return the next event."""
        self._events += 1
        if self._events % _EVENTS_IN_A_TURN == 0:  # data that is there already may have thousands
            await asyncio.sleep(0)
        while (event := self.state.next_event()) is h11.NEED_DATA:
            if self.state.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self.state.receive_data(await self.stream.receive())
        return event

    async def send(self, event: Any) -> None:
        """Send an event."""
        data = self.state.send(event)
        if data:
            await self.stream.send(data)

    async def answer(self, status: int, message: str) -> None:
        """Answer with a message, in the body and in the status line, since pip shows only that."""
        if self.state.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # the answer has begun
        text = "".join(char if " " <= char <= "~" else "?" for char in message).encode()
        headers = [(b"Content-Type", b"text/plain"), (b"Content-Length", b"%d" % (len(text) + 1))]
        headers += [(b"Connection", b"close"), (b"X-Exec-Network", text[:500])]
        await self.send(h11.Response(status_code=status, headers=headers, reason=text[:300]))
        await self.send(h11.Data(data=text + b"\n"))
        await self.send(h11.EndOfMessage())

    async def drain(self) -> None:
        """Read a little of what the other side still sends, so that the system does not discard our answer."""
        await self.stream.send_end()
        with suppress(OSError, asyncio.TimeoutError):
            for _ in range(64):
                if not await finish_within(1.0, self.stream.receive()):
                    return


class HttpExchange:
    """Serves the requests of one connection.

    Parameters
    ----------
    owner : ClientConnection
        The connection: its session, rules and records.
    client : HttpPeer
        Side of the program.
    base : Target, optional
        Host, port and scheme of all requests in a tunnel; None if each request names its own.
    """

    def __init__(self, owner: ClientConnection, client: HttpPeer, base: Target | None = None) -> None:
        self._owner, self._client, self._base = owner, client, base
        self._host: HttpPeer | None = None
        self._host_socket: socket.socket | None = None
        self._host_key: tuple[Any, int] | None = None

    async def serve(self, request: h11.Request | None = None) -> None:
        """Serve requests until the connection ends."""
        try:
            while True:
                if request is None:
                    self._owner.allow_seconds(HEAD_SECONDS)
                    event = await self._client.next_event()
                    if not isinstance(event, h11.Request):
                        return
                    request = event
                if not await self._serve_one(request):
                    return
                request = None
                self._client.state.start_next_cycle()
        except h11.RemoteProtocolError as error:
            reason = f"the request is not HTTP as it must be: {error}"
            await self._owner.refuse(self._base, reason)
            await self._answer(400, reason)
        finally:
            self._close_host()

    async def _serve_one(self, request: h11.Request) -> bool:
        """Serve a request; return whether another may follow."""
        target: Target | None = self._base
        try:
            target, query = self._read_target(request)
            secrets = SecretFilter(self._owner.session.access, target)
            upgrade = _header(request, b"upgrade")
            headers = secrets.fill(target.path + query, _kept_headers(request.headers))
            verdict = await self._owner.authorize(target, target.method, secrets.filled)
            if verdict.has_path and (found := _OVERRIDES.intersection(name for name, _ in request.headers)):
                named = min(found).decode()
                raise Refused(f"the header {named} can change the method or path that a rule allows; leave it out")
            await self._connect(target)
            if upgrade.lower() == b"websocket":
                headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
            await self._send_head(target, query, headers)
            is_reusable = await self._exchange(secrets)
        except (Refused, RuleError, PathError) as error:
            await self._owner.refuse(target, str(error), request.method.decode())
            await self._answer(403, str(error))
        except (Unreachable, OSError, h11.LocalProtocolError) as error:
            reason = str(error) if isinstance(error, Unreachable) else f"the connection failed: {error}"
            await self._owner.report_end("failed", reason)
            await self._answer(502, reason)
        else:
            await self._owner.report_end("allowed")
            return is_reusable
        return False

    async def _answer(self, status: int, message: str) -> None:
        with suppress(OSError, h11.LocalProtocolError):
            await self._client.answer(status, message)
            await self._client.drain()

    def _read_target(self, request: h11.Request) -> tuple[Target, str]:
        """Return what a request asks for, and its query. Its header ``Host`` must name the same."""
        text = request.target.decode("ascii", "replace")
        if self._base is None:
            scheme, _, rest = text.partition("://")
            if scheme.lower() != "http":
                raise RuleError("only http:// is asked for without a tunnel; use CONNECT for https://")
            authority, slash, path = rest.partition("/")
            host, port = parse_authority(authority, 80)
            if port == 443:
                raise Refused(f"a request to port 443 of {host} must be made over TLS; use https://")
            scheme, text = "http", slash + path
        else:
            host, port, scheme = self._base.host, self._base.port, self._base.scheme or "http"
        path, query = split_target(text)
        target = Target(host, port, scheme, request.method.decode("ascii"), path)
        named = parse_authority(_header(request, b"host").decode("ascii", "replace"), SCHEME_PORTS[scheme])
        if named != (host, port):
            raise Refused(f"the header Host names {named[0]}:{named[1]}, and the request is for {host}:{port}")
        if _header(request, b"content-length") and _header(request, b"transfer-encoding"):
            raise RuleError("the request has two lengths")
        return target, query

    async def _connect(self, target: Target) -> None:
        """Connect to the host, unless the connection of the request before can be used again."""
        key = target.host, target.port
        if self._host is not None and self._host_key == key and self._is_host_open():
            self._host.state.start_next_cycle()
            return
        self._close_host()
        upstream, access = self._owner.proxy.upstream, self._owner.session.access
        if target.scheme == "https":
            stream = await upstream.open_tunnel(access, target)
            self._host_socket = stream.sock
            tls = TlsStream(stream, self._owner.proxy.trust, str(target.host))
            await tls.handshake()
            self._host = HttpPeer(h11.CLIENT, tls)
        else:
            self._host_socket = await upstream.connect(access, target)
            self._host = HttpPeer(h11.CLIENT, SocketStream(self._host_socket))
        self._host_key = key

    def _is_host_open(self) -> bool:
        if self._host is None or self._host_socket is None or self._host.state.our_state is not h11.DONE:
            return False
        try:
            self._host_socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _close_host(self) -> None:
        if self._host_socket is not None:
            self._host_socket.close()
        self._host = self._host_socket = self._host_key = None

    async def _send_head(self, target: Target, query: str, headers: Headers) -> None:
        url = target.path + query
        headers = [(b"Host", target.authority.encode()), *headers]
        upstream = self._owner.proxy.upstream
        if target.scheme == "http" and upstream.proxy is not None and upstream.uses_proxy(target):
            url = f"http://{target.authority}{url}"
            headers += upstream.proxy.headers
        assert self._host is not None
        # The method, too: it can be as long as a head may be.
        size = len(target.method) + len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
        self._owner.count_sent(size)
        await self._host.send(h11.Request(method=target.method, target=url, headers=headers))

    async def _exchange(self, secrets: SecretFilter) -> bool:
        """Pass on the body and the response, each as it comes; return whether both connections can go on."""
        upload = asyncio.ensure_future(self._pass_body(secrets))
        response = asyncio.ensure_future(self._pass_response(secrets, upload))
        try:
            await asyncio.wait({upload, response}, return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and isinstance(upload.exception(), (Refused, h11.RemoteProtocolError)):
                await upload
            # After any other failure of the upload, the host may still have an answer.
            await response
        finally:
            for task in (upload, response):
                task.cancel()
            await asyncio.gather(upload, response, return_exceptions=True)
        assert self._host is not None
        return self._client.state.our_state is self._client.state.their_state is h11.DONE

    async def _pass_body(self, secrets: SecretFilter) -> None:
        assert self._host is not None
        while True:
            event = await self._client.next_event()
            if isinstance(event, h11.Data):
                secrets.check_sent(event.data)
                self._owner.count_sent(len(event.data))
                await self._host.send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._host.send(h11.EndOfMessage())
                return
            else:
                raise h11.RemoteProtocolError("the request ended early")

    async def _pass_response(self, secrets: SecretFilter, upload: asyncio.Future[None]) -> None:
        host = self._host
        assert host is not None
        while True:
            try:
                event = await host.next_event()
            except h11.RemoteProtocolError as error:
                # Without h11's message: it may quote an answer with the value of a secret.
                raise Unreachable("the host's answer is not HTTP as it must be") from error
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    await upload
                    await self._switch(event, secrets)
                    return
            elif isinstance(event, h11.Response):
                await self._client.send(self._cleaned_response(event, secrets))
            elif isinstance(event, h11.Data):
                self._owner.count_received(len(event.data))
                data = secrets.clean_body(event.data)
                if data:
                    await self._client.send(h11.Data(data=data))
            elif isinstance(event, h11.EndOfMessage):
                if rest := secrets.clean_body(b"", is_last=True):
                    await self._client.send(h11.Data(data=rest))
                await self._client.send(h11.EndOfMessage())
                return
            else:
                raise Unreachable("the host ended the connection")

    def _cleaned_response(self, response: h11.Response, secrets: SecretFilter) -> h11.Response:
        headers = _kept_headers(response.headers)
        if secrets.has_secrets:
            encoding = _header(response, b"content-encoding").lower()
            if encoding not in (b"", b"identity"):
                raise Unreachable("the host compressed its answer, so that it cannot be searched for the secret")
            is_head = self._owner.record.method == "HEAD" if self._owner.record else False
            headers = secrets.clean_headers(headers)
            headers = [each for each in headers if is_head or each[0].lower() != b"content-length"]
        reason = secrets.clean_text(response.reason)
        return h11.Response(status_code=response.status_code, headers=headers, reason=reason)

    async def _switch(self, event: h11.InformationalResponse, secrets: SecretFilter) -> None:
        """Pass on the frames of a WebSocket."""
        host = self._host
        assert host is not None
        headers = secrets.clean_headers(_kept_headers(event.headers))
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", _header(event, b"upgrade"))]
        await self._client.send(h11.InformationalResponse(status_code=101, headers=headers, reason=b""))

        def count_sent(data: bytes) -> None:
            secrets.check_sent(data)
            self._owner.count_sent(len(data))

        def count_received(data: bytes) -> None:
            secrets.refuse_value(data)
            self._owner.count_received(len(data))

        if early := host.state.trailing_data[0]:
            count_received(early)
            await self._client.stream.send(early)
        if early := self._client.state.trailing_data[0]:
            count_sent(early)
            await host.stream.send(early)
        client = self._client.stream
        await run_both(copy_streams(client, host.stream, count_sent), copy_streams(host.stream, client, count_received))


def _header(message: Any, name: bytes) -> bytes:
    return b", ".join(value for each, value in message.headers if each == name)


def _kept_headers(headers: Any) -> Headers:
    """Return the headers to pass on, in the case they came in."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return [
        (raw, value)
        for (raw, value), (name, _) in zip(headers.raw_items(), headers, strict=True)
        if name not in _HOP_BY_HOP and name not in named - {b"host", b"content-length", b"transfer-encoding"}
    ]
