"""How answers are sent, by a handler of ours on a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from jupyter_exec_ext.server.streaming import StreamingHandler


class _Answer(StreamingHandler):
    """Answers anybody, and ends when it may."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Need nothing of the route table."""

    async def prepare(self, *, _redirect_to_login: Any = True) -> None:
        """Let everybody in."""

    def _log(self) -> None:
        """Leave it to nobody."""

    async def get(self) -> None:
        await self.answer_apart(self.settings["body"], may_end=self.settings["may_end"].wait)


@pytest.mark.parametrize(("characters", "some_before"), [(10, False), (3_000_000, True)])
async def test_the_end_of_an_answer_waits_until_it_may_be_sent(characters: int, some_before: bool) -> None:
    body, may_end = {"text": "x" * characters}, asyncio.Event()
    listening, port = bind_unused_port()
    server = HTTPServer(Application([("/", _Answer)], base_url="/", body=body, may_end=may_end))
    server.add_socket(listening)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        before = b""
        if some_before:
            before = await reader.readexactly(2_000_000)
        rest = asyncio.ensure_future(reader.read(-1))
        finished, _ = await asyncio.wait([rest], timeout=0.3)
        assert not finished
        may_end.set()
        _, _, text = (before + await asyncio.wait_for(rest, 10)).partition(b"\r\n\r\n")
        assert json.loads(text) == body
    finally:
        writer.close()
        server.stop()
