"""The proxy's process: its rights and limits, its end with the server, and its restart under load."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from jupyter_exec_ext.isolation.network import client_connection, proxy_launch, proxy_supervisor
from jupyter_exec_ext.isolation.network.certificates import CertificateAuthority
from jupyter_exec_ext.isolation.network.control_messages import (
    ControlSocket,
    MessageTooLong,
    ProxySettings,
    access_to_json,
)
from jupyter_exec_ext.isolation.network.proxy_process import MAX_DATA_BYTES, Proxy
from jupyter_exec_ext.isolation.network.proxy_supervisor import ProxySupervisor, ProxyUnavailable
from jupyter_exec_ext.isolation.network.rules import RuleError
from jupyter_exec_ext.isolation.network.trusted_certificates import TRUST_VARIABLES, make_trust
from jupyter_exec_ext.isolation.network.upstream import Upstream
from tests.support.full import IS_FULL, scaled
from tests.support.waiting import until, wait_until

from .servers import World, access_of, curl, exchange, listen

RESTART_SECONDS = 1.0
MAX_RSS_BYTES = 100 << 20


def request_of(host: str, port: int) -> bytes:
    return f"GET http://{host}:{port}/{host} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()


async def test_process_starts_with_the_first_session_and_ends_with_stop(world: World) -> None:
    assert world.proxy.pid is None
    await world.open(access_of("a.test"))
    pid = world.proxy.pid
    assert pid is not None
    await world.proxy.stop()
    assert not psutil.pid_exists(pid)


async def test_process_has_few_rights_and_limits(world: World) -> None:
    await world.open(access_of("a.test"))
    assert world.proxy.pid is not None
    status = " ".join(Path(f"/proc/{world.proxy.pid}/status").read_text().split())
    limits = " ".join(Path(f"/proc/{world.proxy.pid}/limits").read_text().split())
    assert "NoNewPrivs: 1" in status
    assert "Max core file size 0 0" in limits and f"Max data size {MAX_DATA_BYTES} {MAX_DATA_BYTES}" in limits
    process = psutil.Process(world.proxy.pid)
    if os.geteuid() == 0:
        assert 0 not in process.uids() and "CapEff: 0000000000000000" in status and "Groups: NStgid" in status
        assert process.environ().keys() <= {"LC_ALL", "MALLOC_ARENA_MAX", *TRUST_VARIABLES}
    assert process.memory_info().rss < MAX_RSS_BYTES


def test_process_ends_with_a_server_that_is_killed() -> None:
    program = """if True:
        import asyncio, socket
        from jupyter_exec_ext.isolation.network.control_messages import ProxySettings
        from jupyter_exec_ext.isolation.network.proxy_supervisor import ProxySupervisor
        async def main():
            proxy = ProxySupervisor(ProxySettings(), print)
            await proxy.certificate()
            print(proxy.pid, flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert psutil.pid_exists(pid)
        server.kill()
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def test_certificate_stays_the_same_after_a_restart(world: World) -> None:
    before = await world.proxy.certificate()
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    await until(lambda: world.proxy.pid is None)
    assert await world.proxy.certificate() == before


async def test_killed_under_load_it_fails_closed_and_is_back_soon(world: World) -> None:
    access = access_of(f"a.test:{world.http}")
    proxies = [await world.open(access, f"s{number}") for number in range(4)]
    stopping = asyncio.Event()
    answered: list[bytes] = []

    async def load(proxy: str, host: str) -> None:
        request = (
            f"GET http://{host}:{world.http}/{host} HTTP/1.1\r\nHost: {host}:{world.http}\r\nConnection: close\r\n\r\n"
        )
        while not stopping.is_set():
            answered.append(await exchange(proxy, request.encode()))

    loads = [asyncio.create_task(load(proxy, host)) for proxy in proxies for host in ("a.test", "b.test")]
    seconds: list[float] = []
    loop = asyncio.get_running_loop()
    request = request_of("a.test", world.http)
    try:
        for _ in range(scaled(100, per_commit=3)):
            pid, count = world.proxy.pid, len(answered)
            await until(lambda count=count: len(answered) > count + 5)  # type: ignore[misc]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed_at = loop.time()
            await until(lambda pid=pid: world.proxy.pid != pid)  # type: ignore[misc]
            while not (await exchange(proxies[0], request)).startswith(b"HTTP/1.1 200"):
                assert loop.time() < killed_at + 30
            seconds.append(loop.time() - killed_at)
            await world.proxy.certificate()
    finally:
        stopping.set()
        await asyncio.gather(*loads)
    print(f"back after {statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (maximum)")
    assert {request[1] for request in world.seen.requests} == {"/a.test"}
    assert all(answer[:12] in (b"", b"HTTP/1.1 200", b"HTTP/1.1 403") for answer in answered)
    if IS_FULL:
        assert sorted(seconds)[int(len(seconds) * 0.95)] <= RESTART_SECONDS
    reasons = {record.reason for record in world.records if record.verdict == "failed"}
    assert reasons <= {"the egress proxy has ended"}


async def test_request_that_was_open_at_a_kill_is_on_record_and_its_connection_ends(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
    writer.write(f"CONNECT a.test:{world.http} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    record = await world.record()
    assert (record.verdict, record.reason, record.rule) == (
        "failed",
        "the egress proxy has ended",
        f"a.test:{world.http}",
    )
    writer.close()


async def test_rules_changed_while_it_is_down_hold_when_it_is_back(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    await world.proxy.change("s1", access_of(f"b.test:{world.http}"))
    assert "does not allow" in (await curl(proxy, f"http://a.test:{world.http}/"))[1]
    assert (await curl(proxy, f"http://b.test:{world.http}/"))[1] == "GET / 0\n"


async def test_upload_limit_holds_over_a_restart(world: World) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}", upload=30_000))
    await curl(proxy, f"http://a.test:{world.http}/", "-d", "x" * 20_000)
    await world.record()
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    await until(lambda: world.proxy.pid is None)
    assert "max_upload_bytes" in (await curl(proxy, f"http://a.test:{world.http}/", "-d", "x" * 20_000))[1]


async def test_many_sessions_at_once_stay_within_the_memory(world: World) -> None:
    access = access_of(f"a.test:{world.https}", f"https://b.test:{world.https}/*")
    trust = await world.trusted()
    count = scaled(200, per_commit=10)
    proxies = [await world.open(access, f"s{number}") for number in range(count)]
    contexts = {"b.test": ssl.create_default_context(cafile=trust)}
    contexts["a.test"] = ssl.create_default_context(cafile=str(world.authority))

    async def use(client: aiohttp.ClientSession, proxy: str, host: str) -> None:
        url = f"https://{host}:{world.https}/large?size=2000000"
        async with client.get(url, proxy=proxy, ssl=contexts[host]) as response:
            assert response.status == 200
            begun.append(proxy)
            await until(lambda: len(begun) == 2 * count)  # all are open before one goes on
            assert sum([len(data) async for data in response.content.iter_chunked(65536)]) == 2_000_000

    begun: list[str] = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=4096) as client:
        await asyncio.gather(*(use(client, proxy, host) for proxy in proxies for host in contexts))
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{world.proxy.pid}/status").read_text())
    print(f"{int(peak) / 1024:.0f} MiB with {count} sessions, two large answers open in each")
    assert int(peak) * 1024 <= MAX_RSS_BYTES


async def test_session_whose_kernel_restarts_while_sessions_are_handed_over_keeps_no_other_from_the_network(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, send = access_of(f"a.test:{world.http}"), world.proxy._send_session
    proxies = {name: await world.open(access, name) for name in ("s1", "s2")}

    async def restart_other(control: ControlSocket, session_id: str, session: Any) -> None:
        monkeypatch.setattr(world.proxy, "_send_session", send)
        await world.proxy.close("s2")
        opening.append(asyncio.create_task(world.open(access, "s2")))
        await asyncio.sleep(0)
        await send(control, session_id, session)

    opening: list[asyncio.Task[str]] = []
    monkeypatch.setattr(world.proxy, "_send_session", restart_other)
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    await until(lambda: bool(opening))
    proxies["s2"] = await opening[0]
    for proxy in proxies.values():
        assert (await curl(proxy, f"http://a.test:{world.http}/"))[1] == "GET / 0\n"


async def test_session_that_cannot_be_handed_over_ends_the_process_and_is_handed_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, send = await world.open(access_of(f"a.test:{world.http}")), world.proxy._send_session

    async def fail_once(*_: Any) -> None:
        monkeypatch.setattr(world.proxy, "_send_session", send)
        raise OSError("no room")

    monkeypatch.setattr(world.proxy, "_send_session", fail_once)
    assert world.proxy.pid is not None
    os.kill(world.proxy.pid, signal.SIGKILL)
    assert (await curl(proxy, f"http://a.test:{world.http}/"))[1] == "GET / 0\n"


async def test_process_that_does_not_answer_is_ended_and_another_one_serves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    monkeypatch.setattr(proxy_supervisor, "_ANSWER_SECONDS", 0.2)
    stopped = world.proxy.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    await world.proxy.close("s1")
    await until(lambda: world.proxy.pid not in (None, stopped))
    monkeypatch.setattr(proxy_supervisor, "_ANSWER_SECONDS", 20)
    proxy = await world.open(access_of(f"a.test:{world.http}"))
    assert (await curl(proxy, f"http://a.test:{world.http}/"))[1] == "GET / 0\n"


async def test_session_opened_while_no_process_starts_is_served_by_the_first_that_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = proxy_launch._PROGRAM
    monkeypatch.setattr(proxy_launch, "_PROGRAM", "raise SystemExit(3)")
    monkeypatch.setattr(proxy_supervisor, "_OPEN_SECONDS", 0.2)
    with listen() as listener:
        with pytest.raises(ProxyUnavailable):
            await world.proxy.open("s1", listener, access_of(f"a.test:{world.http}"))
        monkeypatch.setattr(proxy_launch, "_PROGRAM", program)
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert (await curl(proxy, f"http://a.test:{world.http}/"))[1] == "GET / 0\n"


async def test_rules_that_are_too_many_are_refused_with_the_reason(world: World) -> None:
    rules = [f"https://a{number}.test/{'x' * 400}/*" for number in range(490)]
    with pytest.raises(MessageTooLong, match="use fewer rules"):
        await world.open(access_of(*rules))
    await world.open(access_of("a.test"))


async def test_process_that_does_not_start_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy_launch, "_PROGRAM", "raise SystemExit(3)")
    monkeypatch.setattr(proxy_supervisor, "_OPEN_SECONDS", 0.5)
    proxy = ProxySupervisor(ProxySettings(), lambda request: None)
    with listen() as listener, pytest.raises(ProxyUnavailable, match="log has the reason"):
        await proxy.open("s1", listener, access_of("a.test"))
    await proxy.stop()
    assert "could not be started" in caplog.text


def test_missing_library_and_wrong_upstream_are_named_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://u:hidden@p.test", "p.test:3128", "http://u:hidden@p_.-:1", "http://u:hidden@p.test:x"):
        with pytest.raises(RuleError) as caught:
            ProxySupervisor(ProxySettings(upstream_proxy=url), print)
        assert "hidden" not in str(caught.value)
    monkeypatch.setattr(proxy_supervisor, "missing_libraries", lambda: ["h11"])
    with pytest.raises(ProxyUnavailable, match=r"jupyter-exec-ext\[network\]"):
        ProxySupervisor(ProxySettings(), print)


async def test_server_that_does_not_read_stops_requests_that_would_have_no_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "BEGIN_SECONDS", 0.2)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    settings = ProxySettings(hosts={"a.test": ["127.0.0.1"]})
    control = ControlSocket(theirs)
    proxy = Proxy(control, Upstream(settings), CertificateAuthority(), make_trust())
    serving = asyncio.create_task(proxy.serve())
    server = ControlSocket(ours)
    listener = listen()
    fields = {"session_id": "s1", "access": access_to_json(access_of(f"a.test:{world.http}")), "uploaded_bytes": 0}
    await server.send({"op": "open", "id": 1, **fields}, (listener.fileno(),))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    request = request_of("a.test", world.http)
    for _ in range(2000):
        answering = asyncio.create_task(exchange(url, request))
        done, _ = await asyncio.wait({answering}, timeout=2)
        if not done:
            break
    assert not done, "requests went on without records"
    begun, refused = 0, ""
    while not refused:
        received = await server.receive()
        assert received is not None
        begun += received[0]["op"] == "begin"
        refused = received[0].get("request", {}).get("reason", "")
    assert len(world.seen.requests) == begun
    assert "does not keep up" in refused
    assert b" 403 the server does not keep up" in await answering
    await server.send({"op": "close", "id": 2, "session_id": "s1"})
    while received is not None and received[0].get("id") != 2:
        received = await server.receive()
    server.close()
    listener.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    control.close()
