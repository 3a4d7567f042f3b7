"""Connections to programs that accept none: they block no thread, and so no port of another session."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.concurrency import BackgroundTasks
from jupyter_exec_ext.errors import PortUnreachable
from jupyter_exec_ext.session_ports import port_connector
from jupyter_exec_ext.session_ports.port_connector import PortConnector
from jupyter_exec_ext.session_ports.port_registry import PortRegistry
from tests.support.waiting import until

_THREADS = 8


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Find each port at 127.0.0.1; the list has the session of each search."""
    searches: list[str] = []

    def find(session_id: str, port: int) -> str:
        del port
        searches.append(session_id)
        return "127.0.0.1"

    monkeypatch.setattr(port_connector, "listening_address", find)
    return searches


@pytest.fixture
def full() -> Iterator[int]:
    """Port of a listener whose backlog is full, so that nothing more can connect."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            waiting = opened.enter_context(socket.socket())
            waiting.settimeout(0.05)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                break
        yield listener.getsockname()[1]


def _live(session_id: str = "ses_1") -> Any:
    record = SimpleNamespace(id=session_id, isolation="none", attached=False)
    return SimpleNamespace(
        record=record, kernel=SimpleNamespace(pid=1), is_closing=False, ends=[], note=lambda **_: None
    )


def _wanted() -> bool:
    return True


async def test_programs_that_accept_nothing_keep_no_other_session_waiting(full: int, found: list[str]) -> None:
    stuck = [
        asyncio.ensure_future(PortConnector(_live(f"ses_{n}")).connect(full, _wanted)) for n in range(_THREADS + 1)
    ]
    await until(lambda: len(found) > _THREADS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = await PortConnector(_live("other")).connect(listener.getsockname()[1], _wanted)
    stream.close()
    assert not any(task.done() for task in stuck)
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)


async def test_program_that_accepts_nothing_is_unreachable_after_a_while(
    full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_connector, "_CONNECT_SECONDS", 0.01)
    with pytest.raises(PortUnreachable):
        await PortConnector(_live()).connect(full, _wanted)


async def test_connection_that_is_not_wanted_or_whose_session_ended_takes_no_thread(found: list[str]) -> None:
    connector = PortConnector(_live())
    with pytest.raises(PortUnreachable):
        await connector.connect(1, lambda: False)
    await connector.close()
    with pytest.raises(PortUnreachable):
        await connector.connect(1, _wanted)
    assert found == []


async def test_session_keeps_its_connector_after_its_last_port_is_closed() -> None:
    live, background = _live(), BackgroundTasks()
    live.on_end = live.ends.append

    async def get_live(caller: Any, session_id: str) -> Any:
        del caller, session_id
        return live

    engine = SimpleNamespace(
        sessions=SimpleNamespace(get_live=get_live),
        audit=SimpleNamespace(record=lambda *_, **__: None),
        background=background,
    )
    registry = PortRegistry(cast(Any, engine))
    first, _ = await registry.open(owner(), "ses_1", 1000)
    await registry.close_port(owner(), "ses_1", 1000)
    second, is_new = await registry.open(owner(), "ses_1", 1000)
    assert is_new and second.connector is first.connector
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        (await second.connector.connect(listener.getsockname()[1], _wanted)).close()
        for end in live.ends:
            end()
        await background.drain()
        with pytest.raises(PortUnreachable):
            await second.connector.connect(listener.getsockname()[1], _wanted)
