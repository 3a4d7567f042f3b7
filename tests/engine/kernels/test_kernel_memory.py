"""What sessions use: measured for whoever asks and may know, apart from everything else."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Collection

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.change_feed import SESSION
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels import kernel_processes
from jupyter_exec_ext.engine.kernels.kernel_processes import MemoryMeter, memory_below
from jupyter_exec_ext.errors import SessionNotFound
from jupyter_exec_ext.models import ExecutionRequest, SessionRequest, TokenRequest
from jupyter_exec_ext.protocol.strict_json import loads_strict

ME = owner("me")
MB = 10**6
# More than what is looked for: what else a kernel holds, and shares with others, differs a little from time to time.
FILLED = "held = bytearray(220 * 10**6); held[::4096] = b'x' * len(held[::4096])"
WITH_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {FILLED + "; print('up', flush=True); input()"!r}], stdin=-1, stdout=-1)
child.stdout.readline()
"""


async def started(engine: ExecEngine, code: str = "1") -> str:
    session = await engine.create_session(ME, SessionRequest())
    result = await (await engine.execute(ME, session.id, ExecutionRequest(code))).wait()
    assert result.state == "ok", result
    return session.id


async def listed(engine: ExecEngine) -> dict[str, int | None]:
    return {session.id: session.memory_bytes for session in await engine.list_sessions(ME, memory=True)}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[threading.Thread, set[int]]]:
    """Return what is measured, and in which threads."""
    noted: list[tuple[threading.Thread, set[int]]] = []

    def noting(pids: Collection[int]) -> dict[int, int | None]:
        noted.append((threading.current_thread(), set(pids)))
        return memory_below(pids)

    monkeypatch.setattr(kernel_processes, "memory_below", noting)
    return noted


async def test_what_a_kernel_and_its_children_hold_is_in_the_figure(engine: ExecEngine) -> None:
    empty, full, parent = await started(engine), await started(engine, FILLED), await started(engine, WITH_A_CHILD)
    found = await listed(engine)
    assert (await engine.get_session(ME, full, memory=True)).memory_bytes == found[full]
    least = found[empty]
    assert least is not None and 5 * MB < least < 150 * MB
    for session_id in (full, parent):
        assert 200 * MB <= (found[session_id] or 0) - least < 300 * MB


async def test_nothing_is_measured_that_nobody_asked_for(
    engine: ExecEngine, measured: list[tuple[threading.Thread, set[int]]]
) -> None:
    with engine.feed.watch("") as reader:
        await reader.read(5)  # that everything is to be listed
        session_id = await started(engine)
        assert [session.memory_bytes for session in await engine.list_sessions(ME)] == [None]
        assert (await engine.get_session(ME, session_id)).memory_bytes is None
        told = await reader.read(5) or ()
    told_sessions = [loads_strict(change.data)["session"] for change in told if change.kind == SESSION]
    assert told_sessions and all(session["memory_bytes"] is None for session in told_sessions)
    assert measured == []


async def test_all_are_measured_in_one_thread_once_for_all_who_ask(
    engine: ExecEngine, measured: list[tuple[threading.Thread, set[int]]]
) -> None:
    ids = [await started(engine) for _ in range(3)]
    answers = await asyncio.gather(*(listed(engine) for _ in range(5)), *(listed(engine) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers) and set(answers[0]) == set(ids)
    ((thread, pids),) = measured
    assert thread is not threading.main_thread() and len(pids) == 3
    ids.append(await started(engine))
    await listed(engine)
    assert [len(pids) for _, pids in measured] == [3, 1]


async def test_what_was_measured_is_soon_measured_again(
    monkeypatch: pytest.MonkeyPatch, measured: list[tuple[threading.Thread, set[int]]]
) -> None:
    meter, pid = MemoryMeter(), os.getpid()
    assert ((await meter.measure({"ses_a": pid}))["ses_a"] or 0) > MB
    monkeypatch.setattr(kernel_processes, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(kernel_processes, "_MAX_SHARE", 1e9)
    await meter.measure({"ses_a": pid})
    assert len(measured) == 2
    await meter.measure({})
    assert meter._found == {}


async def test_measure_that_took_long_is_not_soon_repeated(
    monkeypatch: pytest.MonkeyPatch, measured: list[tuple[threading.Thread, set[int]]]
) -> None:
    meter, pids = MemoryMeter(), {"ses_a": os.getpid()}
    monkeypatch.setattr(kernel_processes, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(kernel_processes, "_MAX_SHARE", 1e-9)  # as if measuring had taken hours
    for _ in range(3):
        await meter.measure(pids)
    assert len(measured) == 1


async def test_another_kernel_of_a_session_is_measured_for_itself(engine: ExecEngine) -> None:
    session_id = await started(engine, FILLED)
    before = (await listed(engine))[session_id] or 0
    await engine.restart_session(ME, session_id)
    after = (await listed(engine))[session_id]
    assert after is not None and after < before - 150 * MB


async def test_of_a_kernel_that_is_dead_nothing_is_known(engine: ExecEngine) -> None:
    session_id = await started(engine)
    pid = engine._registry.sessions[session_id].kernel.pid
    assert pid is not None and (await listed(engine))[session_id]
    os.kill(pid, signal.SIGKILL)

    async def until_unknown() -> None:
        while (await listed(engine))[session_id] is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(until_unknown(), 10)
    assert (await engine.get_session(ME, session_id, memory=True)).memory_bytes is None
    await engine.delete_session(ME, session_id)
    assert (await engine.get_session(ME, session_id, memory=True)).memory_bytes is None


async def test_of_others_nothing_is_told_or_measured(
    make_engine: Callable[..., ExecEngine], measured: list[tuple[threading.Thread, set[int]]]
) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES))
    issued = await engine.tokens.create(owner("me", {"username": "me"}), request)
    agent = engine.tokens.authenticate(issued.text, "127.0.0.1")
    mine = await started(engine)
    with pytest.raises(SessionNotFound):
        await engine.get_session(agent, mine, memory=True)
    assert await engine.list_sessions(agent, memory=True) == []
    assert measured == []
    theirs = await engine.create_session(agent, SessionRequest())
    assert [session.id for session in await engine.list_sessions(agent, memory=True)] == [theirs.id]
    assert [len(pids) for _, pids in measured] == [1]
