"""What reaches whom: the token, certificates, proxies, cookies; and answers that are not what they should be."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from jupyter_exec_ext import AsyncExecClient, ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.client import server_connection
from jupyter_exec_ext.client.aio import websocket as aio_websocket
from jupyter_exec_ext.client.aio.driver import AioDriver
from jupyter_exec_ext.client.aio.http_client import ssl_context
from jupyter_exec_ext.client.api.steps import Connect, Failure, OpenStream, Operation, ReadStream, Request
from jupyter_exec_ext.client.sync import websocket
from jupyter_exec_ext.client.sync.driver import SyncDriver
from jupyter_exec_ext.errors import (
    ApiNotFound,
    ClientError,
    ConnectionFailed,
    ExecError,
    Unauthenticated,
    UnexpectedAnswer,
)
from tests.support.binderhubs import Events, StandInBinderHub
from tests.support.hosts import Host, running_host


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


class Fake(http.server.ThreadingHTTPServer):
    """A server that gives everybody the same answer and notes what it was asked."""

    daemon_threads = True

    def __init__(self, status: int = 200, body: bytes = b"{}", **headers: str) -> None:
        self.answer = (status, body, headers)
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answer)
        self.info = JupyterConnectionInfo("127.0.0.1", False, self.server_port, "s3cret")
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def server_close(self) -> None:
        self.shutdown()
        self._thread.join()
        super().server_close()


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        status, body, headers = self.server.answer
        self.server.seen.append(f"{self.requestline}\n{self.headers}")
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_CONNECT = do_GET  # noqa: N815  # named by the library


CHANNELS = Connect("api/kernels/k/channels", ("v1",), 5.0)


def test_a_redirected_websocket_takes_the_token_nowhere_else() -> None:
    with Fake() as elsewhere, Fake(302, location=f"ws://127.0.0.1:{elsewhere.server_port}/stolen") as server:
        failed = websocket.connect(server.info, CHANNELS, {})
    assert isinstance(failed, Failure)
    assert (len(server.seen), elsewhere.seen) == (1, [])


def test_a_refused_websocket_does_not_show_the_answers_headers() -> None:
    with Fake(403, b"<p>no", **{"Set-Cookie": "session=c00kie"}) as server:
        failed = websocket.connect(server.info, CHANNELS, {})
    assert isinstance(failed, Failure)
    assert "403" in failed.message
    assert "c00kie" not in failed.message


@pytest.mark.parametrize(
    ("verify", "used"), [(False, False), ("/own.pem", "/own.pem"), (True, "/environment.pem")], ids=str
)
def test_verify_argument_overrides_environments_ca_bundle(
    monkeypatch: pytest.MonkeyPatch, verify: bool | str, used: bool | str
) -> None:
    asked = []

    class Adapter(requests.adapters.HTTPAdapter):
        def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
            asked.append(options["verify"])
            raise requests.ConnectionError

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/environment.pem")
    for name in ("h.example", "127.0.0.1"):
        with ExecClient(JupyterConnectionInfo(name, True, verify=verify), max_retries=0) as client:
            client._driver._http._session.mount("https://", Adapter())
            with pytest.raises(ExecError):
                client.info()
    assert asked == [used, used]


def test_verify_accepts_directory_of_certificates(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    assert ssl_context(JupyterConnectionInfo("h", True, verify=str(tmp_path)))
    assert ssl_context(JupyterConnectionInfo("h", True, verify=str(tmp_path / "ca.pem")))


# --- proxies and .netrc ---


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have 127.0.0.1 treated as a machine elsewhere."""
    monkeypatch.setattr(JupyterConnectionInfo, "is_loopback", False)


