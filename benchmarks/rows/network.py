"""The egress proxy on the way to a server of this machine: time added to a request, and throughput of tunnels."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from jupyter_exec_ext.isolation.network.access_decision import NetworkAccess, RuleSet
from jupyter_exec_ext.isolation.network.control_messages import ProxySettings
from jupyter_exec_ext.isolation.network.proxy_supervisor import ProxySupervisor
from jupyter_exec_ext.isolation.network.rules import parse_rules

from ..bench import Bench
from ..interleave import interleaved

REQUEST_TABLE, ADDED_TABLE = "small request on a new connection", "time that the egress proxy adds to a small request"
RATE_TABLE, MEMORY_TABLE = "one large answer", "memory of the egress proxy's process after these"
DIRECT, TUNNEL, TERMINATED = "direct", "CONNECT", "terminated TLS"
DIRECT_TLS, TUNNEL_TLS, PLAIN = "direct, TLS", "CONNECT, TLS unread", "plain HTTP"
_HOST = "bench.test"
_TURN_BYTES = 1 << 20

# Answers each connection with so many bytes as the path says; with TLS on the second port.
_SERVER = """
import os, socket, sys, threading
from jupyter_exec_ext.isolation.network.certificates import CertificateAuthority
authority = CertificateAuthority()
context = authority.context_for("bench.test")
block = bytes(1 << 20)
def serve(sock, is_tls):
    with sock:
        try:
            if is_tls:
                sock = context.wrap_socket(sock, server_side=True)
            size = int(sock.recv(65536).split()[1].rpartition(b"/")[2])
            sock.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % size)
            while size:
                size -= len(piece := block[:size])
                sock.sendall(piece)
            if is_tls:
                sock.unwrap()
        except OSError:
            pass
def accept(listener, is_tls):
    while True:
        sock = listener.accept()[0]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(sock, is_tls), daemon=True).start()
listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(2)]
threading.Thread(target=accept, args=(listeners[0], False), daemon=True).start()
threading.Thread(target=accept, args=(listeners[1], True), daemon=True).start()
print(*(listener.getsockname()[1] for listener in listeners), flush=True)
sys.stdout.write(authority.certificate)
sys.stdout.flush()
os.close(1)
sys.stdin.read()
"""


def measure(bench: Bench) -> None:
    """Measure requests and large answers on each way, in turns."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain, secure, ca_file = stack.enter_context(_server(directory))
        run = stack.enter_context(_event_loop())
        settings = ProxySettings(hosts={_HOST: ["127.0.0.1"]}, ca_file=str(ca_file))
        proxy = run(_make_proxy(settings))
        stack.callback(lambda: run(proxy.stop()))
        unread, read = [
            run(_open(proxy, name, *rules))
            for name, rules in (
                ("unread", (f"{_HOST}:{plain}", f"{_HOST}:{secure}")),
                ("read", (f"https://{_HOST}:{secure}/*",)),
            )
        ]
        trust = ssl.create_default_context(cafile=str(ca_file))
        own_trust = ssl.create_default_context(cadata=run(proxy.certificate()))
        ways = {
            DIRECT: partial(_fetch, None, plain, None),
            TUNNEL: partial(_fetch, unread, plain, None),
            PLAIN: partial(_fetch, unread, plain, None, is_tunnel=False),
            DIRECT_TLS: partial(_fetch, None, secure, trust),
            TUNNEL_TLS: partial(_fetch, unread, secure, trust),
            TERMINATED: partial(_fetch, read, secure, own_trust),
        }
        requests = interleaved({name: partial(way, 100) for name, way in ways.items()}, bench.times(7.5), 5)
        milliseconds = {name: [seconds * 1e3 for seconds in samples] for name, samples in requests.items()}
        bench.results.add(REQUEST_TABLE, "ms", milliseconds)
        pairs = ((TUNNEL, DIRECT), (PLAIN, DIRECT), (TUNNEL_TLS, DIRECT_TLS), (TERMINATED, DIRECT_TLS))
        added = {
            way: [here - there for here, there in zip(milliseconds[way], milliseconds[direct], strict=True)]
            for way, direct in pairs
        }
        bench.results.add(ADDED_TABLE, "ms", added)
        size = bench.scaled(400, 10) << 20
        large = interleaved({name: partial(way, size) for name, way in ways.items()}, bench.times(0.5), 1)
        rates = {name: [size / 1e6 / seconds for seconds in samples] for name, samples in large.items()}
        bench.results.add(RATE_TABLE, "MB/s", rates)
        memory = psutil.Process(proxy.pid).memory_info().rss / 1e6
        bench.results.add(MEMORY_TABLE, "MB", {"egress proxy": [memory]})


def _fetch(proxy: int | None, port: int, trust: ssl.SSLContext | None, size: int, *, is_tunnel: bool = True) -> float:
    """Fetch an answer of some size on a new connection, and return the seconds."""
    began_at = time.perf_counter()
    sock: socket.socket = socket.create_connection(("127.0.0.1", proxy or port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    prefix = ""
    if proxy is not None and is_tunnel:
        sock.sendall(f"CONNECT {_HOST}:{port} HTTP/1.1\r\nHost: {_HOST}:{port}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert b" 200 " in head
    elif proxy is not None:
        prefix = f"http://{_HOST}:{port}"
    if trust is not None:
        sock = trust.wrap_socket(sock, server_hostname=_HOST)
    with sock:
        sock.sendall(f"GET {prefix}/{size} HTTP/1.1\r\nHost: {_HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
        buffer, received = bytearray(_TURN_BYTES), 0
        while count := sock.recv_into(buffer):
            received += count
    assert received > size
    return time.perf_counter() - began_at


@contextmanager
def _server(directory: Path) -> Iterator[tuple[int, int, Path]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        plain, secure = map(int, process.stdout.readline().split())
        ca_file = directory / "ca.pem"
        ca_file.write_text(process.stdout.read())
        try:
            yield plain, secure, ca_file
        finally:
            process.stdin.close()
            process.kill()


@contextmanager
def _event_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run an event loop for the proxy's records in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _make_proxy(settings: ProxySettings) -> ProxySupervisor:
    return ProxySupervisor(settings, lambda request: None)


async def _open(proxy: ProxySupervisor, session_id: str, *rules: str) -> int:
    """Open a session, and return the port of its proxy."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        await proxy.open(session_id, listener, NetworkAccess((RuleSet("benchmark", parse_rules(rules)),)))
        return int(listener.getsockname()[1])
