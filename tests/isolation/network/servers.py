"""Local servers for the proxy to reach, and a proxy with sessions whose listeners are on this machine's loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from aiohttp import WSMsgType, web

from jupyter_exec_ext.isolation.network.access_decision import NetworkAccess, NetworkSecret, RuleSet
from jupyter_exec_ext.isolation.network.control_messages import NetworkRequest, ProxySettings
from jupyter_exec_ext.isolation.network.proxy_supervisor import ProxySupervisor
from jupyter_exec_ext.isolation.network.rules import parse_rules
from tests.support.waiting import until

NAMES = ("a.test", "b.test", "c.test", "index.test")


def access_of(*rules: str, upload: int | None = None, secrets: tuple[NetworkSecret, ...] = ()) -> NetworkAccess:
    return NetworkAccess((RuleSet("agents", parse_rules(rules)),), upload, secrets)


def listen(address: str = "127.0.0.1", port: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.bind((address, port))
    sock.listen(512)
    return sock


@dataclass
class Seen:
    """Requests that reached the servers."""

    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0


@dataclass
class World:
    """Servers, a proxy, and what its requests were.

    Parameters
    ----------
    proxy : ProxySupervisor
        The proxy.
    http, https : int
        Ports of the servers for plain HTTP and for TLS; every name of `NAMES` is there.
    authority : Path
        Certificate of the servers' authority.
    records : list of NetworkRequest
        Records so far.
    seen : Seen
        What the servers were asked.
    """

    proxy: ProxySupervisor
    http: int
    https: int
    authority: Path
    records: list[NetworkRequest]
    seen: Seen
    directory: Path

    async def open(self, access: NetworkAccess, session_id: str = "s1") -> str:
        """Open a session and return the URL of its proxy."""
        with listen() as listener:
            await self.proxy.open(session_id, listener, access)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def record(self, count: int = 1) -> NetworkRequest:
        """Wait for so many records, and return the last one."""
        await until(lambda: len(self.records) >= count)
        return self.records[-1]

    async def trusted(self) -> str:
        """Return a file with the proxy's authority."""
        path = self.directory / "proxy-ca.pem"
        path.write_text(await self.proxy.certificate())
        return str(path)


async def run(*command: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a program to its end; return its code, and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode or 0, output.decode(errors="replace")


async def curl(proxy: str, *arguments: str) -> tuple[int, str]:
    return await run(
        "curl", "-q", "-sS", "-m", "30", "--noproxy", "", "-x", proxy, *arguments, env={"PATH": "/usr/bin:/bin"}
    )


async def exchange(proxy: str, *sent: bytes) -> bytes:
    """Send bytes to the proxy, and return all that it answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.rpartition(":")[2]))
    try:
        for data in sent:
            writer.write(data)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def make_application(seen: Seen) -> web.Application:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen.requests.append((request.method, request.raw_path, dict(request.headers), body))
        if request.path == "/redirect":
            raise web.HTTPFound(request.query["to"])
        if request.path == "/ws":
            socket_ = web.WebSocketResponse()
            await socket_.prepare(request)
            async for message in socket_:
                if message.type is WSMsgType.TEXT:
                    await socket_.send_str(message.data)
            return socket_
        if request.path == "/echo":
            lines = [f"{name}: {value}" for name, value in request.headers.items()]
            response = web.StreamResponse(headers={"X-Echo": request.headers.get("Authorization", "")})
            await response.prepare(request)
            for char in "\n".join(lines):
                await response.write(char.encode())
            return response
        if request.path == "/gzip":
            return web.Response(body=b"x", headers={"Content-Encoding": "gzip"})
        if request.path == "/large":
            return web.Response(body=bytes(int(request.query["size"])))
        return web.Response(text=f"{request.method} {request.raw_path} {len(body)}\n")

    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{rest:.*}", answer)
    return application


async def start(
    application: web.Application, sock: socket.socket, context: ssl.SSLContext | None = None
) -> Callable[[], Awaitable[None]]:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, sock, ssl_context=context).start()
    return runner.cleanup


@asynccontextmanager
async def make_world(directory: Path, **settings: Any) -> AsyncIterator[World]:
    """Start the servers and a proxy."""
    authority = trustme.CA()
    certificate = authority.issue_cert(*NAMES, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])
    path = directory / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    seen, records = Seen(), list[NetworkRequest]()
    plain, secure = listen(), listen()
    world_settings = {"hosts": {name: ["127.0.0.1"] for name in NAMES}, "ca_file": str(path), **settings}
    proxy = ProxySupervisor(ProxySettings(**world_settings), records.append)
    ends = [await start(make_application(seen), plain), await start(make_application(seen), secure, context)]
    try:
        yield World(proxy, plain.getsockname()[1], secure.getsockname()[1], path, records, seen, directory)
    finally:
        await proxy.stop()
        for end in ends:
            await end()