@pytest.mark.usefixtures("far")
async def test_a_netrc_file_does_not_replace_the_asynchronous_clients_token(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text(f"machine {host.info.host} login x password y\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with AsyncExecClient(host.info) as client:
        assert (await client.info())["name"] == "jupyter_exec_ext"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    with Fake(502, b"proxy") as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "h.example")
        yield proxy


@pytest.mark.usefixtures("proxy")
async def test_loopback_websocket_uses_no_proxy(host: Host) -> None:
    with ExecClient(host.info) as client, client.standard_session() as session:
        assert session.run("print(1)").ok
    async with AsyncExecClient(host.info) as async_client, await async_client.standard_session() as async_session:
        assert (await async_session.run("print(1)")).ok


@pytest.mark.usefixtures("far")
async def test_environment_proxy_is_used_for_other_machines(proxy: Fake, host: Host) -> None:
    with ExecClient(host.info, max_retries=0) as client, pytest.raises(ExecError):
        client.info()
    async with AsyncExecClient(host.info, max_retries=0) as async_client:
        with pytest.raises(ExecError):
            await async_client.info()
    assert [line.split("/exec/")[0] for line in proxy.seen] == [f"GET {host.info.url.rstrip('/')}"] * 2
    assert JupyterConnectionInfo("h.example", False).proxy is None


@pytest.fixture(params=["refuses", "hangs up"])
def no_tunnel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """A proxy that opens no tunnel."""
    with Fake(403, b"proxy") as proxy:
        if request.param == "hangs up":
            monkeypatch.setattr(
                _Answer, "do_CONNECT", lambda handler: proxy.seen.append(f"{handler.requestline}\n{handler.headers}")
            )
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield proxy


async def test_request_whose_tunnel_was_refused_counts_as_not_sent(no_tunnel: Fake) -> None:
    info = JupyterConnectionInfo("jupyter.example", True, 443, "t0ken")
    with ExecClient(info, max_retries=0) as client, pytest.raises(ConnectionFailed, match="nothing was sent"):
        client.info()
    async with AsyncExecClient(info, max_retries=0) as async_client:
        with pytest.raises(ConnectionFailed, match="nothing was sent"):
            await async_client.info()
    assert [seen.split(" HTTP")[0] for seen in no_tunnel.seen] == ["CONNECT jupyter.example:443"] * 2


async def test_proxy_of_an_https_server_gets_no_token(no_tunnel: Fake) -> None:
    info = JupyterConnectionInfo("jupyter.example", True, 443, "t0ken")
    with ExecClient(info, max_retries=0) as client, pytest.raises(ConnectionFailed):
        client.info()
    assert isinstance(websocket.connect(info, CHANNELS, {}), Failure)
    async with AsyncExecClient(info, max_retries=0) as async_client:
        with pytest.raises(ConnectionFailed):
            await async_client.info()
        assert isinstance(await aio_websocket.connect(async_client._driver._http, CHANNELS), Failure)
    assert len(no_tunnel.seen) == 4
    assert "t0ken" not in "".join(no_tunnel.seen)


# --- servers without a token ---


@pytest.fixture(scope="module")
def tokenless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("tokenless")
    with running_host("server", home, "--IdentityProvider.token=", token="") as host:
        yield host


async def test_xsrf_cookie_is_sent_back_to_server_without_token(tokenless: Host) -> None:
    with ExecClient(tokenless.info) as client:
        started = client.session()
        started.detach()
    with ExecClient(tokenless.info) as client, client.get_session(started.id) as session:
        assert session.run("print(1)").stdout == "1\n"
    async with AsyncExecClient(tokenless.info) as async_client:
        async_session = await async_client.session()
        async_session.detach()
    async with AsyncExecClient(tokenless.info) as async_client:
        again = await async_client.get_session(async_session.id)
        assert [event.type async for event in again.stream("1")][-1] == "end"
        await again.close()
    with ExecClient(tokenless.info) as client, client.standard_session() as standard:
        assert standard.run("print(1)").stdout == "1\n"


def test_last_of_two_xsrf_cookies_is_sent() -> None:
    headers = {"Set-Cookie": "_xsrf=a; Path=/", "set-cookie": "_xsrf=b; Path=/exec"}
    with Fake(200, b'{"name": "jupyter_exec_ext"}', **headers) as server:
        for token in ("t", None):
            info = JupyterConnectionInfo("127.0.0.1", False, server.server_port, token)
            with ExecClient(info, max_retries=0) as client:
                client.info()
                client.info()
    assert "X-XSRFToken: a" in server.seen[-1]


# --- answers that are not what they should be ---

MALFORMED = [
    b"{}",
    b"[]",
    b"null",
    b"<html>",
    b'{"name": "jupyter_exec_ext"}',
    b'{"name": "jupyter_exec_ext", "kernelspecs": [{}], "sessions": [{}], "id": 5, "executions": [{}]}',
    b'{"kernelspecs": {"python3": null}}',
    b'{"kernelspecs": {"python3": {"spec": []}}}',
]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_answer_raises_unexpected_answer(body: bytes) -> None:
    with Fake(200, body) as server, ExecClient(server.info, max_retries=0) as client:
        for call in (client.kernelspecs, client.session, client.list_sessions, client.standard_session):
            with pytest.raises(UnexpectedAnswer):
                call()
        for call_with_id in (client.get_session, client.get_execution):
            with pytest.raises(UnexpectedAnswer):
                call_with_id("x")


def test_wrong_address_raises_unexpected_answer_from_standard_api() -> None:
    with Fake(404) as server, ExecClient(server.info) as client, pytest.raises(ApiNotFound, match="base URL"):
        client.standard_session()


def test_refusal_without_message_asks_for_token() -> None:
    with Fake(401, b"") as server, ExecClient(server.info) as client, pytest.raises(Unauthenticated, match="token"):
        client.info()


def until_its_end(total_seconds: float) -> Operation[tuple[int, float]]:
    """Read a stream that is kept alive for ever; return how many pieces came, and how long it took."""
    begun = time.monotonic()
    stream = yield OpenStream(Request("GET", "build/gh/org/repo/HEAD"), total_seconds)
    pieces = 0
    while (piece := (yield ReadStream(stream))) and not isinstance(piece, Failure):
        pieces += 1
    return pieces, time.monotonic() - begun


@pytest.mark.parametrize("driver", [SyncDriver, AioDriver])
async def test_stream_with_heartbeats_is_cut_after_total_timeout(driver: Any) -> None:
    with StandInBinderHub(Events([])) as server:
        carrying_out = driver(JupyterConnectionInfo.from_url(server.url))
        if driver is SyncDriver:
            pieces, seconds = await asyncio.to_thread(carrying_out.perform, until_its_end(0.5))
            carrying_out.close()
        else:
            pieces, seconds = await carrying_out.perform(until_its_end(0.5))
            await carrying_out.close()
    assert pieces > 1
    assert 0.4 < seconds < 10


# --- clients that are used where they cannot be ---


async def test_closed_client_raises_client_error(host: Host) -> None:
    client = ExecClient(host.info)
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.info()
    async_client = AsyncExecClient(host.info)
    await async_client.close()
    with pytest.raises(ClientError, match="closed"):
        await async_client.info()


def test_an_asynchronous_client_belongs_to_one_event_loop(host: Host) -> None:
    client = AsyncExecClient(host.info)

    async def use() -> None:
        await client.info()

    async def use_and_close() -> None:
        with pytest.raises(ClientError, match="event loop"):
            await client.info()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use())
    asyncio.run(use_and_close())
    loop.run_until_complete(client.close())
    loop.close()


def test_result_waits_no_longer_than_timeout(host: Host) -> None:
    with ExecClient(host.info) as client, client.session() as session:
        handle = session.submit("import time; time.sleep(20)")
        began = time.monotonic()
        assert not handle.result(0.2).state.finished
        assert 0.15 < time.monotonic() - began < 10
        handle.cancel()


def test_discover_ignores_server_file_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "jpserver-1.json"]))
    assert JupyterConnectionInfo.discover(tmp_path) == []
    assert server_connection._modified_at(tmp_path / "none") == 0.0
