"""Allowed requests through the proxy's process: HTTP, tunnels, SOCKS, terminated TLS, WebSocket, limits."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from .servers import NAMES, World, access_of, curl, exchange, listen, make_application, make_world, start


async def test_plain_http_is_one_decision_and_record_for_each_request(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}", f"GET http://b.test:{world.http}/ok/*"))
    code, text = await curl(
        proxy, f"http://a.test:{world.http}/1", f"http://b.test:{world.http}/ok/2", f"http://b.test:{world.http}/no"
    )
    assert code == 0
    assert "GET /1 0\nGET /ok/2 0\npolicy 'agents' does not allow GET http://b.test" in text
    last = await world.record(3)
    assert [record.verdict for record in world.records] == ["allowed", "allowed", "refused"]
    assert (last.session_id, last.host, last.port, last.method, last.path) == ("s1", "b.test", world.http, "GET", "/no")
    assert world.records[0].rule == f"a.test:{world.http}" and world.records[0].bytes_received == 9


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
async def test_tunnel_passes_tls_unread(world: World, scheme: str) -> None:
    proxy = (await world.open(access_of(f"a.test:{world.https}"))).replace("http", scheme)
    url = f"https://a.test:{world.https}"
    code, text = await curl(proxy, "--cacert", str(world.authority), f"{url}/x", "-d", "x" * 5000)
    assert (code, text) == (0, "POST /x 5000\n")
    record = await world.record()
    assert (record.verdict, record.method) == ("allowed", "CONNECT" if scheme == "http" else "SOCKS")
    assert record.bytes_sent > 5000 and record.bytes_received > 1000 and record.seconds > 0


async def test_path_rule_terminates_tls_and_reads_each_request(world: World) -> None:
    proxy = await world.open(access_of(f"GET https://a.test:{world.https}/v1/*"))
    url, trust = f"https://a.test:{world.https}", ["--cacert", await world.trusted()]
    code, text = await curl(proxy, *trust, "--path-as-is", f"{url}/v1/a/../b?q=1", f"{url}//v1//%62", f"{url}/v2")
    assert code == 0
    assert text.startswith("GET /v1/b?q=1 0\nGET /v1/b 0\npolicy 'agents' does not allow GET https://a.test")
    code, text = await curl(proxy, *trust, "-X", "POST", f"{url}/v1/a")
    assert "does not allow POST" in text
    code, text = await curl(proxy, *trust, "--path-as-is", f"{url}/v1/..%2fadmin")
    assert "the path hides dot segments" in text
    assert [request[1] for request in world.seen.requests] == ["/v1/b?q=1", "/v1/b"]
    await world.record(5)


async def test_client_that_does_not_trust_the_authority_fails_with_a_reason(world: World) -> None:
    proxy = await world.open(access_of(f"https://a.test:{world.https}/*"))
    code, _ = await curl(proxy, "--cacert", str(world.authority), f"https://a.test:{world.https}/")
    assert code == 60
    assert "may pin certificates" in (await world.record()).reason


async def test_host_with_an_untrusted_certificate_is_not_reached_by_termination(tmp_path: Path) -> None:
    async with make_world(tmp_path, ca_file="") as world:
        proxy = await world.open(access_of(f"https://a.test:{world.https}/*"))
        _, text = await curl(proxy, "--cacert", await world.trusted(), f"https://a.test:{world.https}/")
        assert "certificate verify failed" in text
        assert (await world.record()).verdict == "failed"
        assert not world.seen.requests


@pytest.mark.parametrize("rule", ["a.test:{}", "https://a.test:{}/*"])
async def test_websocket_works_through_a_tunnel_and_terminated(world: World, rule: str) -> None:
    proxy = await world.open(access_of(rule.format(world.https)))
    trust = ssl.create_default_context(cafile=await world.trusted() if "*" in rule else str(world.authority))
    async with aiohttp.ClientSession() as session:
        url = f"wss://a.test:{world.https}/ws"
        async with session.ws_connect(url, proxy=proxy, ssl=trust) as socket:
            for text in ("one", "x" * 200_000):
                await socket.send_str(text)
                assert await socket.receive_str() == text
    record = await world.record()
    assert record.verdict == "allowed" and record.bytes_sent > 200_000 and record.bytes_received > 200_000


async def test_websocket_over_plain_http(world: World) -> None:
    proxy = await world.open(access_of(f"http://a.test:{world.http}/ws"))
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET http://a.test:{world.http}/ws HTTP/1.1\r\nHost: a.test:{world.http}\r\nConnection: Upgrade\r\n"
    head += f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    frame = b"\x81\x82\0\0\0\0hi" + b"\x88\x80\0\0\0\0"
    answer = await exchange(proxy, head.encode() + frame)
    assert answer.startswith(b"HTTP/1.1 101") and b"\x81\x02hi" in answer


async def test_bodies_of_any_form_arrive_whole(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}", f"https://a.test:{world.https}/*"))
    trust = ssl.create_default_context(cafile=await world.trusted())

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 10_000

    async with aiohttp.ClientSession() as session:
        for url in (f"http://a.test:{world.http}", f"https://a.test:{world.https}"):
            async with session.post(f"{url}/x", data=pieces(), proxy=proxy, ssl=trust, expect100=True) as response:
                assert await response.text() == "POST /x 500000\n"
            async with session.get(f"{url}/large?size=5000000", proxy=proxy, ssl=trust) as response:
                assert len(await response.read()) == 5_000_000
            async with session.head(f"{url}/large?size=5000000", proxy=proxy, ssl=trust) as response:
                assert response.headers["Content-Length"] == "5000000"


async def test_name_with_only_an_ipv6_address_is_reached(world: World, tmp_path: Path) -> None:
    end = await start(make_application(world.seen), sock := listen("::1"))
    async with make_world(tmp_path, hosts={"a.test": ["::1"]}) as other:
        port = sock.getsockname()[1]
        proxy = await other.open(access_of(f"a.test:{port}"))
        assert await curl(proxy, f"http://a.test:{port}/x") == (0, "GET /x 0\n")
    await end()


async def test_next_address_is_tried_when_one_does_not_answer(tmp_path: Path) -> None:
    async with make_world(tmp_path, hosts={"a.test": ["::1", "127.0.0.2", "127.0.0.1"]}) as world:
        proxy = await world.open(access_of(f"a.test:{world.http}"))
        assert await curl(proxy, f"http://a.test:{world.http}/x") == (0, "GET /x 0\n")


async def test_host_that_does_not_answer_is_a_failed_request(world: World) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
    proxy = await world.open(access_of(f"a.test:{port}"))
    _, text = await curl(proxy, f"http://a.test:{port}/x")
    assert text == f"a.test:{port} does not accept connections\n"
    assert (await world.record()).verdict == "failed"


async def test_upload_limit_counts_all_requests_of_a_session(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}", upload=30_000))
    url = f"http://a.test:{world.http}/x"
    assert (await curl(proxy, url, "-d", "x" * 20_000))[1] == "POST /x 20000\n"
    assert "max_upload_bytes" in (await curl(proxy, url, "-d", "x" * 20_000))[1]
    await curl(proxy, "-p", url, "-d", "x" * 20_000)
    assert (await world.record(3)).verdict == "refused"
    assert sum(record.bytes_sent for record in world.records) <= 30_000
    assert len(world.seen.requests) == 1


async def test_change_of_rules_cuts_what_they_do_not_allow_any_more(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
    writer.write(f"CONNECT a.test:{world.http} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await world.proxy.change("s1", access_of(f"a.test:{world.http}", "b.test"))
    writer.write(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await world.proxy.change("s1", access_of("b.test"))
    await reader.read()
    writer.close()
    assert "rules or secrets of the session have changed" in (await world.record()).reason


async def test_close_ends_connections_with_a_record_and_frees_the_port(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port := int(proxy.rpartition(":")[2]))
    writer.write(f"CONNECT a.test:{world.http} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await world.proxy.close("s1")
    assert [record.reason for record in world.records] == ["the session has ended"]
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_sessions_have_their_own_rules(world: World) -> None:
    first = await world.open(access_of(f"a.test:{world.http}"), "s1")
    second = await world.open(access_of(f"b.test:{world.http}"), "s2")
    url = f"http://a.test:{world.http}/x"
    assert (await curl(first, url))[1] == "GET /x 0\n"
    assert "does not allow" in (await curl(second, url))[1]


async def test_more_connections_than_a_session_may_have_wait_and_other_sessions_go_on(world: World) -> None:
    first = await world.open(access_of(f"a.test:{world.http}"), "s1")
    second = await world.open(access_of(f"a.test:{world.http}"), "s2")
    port = int(first.rpartition(":")[2])
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
    assert (await curl(second, f"http://a.test:{world.http}/x"))[0] == 0
    for _, writer in idle:
        writer.close()
    assert (await curl(first, f"http://a.test:{world.http}/x"))[0] == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_upstream_proxy_is_asked_with_its_credentials(tmp_path: Path, scheme: str) -> None:
    """The proxy under test stands behind another one of its kind, before which a relay notes the credentials."""
    async with make_world(tmp_path) as corporate:
        port = corporate.http if scheme == "http" else corporate.https
        inner = await corporate.open(access_of(*(f"{name}:{port}" for name in NAMES)), "upstream")
        heads: list[bytes] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            inside, outside = await asyncio.open_connection("127.0.0.1", int(inner.rpartition(":")[2]))
            outside.write(head)

            async def copy(source: asyncio.StreamReader, destination: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    destination.write(data)
                destination.close()

            await asyncio.gather(copy(reader, outside), copy(inside, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[1]
        url = f"http://user:pass%21word@127.0.0.1:{address}"
        (inside := tmp_path / "inside").mkdir()
        async with make_world(inside, hosts={}, upstream_proxy=url) as world:
            proxy = await world.open(access_of(f"a.test:{port}"))
            code, text = await curl(
                proxy,
                "--cacert",
                str(corporate.authority),
                f"{scheme}://a.test:{port}/x",
                f"{scheme}://a.test:{port}/y",
            )
            assert (code, text) == (0, "GET /x 0\nGET /y 0\n")
            await curl(proxy, f"http://b.test:{port}/x")
            assert (await world.record(2 if scheme == "https" else 3)).verdict == "refused"
            assert "pass" not in repr(world.proxy._settings)
        server.close()
    assert heads and all(base64.b64encode(b"user:pass!word") in head for head in heads)
    assert not any(b"b.test" in head for head in heads)
