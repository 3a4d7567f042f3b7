"""One connection of a program to the proxy: HTTP or SOCKS5 by its first byte, then a tunnel or requests."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import h11

from . import socks
from .access_decision import NetworkSecret, Target, Verdict, decide
from .client_hello import HANDSHAKE, HelloError, parse_client_hello
from .http_exchange import HEAD_SECONDS, HttpExchange, HttpPeer
from .proxy_session import OpenRecord, ProxySession
from .rules import RuleError, parse_authority, parse_host
from .socks import make_socks_reply, negotiate_socks_request
from .streams import SocketStream, TlsStream, copy_sockets, run_both
from .timeouts import finish_within
from .upstream import Refused, Unreachable

if TYPE_CHECKING:
    from .proxy_process import Proxy

_log = logging.getLogger(__name__)
IDLE_SECONDS = 600.0
BEGIN_SECONDS = 5.0
_CONNECT_SECONDS = 60.0
_MAX_RECORDED_PATH = 2000
# Fatal alert "access denied", for programs that are in a TLS handshake.
_TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x31"


class ClientConnection:
    """One accepted connection.

    Parameters
    ----------
    proxy : Proxy
        The proxy.
    session : ProxySession
        The session of the listening socket.
    sock : socket.socket
        The connection.
    """

    def __init__(self, proxy: Proxy, session: ProxySession, sock: socket.socket) -> None:
        self.proxy, self.session = proxy, session
        self.record: OpenRecord | None = None
        self.cut_reason = ""
        self._client = SocketStream(sock)
        self._loop = asyncio.get_running_loop()
        self._verdict = Verdict()
        self._upstream_socket: socket.socket | None = None
        self.deadline = self._loop.time() + HEAD_SECONDS
        self._is_ending = False
        self.task = asyncio.ensure_future(self._run())

    def cut(self, reason: str) -> None:
        """End the connection at once, for a reason that goes into the record."""
        if not self._is_ending:
            self._is_ending, self.cut_reason = True, reason
            self.task.cancel()

    def allow_seconds(self, seconds: float) -> None:
        """Set the time until which something has to happen."""
        self.deadline = self._loop.time() + seconds

    def is_still_allowed(self) -> bool:
        """Return whether rules and secrets, which have changed, allow the open request as they did."""
        if self.record is None:
            return True
        if not self.session.access.has_secrets(self.record.secrets):
            return False
        verdict = decide(self.session.access, self.record.target)
        return verdict.is_allowed and verdict.must_terminate_tls == self._verdict.must_terminate_tls

    async def authorize(self, target: Target, method: str, secrets: Sequence[NetworkSecret] = ()) -> Verdict:
        """Decide about a request. An allowed one is on record before anything of it leaves the machine.

        Parameters
        ----------
        target : Target
            The request.
        method : str
            Its method.
        secrets : sequence of NetworkSecret, optional
            Secrets that it gets.

        Raises
        ------
        Refused
            If the rules do not allow it, a secret has changed, the session has sent all it may, or the record cannot
            be delivered.
        """
        await self.session.requests.wait()
        if not self.session.access.has_secrets(secrets):
            raise Refused("a secret of the request has changed meanwhile; try again")
        verdict = decide(self.session.access, target)
        if not verdict.is_allowed:
            raise Refused(verdict.reason)
        self.check_upload(0)
        self._verdict = verdict
        record = OpenRecord(self.proxy.next_number(), target, method, self._loop.time(), secrets=secrets)
        self.allow_seconds(_CONNECT_SECONDS)
        self.record = record
        try:
            report = self.proxy.report("begin", record.number, self._fields(record, rule=verdict.rule))
            await finish_within(BEGIN_SECONDS, report)
        except asyncio.TimeoutError as error:
            raise Refused("the server does not keep up with the records of requests; try again later") from error
        return verdict

    async def report_end(self, verdict: str, reason: str = "") -> None:
        """Report the end of the open request, if there is one."""
        record, self.record = self.record, None
        if record is not None:
            await self._report_end(record, verdict, reason)

    async def refuse(self, target: Target | None, reason: str, method: str = "") -> None:
        """Report a refused request, also one that had begun; many refused ones are slowed down."""
        if self.record is not None:
            await self.report_end("refused", reason)
        else:
            record = OpenRecord(self.proxy.next_number(), target or Target("", 0), method, self._loop.time())
            await self._report_end(record, "refused", reason)
        await self.session.refusals.wait()

    async def _report_end(self, record: OpenRecord, verdict: str, reason: str) -> None:
        """Report the end of a request, also if the connection is cut; wait for the server as long as it takes."""
        self.deadline = math.inf
        fields = self._fields(record, verdict=verdict, reason=reason)
        await asyncio.shield(self.proxy.report("end", record.number, fields))

    def check_upload(self, size: int) -> None:
        """Raise `Refused` if the session may not send that much more."""
        limit = self.session.access.max_upload_bytes
        if (limit is not None and self.session.uploaded_bytes + size > limit) or limit == 0:
            raise Refused(f"the session may send {limit} bytes in all (max_upload_bytes); ask for a higher limit")

    def count_sent(self, size: int) -> None:
        """Count bytes that are about to be sent to the host."""
        self.check_upload(size)
        self.session.uploaded_bytes += size
        if self.record is not None:
            self.record.bytes_sent += size
        self.allow_seconds(IDLE_SECONDS)

    def count_received(self, size: int) -> None:
        """Count bytes that came from the host."""
        if self.record is not None:
            self.record.bytes_received += size
        self.allow_seconds(IDLE_SECONDS)

    def _fields(self, record: OpenRecord, **fields: str) -> dict[str, object]:
        target = record.target
        return {
            "session_id": self.session.session_id,
            "host": str(target.host),
            "port": target.port,
            "method": record.method[:20],
            "path": target.path[:_MAX_RECORDED_PATH],
            "bytes_sent": record.bytes_sent,
            "bytes_received": record.bytes_received,
            "seconds": round(self._loop.time() - record.started_at, 6),
            "secrets": [secret.name for secret in record.secrets],
            **{name: text[:_MAX_RECORDED_PATH] for name, text in fields.items()},
        }

    async def _run(self) -> None:
        reason, verdict = "", "failed"
        try:
            self._client.received = await self._client.receive()
            if self._client.received[0:1] == bytes([socks.VERSION]):
                await self._serve_socks()
            elif self._client.received:
                await self._serve_http()
        except (Refused, HelloError) as error:
            reason, verdict = str(error), "refused"
        except (Unreachable, OSError, ValueError, asyncio.IncompleteReadError) as error:
            reason = str(error) or type(error).__name__
        except asyncio.CancelledError:
            reason = self.cut_reason
            if not reason:
                raise
        except Exception as error:  # a defect of ours must not pass without a record either
            _log.exception("a connection of session %s failed", self.session.session_id)
            reason = f"the proxy failed ({type(error).__name__})"
        else:
            verdict = "allowed"
        finally:
            self._is_ending = True
            if self._upstream_socket is not None:
                self._upstream_socket.close()
            self._client.sock.close()
            self.proxy.release(self)
        if self.record is not None:
            await self.report_end(verdict, reason)
        elif verdict == "refused":
            await self.refuse(None, reason)

    async def _serve_http(self) -> None:
        client = HttpPeer(h11.SERVER, self._client)
        try:
            request = await client.next_event()
        except h11.RemoteProtocolError as error:
            await self.refuse(None, f"the request is not HTTP as it must be: {error}")
            await client.answer(400, f"the request is not HTTP as it must be: {error}")
            return
        if not isinstance(request, h11.Request):
            return
        if request.method != b"CONNECT":
            await HttpExchange(self, client).serve(request)
            return
        target: Target | None = None
        try:
            host, port = parse_authority(request.target.decode("ascii", "replace"))
            target = Target(host, port)
            stream = await self._open_tunnel(target, "CONNECT")
        except (Refused, RuleError) as error:
            await self.refuse(target, str(error), "CONNECT")
            await client.answer(403, str(error))
            await client.drain()
        except Unreachable as error:
            await self.report_end("failed", str(error))
            await client.answer(502, str(error))
            await client.drain()
        else:
            while not isinstance(await client.next_event(), (h11.EndOfMessage, type(h11.PAUSED))):
                pass  # h11 has no body after CONNECT
            await client.send(h11.Response(status_code=200, headers=[], reason="Connection established"))
            self._client.received = client.state.trailing_data[0]
            await self._serve_tunnel(target, stream)

    async def _serve_socks(self) -> None:
        request = await negotiate_socks_request(self._read, self._client.send)
        if request is None:
            return
        target: Target | None = None
        try:
            target = Target(parse_host(request.host), request.port)
            if request.command != socks.CONNECT:
                raise Refused("SOCKS is for connections only; neither UDP nor listening is possible")
            stream = await self._open_tunnel(target, "SOCKS")
        except (Refused, RuleError) as error:
            await self.refuse(target, str(error), "SOCKS")
            await self._client.send(make_socks_reply(socks.REFUSED))
        except Unreachable as error:
            await self.report_end("failed", str(error))
            await self._client.send(make_socks_reply(socks.UNREACHABLE))
        else:
            await self._client.send(make_socks_reply(socks.CONNECTED))
            await self._serve_tunnel(target, stream)

    async def _open_tunnel(self, target: Target, method: str) -> SocketStream | None:
        """Connect to a host for a tunnel; return None if each request in it will be decided and connected alone."""
        if decide(self.session.access, target).must_terminate_tls or target.port == 80:
            await self.session.requests.wait()
            verdict = decide(self.session.access, target)
            if not verdict.is_allowed:
                raise Refused(verdict.reason)
            return None
        await self.authorize(target, method)
        stream = await self.proxy.upstream.open_tunnel(self.session.access, target)
        self._upstream_socket = stream.sock
        return stream

    async def _serve_tunnel(self, target: Target, upstream: SocketStream | None) -> None:
        self.allow_seconds(HEAD_SECONDS)
        if upstream is not None:
            self.allow_seconds(IDLE_SECONDS if target.port != 443 else HEAD_SECONDS)
            download = copy_sockets(upstream, self._client, self.count_received)
            with suppress(ConnectionError):  # many programs end a tunnel by a reset
                await run_both(self._send_checked(target, upstream), download)
        elif await self._peek() == HANDSHAKE and target.port != 80:
            await self._serve_terminated(target)
        elif target.port == 443:
            raise Refused(f"a tunnel to port 443 of {target.host} must begin with TLS")
        else:
            base = Target(target.host, target.port, "http")
            await HttpExchange(self, HttpPeer(h11.SERVER, self._client), base).serve()

    async def _serve_terminated(self, target: Target) -> None:
        tls = TlsStream(self._client, self.proxy.authority.context_for(str(target.host)))
        try:
            await tls.handshake()
        except ssl.SSLError as error:
            reason = (
                "the server name is not the host"
                if "CALLBACK" in str(error)
                else ("the program ended TLS; it may pin certificates, or not trust the server's certificate authority")
            )
            await self.refuse(target, f"TLS with {target.host}: {reason} ({error.reason})")
            return
        await HttpExchange(self, HttpPeer(h11.SERVER, tls), Target(target.host, target.port, "https")).serve()

    async def _send_checked(self, target: Target, upstream: SocketStream) -> None:
        """Send what the program sends. If it begins with TLS, the server name must be the host."""
        first = await self._peek()
        if first == HANDSHAKE and isinstance(target.host, str):
            try:
                await self._check_hello(target.host)
            except (HelloError, Refused):
                await self._client.send(_TLS_ALERT)
                raise
        elif target.port == 443 and first is not None and first != HANDSHAKE:
            raise Refused(f"a tunnel to port 443 of {target.host} must begin with TLS")
        await copy_sockets(self._client, upstream, self.count_sent)

    async def _check_hello(self, host: str) -> None:
        while (hello := parse_client_hello(self._client.received)) is None:
            await self._read_more()
        if hello.is_encrypted:
            raise Refused(f"TLS to {host} has an encrypted server name (ECH), which cannot be checked; switch it off")
        if hello.server_name != host:
            named = (hello.server_name or "no server")[:80]
            raise Refused(f"TLS names {named!r}, and the tunnel is for {host}")

    async def _peek(self) -> int | None:
        """Return the next byte without taking it; None at the end."""
        if not self._client.received:
            self._client.received = await self._client.receive()
        return self._client.received[0] if self._client.received else None

    async def _read(self, size: int) -> bytes:
        while len(self._client.received) < size:
            await self._read_more()
        data, self._client.received = self._client.received[:size], self._client.received[size:]
        return data

    async def _read_more(self) -> None:
        received, self._client.received = self._client.received, b""
        data = await self._client.receive()
        self._client.received = received + data
        if not data:
            raise ConnectionError("the program ended the connection early")
