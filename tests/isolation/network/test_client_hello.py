"""ClientHello: the server name in it, in any fragmentation, and bytes that are something else."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.isolation.network.client_hello import MAX_HELLO_BYTES, HelloError, parse_client_hello


@cache
def hello_of(name: str | None) -> bytes:
    """Return the bytes that Python's TLS sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def split_records(data: bytes, size: int) -> bytes:
    message = data[5:]
    pieces = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def with_extension(data: bytes, kind: int, body: bytes) -> bytes:
    """Return a ClientHello with one more extension at its end."""
    extension = kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
    position = 5 + 4 + 2 + 32
    position += 1 + data[position]
    position += 2 + int.from_bytes(data[position : position + 2], "big")
    position += 1 + data[position]
    extensions = data[position + 2 :] + extension
    body = data[9:position] + len(extensions).to_bytes(2, "big") + extensions
    message = data[5:6] + len(body).to_bytes(3, "big") + body
    return data[:3] + len(message).to_bytes(2, "big") + message


def test_name_is_found_in_the_hello_of_a_real_client() -> None:
    hello = parse_client_hello(hello_of("A.Example.com"))
    assert hello is not None
    assert (hello.server_name, hello.is_encrypted) == ("a.example.com", False)


def test_hello_without_a_name_has_none() -> None:
    hello = parse_client_hello(hello_of(None))
    assert hello is not None and hello.server_name is None


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100])
def test_name_is_found_in_a_hello_over_several_records(size: int) -> None:
    data = split_records(hello_of("a.example.com"), size)
    hello = parse_client_hello(data)
    assert hello is not None and hello.server_name == "a.example.com"


def test_hello_in_pieces_needs_more_until_it_is_whole() -> None:
    data = hello_of("a.example.com")
    for size in range(len(data)):
        assert parse_client_hello(data[:size]) is None
    assert parse_client_hello(data) == parse_client_hello(data + b"more")


def test_encrypted_hello_is_noticed() -> None:
    hello = parse_client_hello(with_extension(hello_of("a.example.com"), 0xFE0D, b"\0" * 20))
    assert hello is not None and hello.is_encrypted


def test_second_name_is_refused() -> None:
    with pytest.raises(HelloError):
        parse_client_hello(with_extension(hello_of("a.example.com"), 0, b"\0\x0e\0\0\x0bb.example.x"))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-OpenSSH",
        b"\x16\x02",
        b"\x15\x03\x01\0\x02\x02\x28",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        b"\x16\x03\x01\0\x04\x01\0\0\0",
        b"\x16\x03\x01\0\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\0\x01\x02",
        b"\x80\x2e\x01\x03\x01",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(HelloError):
        parse_client_hello(data + b"\0" * 10)


def test_hello_without_an_end_is_refused() -> None:
    endless = b"\x16\x03\x01\0\x01\x01" + b"\x16\x03\x01\0\x01\0" * MAX_HELLO_BYTES
    with pytest.raises(HelloError):
        parse_client_hello(b"\x16\x03\x01\0\x04\x01\0\xff\xff" + endless)


@given(st.data())
def test_any_change_of_a_hello_is_read_or_refused(data: st.DataObject) -> None:
    hello = bytearray(hello_of("a.example.com"))
    for _ in range(data.draw(st.integers(1, 6))):
        hello[data.draw(st.integers(0, len(hello) - 1))] = data.draw(st.integers(0, 255))
    with suppress(HelloError):  # any other exception fails the test
        parse_client_hello(bytes(hello[: data.draw(st.integers(0, len(hello)))]))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"", b"\x16\x03\x01\x01\0\x01\0\0\xf0"):
        with suppress(HelloError):
            parse_client_hello(start + data)
