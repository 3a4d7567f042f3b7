"""Reader of a TLS ClientHello: the server name in it, without any cryptography. Pure.

References
----------
RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3, RFC 9849 (encrypted ClientHello).
"""

from __future__ import annotations

from dataclasses import dataclass

HANDSHAKE = 0x16
MAX_HELLO_BYTES = 32 * 1024
_CLIENT_HELLO, _SERVER_NAME, _ENCRYPTED_HELLO, _HOST_NAME = 1, 0, 0xFE0D, 0
_MAX_RECORD_BYTES = 16 * 1024


class HelloError(ValueError):
    """Bytes that are no ClientHello, or one that cannot be checked."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The checked parts of a ClientHello.

    Parameters
    ----------
    server_name : str, optional
        Name of the server (SNI), in lower case.
    is_encrypted : bool
        Whether it has an encrypted ClientHello, which may name another server.
    """

    server_name: str | None
    is_encrypted: bool


def parse_client_hello(data: bytes) -> ClientHello | None:
    """Return the ClientHello at the beginning of a stream; None if more bytes are needed.

    Parameters
    ----------
    data : bytes
        All bytes since the beginning. The handshake message may be spread over several records.

    Returns
    -------
    ClientHello or None
        Its name, as soon as the whole message is there.

    Raises
    ------
    HelloError
        If it is something else, is malformed, or is longer than `MAX_HELLO_BYTES`.
    """
    message = b""
    position = 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        header = data[position : position + 5]
        if header[:1] not in (b"", bytes([HANDSHAKE])) or header[1:2] not in (b"", b"\x03"):
            raise HelloError("it does not begin with TLS")
        if message and message[0] != _CLIENT_HELLO:
            raise HelloError("TLS does not begin with a ClientHello")
        if len(header) < 5:
            return None
        length = int.from_bytes(header[3:], "big")
        if not 0 < length <= _MAX_RECORD_BYTES or position + length > MAX_HELLO_BYTES:
            raise HelloError("the ClientHello is too long or malformed")
        message += data[position + 5 : position + 5 + length]
        position += 5 + length
        if len(message) >= 4 and int.from_bytes(message[1:4], "big") > MAX_HELLO_BYTES:
            raise HelloError("the ClientHello is too long")
        if len(data) < position:
            return None
    if message[0] != _CLIENT_HELLO:
        raise HelloError("TLS does not begin with a ClientHello")
    return _parse_message(_Reader(message[4 : 4 + int.from_bytes(message[1:4], "big")]))


class _Reader:
    """Reads lengths and vectors from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        """True if everything was read."""
        return self._position == len(self._data)

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self._data[self._position : self._position + size]
        if len(found) < size:
            raise HelloError("the ClientHello is malformed")
        self._position += size
        return found

    def read_rest(self) -> bytes:
        """Return all that is left."""
        return self.read(len(self._data) - self._position)

    def number(self, size: int) -> int:
        """Return the next number."""
        return int.from_bytes(self.read(size), "big")

    def vector(self, length_size: int) -> _Reader:
        """Return a reader for the next bytes that have their length before them."""
        return _Reader(self.read(self.number(length_size)))


def _parse_message(reader: _Reader) -> ClientHello:
    reader.read(2 + 32)  # version and random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    names: list[str] = []
    kinds: list[int] = []
    extensions = _Reader(b"") if reader.is_at_end else reader.vector(2)
    if not reader.is_at_end:
        raise HelloError("the ClientHello is malformed")
    while not extensions.is_at_end:
        kinds.append(extensions.number(2))
        extension = extensions.vector(2)
        if kinds[-1] == _SERVER_NAME:
            names += _parse_server_names(extension)
    if len(names) > 1 or len(kinds) != len(set(kinds)):
        raise HelloError("the ClientHello has something twice")
    return ClientHello(names[0] if names else None, _ENCRYPTED_HELLO in kinds)


def _parse_server_names(extension: _Reader) -> list[str]:
    names: list[str] = []
    listed = extension.vector(2)
    while not listed.is_at_end:
        if listed.number(1) != _HOST_NAME:
            raise HelloError("the ClientHello has a server name of an unknown kind")
        try:
            names.append(listed.vector(2).read_rest().decode("ascii").lower())
        except UnicodeDecodeError as error:
            raise HelloError("the ClientHello has a server name that is not in ASCII") from error
    if not extension.is_at_end:
        raise HelloError("the ClientHello is malformed")
    return names
