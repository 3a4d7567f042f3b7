"""Connections to hosts: a name is resolved once, and only those of its addresses that pass the check are used."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from .access_decision import NetworkAccess, Target, decide_address
from .addresses import Address
from .control_messages import ProxySettings
from .rules import Host, RuleError, parse_host
from .streams import SocketStream
from .timeouts import finish_within

LOOKUP_SECONDS = 10.0
CONNECT_SECONDS = 5.0
_MAX_ADDRESSES = 8
_MAX_ANSWER_BYTES = 16 * 1024
_DEFAULT_PROXY_PORT = 3128

Lookup = Callable[[str], Awaitable[Sequence[Address]]]


class Refused(Exception):
    """The rules do not allow a request."""


class Unreachable(Exception):
    """A request is allowed, and its host cannot be reached."""


class UpstreamProxy:
    """A proxy through which all public hosts are reached; it resolves their names.

    Parameters
    ----------
    url : str
        Its URL, with its user name and password.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            self.host, self.port = parse_host(parts.hostname or ""), parts.port or _DEFAULT_PROXY_PORT
        except ValueError:
            parts = parts._replace(scheme="")
        if parts.scheme != "http":  # without the URL in the message: it may have a password
            raise RuleError("the upstream proxy must be written as http://host:port or http://user:password@host:port")
        self.headers: list[tuple[bytes, bytes]] = []
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.headers = [(b"Proxy-Authorization", b"Basic " + base64.b64encode(credentials))]


class Upstream:
    """Opens connections to hosts.

    Parameters
    ----------
    settings : ProxySettings
        Pinned names, and the proxy through which public hosts are reached.
    lookup : callable, optional
        Resolver of names; the system's by default.
    """

    def __init__(self, settings: ProxySettings, lookup: Lookup | None = None) -> None:
        self._pinned: Mapping[Host, list[Address]] = {
            parse_host(name): [ip_address(text) for text in addresses] for name, addresses in settings.hosts.items()
        }
        self.proxy = UpstreamProxy(settings.upstream_proxy) if settings.upstream_proxy else None
        self._lookup = lookup or look_up

    def uses_proxy(self, target: Target) -> bool:
        """Return whether a host is reached through the upstream proxy; addresses and pinned names never are."""
        return self.proxy is not None and isinstance(target.host, str) and target.host not in self._pinned

    async def connect(self, access: NetworkAccess, target: Target) -> socket.socket:
        """Return a socket to a host that the rules allow; through the upstream proxy it is one to that proxy.

        Raises
        ------
        Refused
            If all of its addresses are private or special, and the rules do not name them.
        Unreachable
            If it cannot be resolved or connected to.
        """
        if self.uses_proxy(target) and self.proxy is not None:
            return await _connect_first(await self._resolve(self.proxy.host), self.proxy.port, self.proxy.host)
        addresses = await self._resolve(target.host)
        if target.host not in self._pinned:
            reasons = [decide_address(access, address, target.port) for address in addresses]
            addresses = [address for address, reason in zip(addresses, reasons, strict=True) if not reason]
            if not addresses:
                raise Refused(f"{target.host}: {reasons[0]}")
        return await _connect_first(addresses, target.port, target.host)

    async def open_tunnel(self, access: NetworkAccess, target: Target) -> SocketStream:
        """Return a stream whose other end is the host, also through the upstream proxy."""
        stream = SocketStream(await self.connect(access, target))
        if self.proxy is not None and self.uses_proxy(target):
            try:
                stream.received = await _ask_for_tunnel(stream, self.proxy, f"{target.host}:{target.port}".encode())
            except BaseException:
                stream.sock.close()
                raise
        return stream

    async def _resolve(self, host: Host) -> list[Address]:
        if not isinstance(host, str):
            return [host]
        if host in self._pinned:
            return self._pinned[host]
        try:
            found = list(await finish_within(LOOKUP_SECONDS, self._lookup(host)))[:_MAX_ADDRESSES]
        except (OSError, UnicodeError, asyncio.TimeoutError) as error:
            raise Unreachable(f"{host} cannot be resolved") from error
        if not found:
            raise Unreachable(f"{host} has no address")
        return found


async def look_up(name: str) -> list[Address]:
    """Return the addresses of a name, from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


async def _connect_first(addresses: Sequence[Address], port: int, host: Host) -> socket.socket:
    """Return a socket to the first of some addresses that answers."""
    loop = asyncio.get_running_loop()
    problem: BaseException | None = None
    for address in addresses:
        sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await finish_within(CONNECT_SECONDS, loop.sock_connect(sock, (str(address), port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, asyncio.TimeoutError) as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise Unreachable(f"{host}:{port} does not accept connections") from problem


async def _ask_for_tunnel(stream: SocketStream, proxy: UpstreamProxy, authority: bytes) -> bytes:
    """Ask a proxy for a tunnel, and return the bytes that came after its answer."""
    headers = [(b"Host", authority), *proxy.headers]
    lines = [b"CONNECT %s HTTP/1.1" % authority, *(b"%s: %s" % each for each in headers), b"", b""]
    await stream.send(b"\r\n".join(lines))
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = await stream.receive()
        answer += data
        if not data or len(answer) > _MAX_ANSWER_BYTES:
            raise Unreachable("the upstream proxy did not answer")
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise Unreachable(f"the upstream proxy answered {b''.join(status)[:3].decode('ascii', 'replace')}")
    return rest
