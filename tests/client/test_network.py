"""The clients on a real network: TLS, broken connections, proxies in between, and what is left afterwards."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from jupyter_exec_ext import AsyncExecClient, ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.client import ExecSession
from jupyter_exec_ext.errors import ApiNotFound, ConnectionFailed, ConnectionLost, Unauthenticated, UnexpectedAnswer
from jupyter_exec_ext.models import EndEvent, StreamEvent
from tests.support.hosts import Host, free_port, running_host
from tests.support.tcp_proxies import CuttingProxy


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@pytest.fixture(scope="module")
def tls_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server that speaks TLS, and to nobody without a client certificate."""
    home = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(home / "ca.pem")
    for name in ("127.0.0.1", "client"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(home / f"{name}.pem")
    options = [f"--ServerApp.{name}={home / '127.0.0.1.pem'}" for name in ("certfile", "keyfile")]
    connect = {"use_https": True, "verify": str(home / "ca.pem"), "client_cert": str(home / "client.pem")}
    with running_host("server", home, *options, f"--ServerApp.client_ca={home / 'ca.pem'}", connect=connect) as host:
        yield host


async def both(host_info: JupyterConnectionInfo, error: type[Exception] | tuple[type[Exception], ...]) -> list[str]:
    """Ask through both clients; return what they raise."""
    messages = []
    with pytest.raises(error) as caught, ExecClient(host_info, max_retries=0) as client:
        client.info()
    messages.append(str(caught.value))
    with pytest.raises(error) as caught:
        async with AsyncExecClient(host_info, max_retries=0) as async_client:
            await async_client.info()
    return [*messages, str(caught.value)]


async def test_wrong_token_raises_unauthenticated(host: Host) -> None:
    info = JupyterConnectionInfo(host.info.host, False, host.info.port, "wr0ng")
    for message in await both(info, Unauthenticated):
        assert "token" in message
        assert "wr0ng" not in message


async def test_missing_server_raises_connection_failed() -> None:
    for message in await both(JupyterConnectionInfo("127.0.0.1", False, free_port(), "s3cret"), ConnectionFailed):
        assert "nothing listens at http://127.0.0.1:" in message
        assert "s3cret" not in message


async def test_wrong_path_raises_api_not_found(host: Host) -> None:
    info = JupyterConnectionInfo(host.info.host, False, host.info.port, host.info.token, base_url="/nope/")
    for message in await both(info, ApiNotFound):
        assert "base URL" in message


async def test_server_that_is_not_jupyter_raises_unexpected_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, AsyncExecClient(JupyterConnectionInfo("127.0.0.1", False, port)) as client:
        with pytest.raises(UnexpectedAnswer, match="Jupyter server"):
            await client.info()


def test_change_feed_resumes_after_repeated_cuts(host: Host) -> None:
    """So often that many cuts fall into the middle of an event; nothing is missing, nothing comes twice."""
    runs = 10
    proxy = CuttingProxy(host.info, cut_after_bytes=3000, cut_requests_to="/events")
    with (
        ExecClient(host.info) as client,
        client.session() as session,
        ExecClient(proxy.info, max_retries=1, outage_seconds=1) as watching,
    ):
        feed = watching.events()
        with proxy:
            assert next(feed).is_reset
            executions = [session.run("1").id for _ in range(runs)]
            ids, told = [], []
            for change in feed:
                assert not change.is_reset
                ids.append(change.id)
                if change.execution is not None and change.execution.id in executions:
                    told.append((change.execution.id, change.execution.state.value))
                if told[-1:] == [(executions[-1], "ok")]:
                    break
        with pytest.raises(ConnectionLost, match="feed was cut"):
            for _ in feed:
                pass
    assert told == [(execution, state) for execution in executions for state in ("queued", "running", "ok")]
    assert len(set(ids)) == len(ids)
    assert proxy.cuts >= 3


def test_stream_resumes_after_cuts_without_gap(host: Host) -> None:
    """Connections cut at any byte: the events read are those of the log, each once, in order."""
    code = "import time\nfor i in range(300): print('line', i, flush=True); time.sleep(0.002)"
    with CuttingProxy(host.info, cut_after_bytes=9000) as proxy, ExecClient(proxy.info) as client:
        session = ExecClient(host.info).session()
        try:
            events = list(client.get_session(session.id).stream(code))
        finally:
            session.close()
        assert proxy.cuts >= 3
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    text = "".join(event.text for event in events if isinstance(event, StreamEvent))
    assert text == "".join(f"line {i}\n" for i in range(300))
    assert isinstance(events[-1], EndEvent)


def test_lost_answer_to_run_is_not_reported_as_failed_code(host: Host) -> None:
    with ExecClient(host.info) as direct, direct.session() as session:
        session.run("ran = 0")
        with CuttingProxy(host.info, cut_after_bytes=1) as proxy, ExecClient(proxy.info, outage_seconds=1) as client:
            through_proxy = ExecSession(client._driver, client._api, session.record)
            with pytest.raises(ConnectionLost, match="unknown"):
                through_proxy.run("ran += 1")
        assert session.run("print(ran)").stdout in ("0\n", "1\n")


def test_cut_standard_websocket_resumes_and_reports_possible_loss(host: Host) -> None:
    code = "import time\nfor i in range(100): print('line', i, flush=True); time.sleep(0.01)"
    with CuttingProxy(host.info, cut_after_bytes=9000, cut_requests_to="/channels", max_cuts=3) as proxy:
        with ExecClient(proxy.info) as client, client.standard_session() as session:
            result = session.run(code)
        assert proxy.cuts >= 1
    assert result.ok
    assert result.stdout.endswith("line 98\nline 99\n")
    assert result.truncated is not None
    assert result.truncated.upstream


async def test_everything_goes_over_tls_with_a_client_certificate(tls_host: Host) -> None:
    with ExecClient(tls_host.info) as client:
        with client.session() as session:
            assert session.run("print('https')").stdout == "https\n"
        with client.standard_session() as standard:
            assert standard.run("print('wss')").stdout == "wss\n"
    async with AsyncExecClient(tls_host.info) as async_client:
        async with await async_client.session() as async_session:
            assert (await async_session.run("print('https')")).stdout == "https\n"
        async with await async_client.standard_session() as async_standard:
            assert (await async_standard.run("print('wss')")).stdout == "wss\n"
    for wrong in ({"client_cert": None}, {"verify": True}):
        await both(replace(tls_host.info, **wrong), (ConnectionFailed, ConnectionLost))


@pytest.mark.parametrize("cut_after_bytes", [0, 1000])
async def test_requests_are_repeated_over_tls_as_well(tls_host: Host, cut_after_bytes: int) -> None:
    """The first connections are cut before or within the handshake."""
    for blocking in (True, False):
        with CuttingProxy(tls_host.info, cut_after_bytes=cut_after_bytes, max_cuts=2) as proxy:
            if blocking:
                with ExecClient(proxy.info) as client:
                    assert client.info()["name"] == "jupyter_exec_ext"
            else:
                async with AsyncExecClient(proxy.info) as async_client:
                    assert (await async_client.info())["name"] == "jupyter_exec_ext"
        assert proxy.cuts == 2


def test_threads_may_share_a_client_and_a_session(host: Host) -> None:
    results: dict[int, str] = {}
    with ExecClient(host.info) as client, client.session() as session:

        def work(number: int) -> None:
            results[number] = session.run(f"print({number})").stdout

        threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {n: f"{n}\n" for n in range(20)}


async def test_run_does_not_block_event_loop(host: Host) -> None:
    async with AsyncExecClient(host.info) as client, await client.session() as session:
        run = asyncio.create_task(session.run("import time; time.sleep(0.5)"))
        ticks = 0
        while not run.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 20


async def test_clients_leave_no_socket_open(host: Host) -> None:
    async def use() -> None:
        with ExecClient(host.info) as client, client.session() as session:
            session.run("1")
            next(iter(session.stream("1")))
        async with AsyncExecClient(host.info) as async_client, await async_client.session() as async_session:
            await async_session.run("1")
            async for _ in async_session.stream("1"):
                break

    async def open_now() -> int:
        """Count once transports that are closed have given up their sockets, which takes the loop some turns."""
        gc.collect()
        counts: list[int] = []
        while (len(counts) < 500 and len(set(counts[-10:])) != 1) or len(counts) < 10:
            await asyncio.sleep(0.01)
            counts.append(len(os.listdir("/proc/self/fd")))
        return counts[-1]

    await use()
    before = await open_now()
    for _ in range(3):
        await use()
    assert await open_now() <= before


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_environment_proxy_is_not_used_for_loopback(host: Host, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{free_port()}")
    with ExecClient(host.info) as client:
        assert client.info()["name"] == "jupyter_exec_ext"


def test_a_netrc_file_does_not_replace_the_token(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {host.info.host} login x password y\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with ExecClient(host.info) as client:
        assert client.info()["name"] == "jupyter_exec_ext"


@pytest.mark.parametrize("cut_after_bytes", [20, 60, 120, 200, 250])
def test_answer_cut_in_headers_is_retried(host: Host, cut_after_bytes: int) -> None:
    """http.client would take headers that just stop for complete ones, and the answer for an empty one."""
    with (
        CuttingProxy(host.info, cut_after_bytes=cut_after_bytes, max_cuts=2) as proxy,
        ExecClient(host.info) as direct,
        direct.session() as session,
        ExecClient(proxy.info) as client,
    ):
        assert client.get_session(session.id).run("print('whole')").stdout == "whole\n"
    assert proxy.cuts == 2
