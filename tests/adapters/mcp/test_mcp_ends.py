"""Ends of calls and programs over the Model Context Protocol: code and sessions end with them, whoever ends them.

The program is a bridge to the server's endpoint, or has a tool of its own for servers without one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import product
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client, StdioServerParameters

from jupyter_exec_ext import AsyncExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters._session_watchdog import SessionWatchdog
from jupyter_exec_ext.adapters.mcp import _WatchedSession
from jupyter_exec_ext.models import SessionState
from tests.adapters.beacon import beacon
from tests.support.full import IS_FULL, only_in_full, scaled

#: The revision with a handshake, in full only, and the one without.
REVISIONS = ["legacy", "2026-07-28"] if IS_FULL else ["2026-07-28"]
_CANCELLATIONS, _KILLS = scaled(500, per_commit=2), scaled(25, per_commit=1)
_STOPPED_SECONDS, _ENDED_SECONDS = 3.0, 60.0
_LEASE_SECONDS = 2
_BRIDGE = f"""
import anyio, functools, os, sys
from jupyter_exec_ext import JupyterConnectionInfo
from jupyter_exec_ext.adapters._mcp_bridge import run_bridge
info = JupyterConnectionInfo.from_url(sys.argv[1], os.environ["JUPYTER_TOKEN"])
anyio.run(functools.partial(run_bridge, info, {{}}, lease_seconds={_LEASE_SECONDS}))
"""
_OWN_TOOL = """
import os, sys
from jupyter_exec_ext.adapters import mcp
mcp._serving(mcp._WatchedSession(sys.argv[1], os.environ["JUPYTER_TOKEN"], name="MCP")).run("stdio")
"""
#: The program, with a lease that is short enough to be waited for.
BRIDGE, OWN_TOOL = ["-c", _BRIDGE], ["-c", _OWN_TOOL]
KINDS = pytest.mark.parametrize("kind", [BRIDGE, OWN_TOOL], ids=["bridge", "own_tool"])


def program(server: LocalJupyterServer, kind: list[str]) -> StdioServerParameters:
    """Return the command of the MCP program."""
    info = server.connection_info
    return StdioServerParameters(command=sys.executable, args=[*kind, info.url], env={"JUPYTER_TOKEN": str(info.token)})


def pid_of_program() -> int:
    (found,) = [
        process.pid
        for process in psutil.Process().children()
        if "jupyter_exec_ext.adapters" in " ".join(process.cmdline())
    ]
    return int(found)


async def until_no_session(client: AsyncExecClient, within_seconds: float) -> float:
    """Return after how many seconds there was none."""
    began = time.monotonic()
    while await client.list_sessions():
        assert time.monotonic() - began < within_seconds
        await asyncio.sleep(0.05)
    return time.monotonic() - began


def tell(what: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    print(f"{what}: {len(ordered)} times, p95 {p95:.2f} s, at most {ordered[-1]:.2f} s")


async def cancel_task(call: asyncio.Task[object]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


@pytest.mark.timeout(60 + 5 * _CANCELLATIONS)
@KINDS
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_cancelled_call_stops_its_code(
    local_server: LocalJupyterServer, revision: str, kind: list[str]
) -> None:
    stopped: list[float] = []
    async with Client(program(local_server, kind), mode=revision) as agent:
        for number in range(_CANCELLATIONS):
            async with beacon() as light:
                if number % 2:
                    call = asyncio.ensure_future(agent.call_tool("execute_code", {"code": light.code}))
                    await light.lit()
                    began = time.monotonic()
                    await cancel_task(call)
                else:
                    with anyio.CancelScope() as scope:
                        async with anyio.create_task_group() as group:
                            group.start_soon(agent.call_tool, "execute_code", {"code": light.code})
                            await light.lit()
                            began = time.monotonic()
                            scope.cancel()
                await light.out()
                stopped.append(time.monotonic() - began)
        result: Any = await agent.call_tool("execute_code", {"code": "print('next')"})
        assert [block.text for block in result.content] == ["next\n"]
    tell(f"cancelled over MCP {revision}, {'bridge' if kind is BRIDGE else 'own tool'}", stopped)
    assert max(stopped) < _STOPPED_SECONDS


@pytest.mark.timeout(120 + 30 * _KILLS)
@KINDS
@pytest.mark.parametrize(("revision", "number"), list(product(REVISIONS, [signal.SIGTERM, signal.SIGKILL])), ids=str)
async def test_a_program_that_is_ended_leaves_no_session(
    local_server: LocalJupyterServer, revision: str, number: signal.Signals, kind: list[str]
) -> None:
    if not IS_FULL and (number is signal.SIGTERM) != (kind is OWN_TOOL and revision == "legacy"):
        pytest.skip("a commit runs each end once")
    ended: list[float] = []
    async with AsyncExecClient(local_server.connection_info) as client:
        for turn in range(_KILLS):
            async with beacon() as light:
                with suppress(Exception):  # of a client whose server has gone
                    async with Client(program(local_server, kind), mode=revision) as agent:
                        call = asyncio.ensure_future(agent.call_tool("execute_code", {"code": light.code}))
                        await light.lit()
                        if turn % 3 == 2:  # idle by then
                            await cancel_task(call)
                        os.kill(pid_of_program(), number)
                        ended.append(await until_no_session(client, _ENDED_SECONDS))
                        await light.out()
                        await cancel_task(call)
            assert len(ended) == turn + 1
    tell(f"MCP {revision} ended by {number.name}, {'bridge' if kind is BRIDGE else 'own tool'}", ended)


@only_in_full
@pytest.mark.timeout(120)
async def test_the_lease_of_a_killed_bridge_runs_out_within_a_minute(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server.connection_info) as client:
        with suppress(Exception):  # of a client whose server has gone
            async with Client(program(local_server, ["-m", "jupyter_exec_ext.adapters.mcp", "--server"])) as agent:
                await agent.call_tool("execute_code", {"code": "1"})
                os.kill(pid_of_program(), signal.SIGKILL)
                tell("lease of a killed bridge", [await until_no_session(client, _ENDED_SECONDS)])
        assert await client.list_sessions() == []


@only_in_full
async def test_a_bridge_renews_its_lease_while_its_client_sends_nothing(local_server: LocalJupyterServer) -> None:
    async with Client(program(local_server, BRIDGE), mode="2026-07-28") as agent:
        code = f"import time; time.sleep({_LEASE_SECONDS + 1})"
        await agent.call_tool("execute_code", {"code": code})
        result: Any = await agent.call_tool("execute_code", {"code": "print(time.__name__)"})
        assert [block.text for block in result.content] == ["time\n"]


async def test_a_program_whose_whole_group_is_killed_leaves_no_session(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server.connection_info) as client:
        with suppress(Exception):
            async with Client(program(local_server, OWN_TOOL)) as agent:
                await agent.call_tool("execute_code", {"code": "1"})
                (session,) = await client.list_sessions()
                assert session.state is SessionState.IDLE
                os.killpg(pid_of_program(), signal.SIGKILL)
                await until_no_session(client, _ENDED_SECONDS)
        assert await client.list_sessions() == []


async def test_close_ends_the_session_watchdog(local_server: LocalJupyterServer) -> None:
    async with Client(program(local_server, OWN_TOOL)) as agent:
        await agent.call_tool("execute_code", {"code": "1"})
        (watchdog,) = psutil.Process(pid_of_program()).children()
        assert "jupyter_exec_ext.adapters._session_watchdog" in watchdog.cmdline()[-1]
        told = " ".join(watchdog.cmdline()) + str(watchdog.environ())
        assert str(local_server.connection_info.token) not in told
    watchdog.wait(10)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@only_in_full
async def test_a_call_cancelled_while_the_watchdog_starts_leaves_nothing(
    local_server: LocalJupyterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, cancelled, before = asyncio.get_running_loop(), threading.Event(), children()

    class CancellingWatchdog(SessionWatchdog):
        def __init__(self, *args: Any, **options: Any) -> None:
            loop.call_soon_threadsafe(call.cancel)
            cancelled.wait(0.1)
            super().__init__(*args, **options)

    monkeypatch.setattr("jupyter_exec_ext.adapters.mcp.SessionWatchdog", CancellingWatchdog)
    async with AsyncExecClient(local_server.connection_info) as client:
        async with _WatchedSession(local_server) as session:
            call = asyncio.ensure_future(session.run("1"))
            call.add_done_callback(lambda _: cancelled.set())
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await client.list_sessions() == []
    assert children() == before


async def test_a_watchdog_that_cannot_start_leaves_no_session(
    local_server: LocalJupyterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("jupyter_exec_ext.adapters.mcp.SessionWatchdog", fail)
    async with AsyncExecClient(local_server.connection_info) as client, _WatchedSession(local_server) as session:
        with pytest.raises(OSError, match="no more processes"):
            await session.run("1")
        assert await client.list_sessions() == []
