"""Outages of a proxy, JupyterHub's, before the server: runs and streams go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.errors import ConnectionFailed, ConnectionLost
from jupyter_exec_ext.models import StreamEvent
from tests.support.full import IS_FULL
from tests.support.hosts import Host, free_port
from tests.support.outside_parts import HUB_PROXY

COUNT = 5
CODE = "import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(0.1)"
PRINTED = "".join(f"{number}\n" for number in range(20))
DOWN_SECONDS = [0.3, 1.0, 5.0, 20.0] if IS_FULL else [0.3]
pytestmark = [pytest.mark.needs("configurable-http-proxy"), pytest.mark.timeout(240)]


class HubProxy:
    """A configurable-http-proxy before one server, which can be taken down and brought back."""

    def __init__(self, target: JupyterConnectionInfo) -> None:
        self.info = replace(target, port=free_port())
        self._target = target.url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(HUB_PROXY), "--ip=127.0.0.1", f"--port={self.info.port}", f"--default-target={self._target}"]
        command += ["--no-include-prefix", "--api-ip=127.0.0.1", f"--api-port={free_port()}", "--log-level=error"]
        self._process = subprocess.Popen(command)
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:  # it says nothing when it is there
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.info.port or 0), 1):
                return
            time.sleep(0.02)
        raise AssertionError("the proxy does not listen")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture
def proxy(hosts: Any) -> Iterator[HubProxy]:
    host: Host = hosts["server"]
    proxy = HubProxy(host.info)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("down_seconds", DOWN_SECONDS)
async def test_runs_and_streams_outlive_an_outage(proxy: HubProxy, down_seconds: float) -> None:
    async with AsyncExecClient(proxy.info) as client:
        # Each has its session before the outage.
        sessions = [await client.session() for _ in range(2 * COUNT)]
        work = [asyncio.ensure_future(session.run(CODE)) for session in sessions[:COUNT]]
        streams = [asyncio.ensure_future(collect(session)) for session in sessions[COUNT:]]
        await asyncio.sleep(0.7)  # into the middle of them
        await asyncio.to_thread(proxy.stop)
        await asyncio.sleep(down_seconds)
        await asyncio.to_thread(proxy.start)
        assert [(await one).stdout for one in work] == [PRINTED] * COUNT
        assert [await one for one in streams] == [PRINTED] * COUNT
        for session in sessions:
            await session.close()


async def collect(session: Any) -> str:
    """Return what a stream printed; its events have all numbers once."""
    events = [event async for event in session.stream(CODE)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


def test_blocking_run_outlives_outage(proxy: HubProxy) -> None:
    with ExecClient(proxy.info) as client, client.session() as session:
        parts: list[str] = []
        for event in session.stream(CODE):
            if isinstance(event, StreamEvent) and not parts:
                proxy.stop()
                proxy.start()
            parts += [event.text] if isinstance(event, StreamEvent) else []
        assert "".join(parts) == PRINTED


def test_long_outage_raises_connection_lost_with_key_and_id(proxy: HubProxy) -> None:
    with ExecClient(proxy.info, outage_seconds=1.0) as client:
        session = client.session()
        with pytest.raises(ConnectionLost) as lost:
            session.run(CODE, on_event=lambda event: proxy.stop())
        assert lost.value.idempotency_key
        proxy.start()
        again = session.run(CODE, idempotency_key=lost.value.idempotency_key)
        assert (again.stdout, again.id) == (PRINTED, lost.value.execution_id)
        session.close()


def test_a_server_that_never_answered_is_not_waited_for(proxy: HubProxy) -> None:
    proxy.stop()
    began = time.monotonic()
    with ExecClient(proxy.info) as client, pytest.raises(ConnectionFailed, match="nothing listens at"):
        client.run("1")
    assert time.monotonic() - began < 20
