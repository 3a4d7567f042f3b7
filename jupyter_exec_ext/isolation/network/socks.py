"""SOCKS5 (RFC 1928) on the proxy's side: CONNECT only, without a password."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address

from .upstream import Refused

#: Version, which is the first byte of a connection.
VERSION = 5
#: Codes of replies (RFC 1928, section 6).
CONNECTED, REFUSED, UNREACHABLE = 0, 2, 4
CONNECT = 1
_WITHOUT_PASSWORD, _NO_METHOD = 0, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4


@dataclass(frozen=True)
class SocksRequest:
    """Request of a program for a connection.

    Parameters
    ----------
    command : int
        `CONNECT`, or another one, which is refused.
    host : str
        A name or an address.
    port : int
        The port.
    """

    command: int
    host: str
    port: int


async def negotiate_socks_request(
    read: Callable[[int], Awaitable[bytes]], send: Callable[[bytes], Awaitable[None]]
) -> SocksRequest | None:
    """Agree on the method with a program, and read its request.

    Parameters
    ----------
    read : callable
        Reads exactly so many bytes of the program.
    send : callable
        Sends bytes to it.

    Returns
    -------
    SocksRequest or None
        None if the program insists on a password.

    Raises
    ------
    Refused
        If the address is of an unknown kind.
    """
    methods = await read((await read(2))[1])
    if _WITHOUT_PASSWORD not in methods:
        await send(bytes([VERSION, _NO_METHOD]))
        return None
    await send(bytes([VERSION, _WITHOUT_PASSWORD]))
    _, command, _, kind = await read(4)
    if kind == _NAME:
        host = (await read((await read(1))[0])).decode("ascii", "replace")
    elif kind in (_IPV4, _IPV6):
        host = str(ip_address(await read(4 if kind == _IPV4 else 16)))
    else:
        raise Refused("the SOCKS request has an address of an unknown kind")
    return SocksRequest(command, host, int.from_bytes(await read(2), "big"))


def make_socks_reply(code: int) -> bytes:
    """Return the reply to a request, with a code such as `REFUSED`."""
    return bytes([VERSION, code, 0, _IPV4, 0, 0, 0, 0, 0, 0])
