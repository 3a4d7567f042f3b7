"""Messages between the server and its egress proxy: JSON, with descriptors beside it, over a SOCK_SEQPACKET socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .access_decision import NetworkAccess, NetworkSecret, RuleSet
from .rules import parse_rule

#: A packet must fit into the socket's buffer as it is by default (208 KiB).
MAX_MESSAGE_BYTES = 160 * 1024
_MAX_DESCRIPTORS = 4


class MessageTooLong(ValueError):
    """A message that does not fit into a packet, such as rules that are too many."""


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """Record of a request by a session: allowed, refused or failed.

    Parameters
    ----------
    session_id : str
        The session.
    host : str
        Host that was asked for; empty if the request could not be read.
    port : int
        Its port; 0 if the request could not be read.
    method : str
        Method, where the proxy reads requests; ``CONNECT`` or ``SOCKS`` for a tunnel.
    path : str
        Canonical path without its query, where the proxy reads requests.
    rule : str
        Rule that allowed it.
    verdict : str
        ``allowed``, ``refused``, or ``failed`` for an allowed one that the proxy could not carry out to its end.
    reason : str
        Why it was refused or failed.
    bytes_sent, bytes_received : int
        Bytes to and from the host.
    seconds : float
        Time from its beginning to its end.
    secrets : sequence of str
        Names of the secrets that the proxy added.
    """

    session_id: str
    host: str = ""
    port: int = 0
    method: str = ""
    path: str = ""
    rule: str = ""
    verdict: str = "refused"
    reason: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    secrets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Settings of the egress proxy that all sessions share.

    Parameters
    ----------
    hosts : mapping of str to sequence of str
        Addresses of host names, as in ``/etc/hosts``. They may be private.
    upstream_proxy : str
        URL of the proxy through which everything goes, such as ``http://user:password@proxy.example.com:3128``.
    ca_file : str
        Certificate authorities that the proxy trusts in addition to the system's, in PEM.
    """

    hosts: Mapping[str, list[str]] = field(default_factory=dict)
    upstream_proxy: str = field(default="", repr=False)
    ca_file: str = ""


def access_to_json(access: NetworkAccess) -> dict[str, Any]:
    """Return the rules of a session as plain values."""
    return {
        "rule_sets": [[each.policy, [rule.text for rule in each.rules]] for each in access.rule_sets],
        "max_upload_bytes": access.max_upload_bytes,
        "secrets": [asdict(secret) for secret in access.secrets],
    }


def access_from_json(plain: dict[str, Any]) -> NetworkAccess:
    """Return the rules of a session from plain values."""
    return NetworkAccess(
        tuple(RuleSet(policy, tuple(map(parse_rule, texts))) for policy, texts in plain["rule_sets"]),
        plain["max_upload_bytes"],
        tuple(NetworkSecret(**{**each, "hosts": tuple(each["hosts"])}) for each in plain["secrets"]),
    )


class ControlSocket:
    """One end of the control connection, in an event loop.

    Parameters
    ----------
    sock : socket.socket
        A SOCK_SEQPACKET socket; closed by `close`.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()

    async def send(self, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Send a message; wait while the other side has not read what was sent before.

        Raises
        ------
        MessageTooLong
            If it does not fit into a packet.
        OSError
            If the other side has ended.
        """
        packet = json.dumps(message).encode()
        if len(packet) > MAX_MESSAGE_BYTES:
            raise MessageTooLong(
                f"a message has {len(packet)} bytes; the limit is {MAX_MESSAGE_BYTES}; use fewer rules"
            )
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._sock, [packet], list(descriptors))
                except BlockingIOError:
                    await until_ready(self._loop.add_writer, self._loop.remove_writer, self._sock)
                else:
                    return

    async def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message and the descriptors beside it; None if the other side has ended."""
        while True:
            try:
                packet, descriptors, _, _ = socket.recv_fds(self._sock, MAX_MESSAGE_BYTES, _MAX_DESCRIPTORS)
            except BlockingIOError:
                await until_ready(self._loop.add_reader, self._loop.remove_reader, self._sock)
            except ConnectionError:
                return None
            else:
                await asyncio.sleep(0)  # other tasks have their turn, also if there is always more
                return (json.loads(packet), descriptors) if packet else None

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


async def until_ready(add: Any, remove: Any, sock: socket.socket) -> None:
    """Wait until the event loop reports a socket as readable, or as writable."""
    ready = asyncio.get_running_loop().create_future()
    add(sock, _set_ready, ready)
    try:
        await ready
    finally:
        remove(sock)


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
