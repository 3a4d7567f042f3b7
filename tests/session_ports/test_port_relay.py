"""Requests through a port that end early: cut before the program is reached, or given up by the client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.web import Application

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.session_ports.open_port import OpenPort
from jupyter_exec_ext.session_ports.port_host import PortPageHandler
from jupyter_exec_ext.session_ports.port_registry import PortRegistry
from tests.support.waiting import until


class Relayed:
    """A server with one open port, a program behind it, and a gate before the connection to the program."""

    def __init__(self) -> None:
        self.program = socket.create_server(("127.0.0.1", 0))
        self.gate = asyncio.Event()
        self.streams = 0
        engine = SimpleNamespace(
            audit=SimpleNamespace(record=lambda *_, **__: None),
            watch_token=lambda caller, on_end: lambda: None,
            hold_stream=self._hold_stream,
        )
        live = SimpleNamespace(record=SimpleNamespace(id="ses_1"), is_closing=False, renew_idle_timeout=lambda: None)
        self.port = OpenPort(cast(Any, engine), cast(Any, live), cast(Any, self), 8501, "owner")
        registry = PortRegistry(cast(Any, engine))
        registry._by_label["app"] = self.port
        arguments = {"engine": engine, "registry": registry, "is_login_cookie": lambda name: False}
        self.server = HTTPServer(Application([("/(?P<label>app)/.*", PortPageHandler, arguments)]))
        [listener] = bind_sockets(0, "127.0.0.1")
        self.server.add_sockets([listener])
        self.address: tuple[str, int] = listener.getsockname()

    def _hold_stream(self, caller: Any) -> Callable[[], None]:
        del caller
        self.streams += 1

        def release() -> None:
            self.streams = 0

        return release

    async def connect(self, port: int, is_wanted: Callable[[], bool]) -> IOStream:
        """Connect to the program when the gate opens, whether the connection is still wanted or not."""
        del port, is_wanted
        await self.gate.wait()
        stream = IOStream(socket.socket())
        await stream.connect(self.program.getsockname())
        return stream

    async def send(self, request: str, body: bytes = b"") -> IOStream:
        """Send a request in the name of a browser that may use the port."""
        value = self.port.redeem_ticket(self.port.issue_ticket(owner()))
        client = IOStream(socket.socket())
        await client.connect(self.address)
        head = (
            f"{request} HTTP/1.1\r\nHost: app\r\nCookie: exec-port={value}\r\nContent-Length: {len(body) * 2}\r\n\r\n"
        )
        await client.write(head.encode() + body)
        await until(lambda: self.port.uses)
        return client


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    made = Relayed()
    yield made
    made.port.close("", "test")
    made.server.stop()
    await made.server.close_all_connections()
    made.program.close()


def _has_handlers() -> bool:
    return any("_execute" in getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())


async def test_request_that_was_cut_during_the_connection_never_reaches_the_program(relayed: Relayed) -> None:
    client = await relayed.send("GET /app/")
    relayed.port.close("owner", "closed by the caller")
    relayed.gate.set()
    connection, _ = await asyncio.to_thread(relayed.program.accept)
    with connection:
        connection.settimeout(30)
        assert await asyncio.to_thread(connection.recv, 100) == b""
    await until(lambda: not relayed.port.uses and not relayed.streams and not _has_handlers())
    client.close()


async def test_upload_that_the_client_gives_up_leaves_no_task_behind(relayed: Relayed) -> None:
    relayed.gate.set()
    client = await relayed.send("POST /app/", b"half")
    connection, _ = await asyncio.to_thread(relayed.program.accept)
    with connection:
        assert _has_handlers()
        client.close()
        await until(lambda: not relayed.port.uses and not relayed.streams)
        await until(lambda: not _has_handlers(), 5)
