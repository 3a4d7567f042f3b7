"""Notebook export: however much a session has said, one cell at a time is in memory and others go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from traitlets.config import Config

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions import notebook_export as module
from jupyter_exec_ext.engine.sessions.notebook_export import CELLS_AT_ONCE
from jupyter_exec_ext.errors import Conflict, SessionNotFound
from jupyter_exec_ext.models import (
    DisplayEvent,
    ErrorEvent,
    Execution,
    ExecutionState,
    OutputEvent,
    ResultEvent,
    Session,
    SessionState,
    StreamEvent,
)
from jupyter_exec_ext.protocol.output_joining import OutputFold, finished_record
from tests.support.full import IS_FULL, only_in_full

NOW = "2026-01-01T00:00:00.000Z"
CELLS, CELL_BYTES = 16, 4_000_000
MAX_GROWTH_BYTES = (
    72 * 1024 * 1024
)  # all of it took 190 MB; a cell, its parsed log and its JSON, and what the allocator keeps
MAX_STALL_SECONDS = 0.25

OUTPUTS: dict[str, Callable[[], list[OutputEvent]]] = {
    "text": lambda: [StreamEvent("stdout", "x" * CELL_BYTES)],
    "lines": lambda: [
        StreamEvent(("stdout", "stderr")[n % 2], f"{n} {'y' * 990}\n") for n in range(CELL_BYTES // 1000)
    ],
    "picture": lambda: [DisplayEvent({"image/png": "QUJD" * (CELL_BYTES // 4)}, {})],
    "pictures": lambda: [DisplayEvent({"image/png": "QUJD" * 1000}, {}) for _ in range(CELL_BYTES // 4000)],
    "json": lambda: [ResultEvent({"application/json": {str(n): "z" * 90 for n in range(CELL_BYTES // 100)}}, {}, 1)],
    "traceback": lambda: [ErrorEvent("E", "v", "t" * CELL_BYTES)],
    "escapes": lambda: [StreamEvent("stdout", "\x1b[0m\ud800" * (CELL_BYTES // 10))],
}


@pytest.fixture
def engine(make_engine: Callable[..., ExecEngine], tmp_path: Path) -> ExecEngine:
    return make_engine(config=Config(ExecStore={"path": str(tmp_path / "store")}))


async def session_with(engine: ExecEngine, cells: int, events: list[OutputEvent], principal: str = "owner") -> str:
    """Store a session that has ended, with this output in each of its cells."""
    name = f"ses_{principal[-5:]}"
    ended = Session(name, principal, "python3", "python", SessionState.ENDED, NOW, NOW)
    await engine._store.sessions.add(ended)
    fold = OutputFold()
    for event in events:
        fold.add(event)
    for number in range(cells):
        execution = Execution(f"exe_{name}_{number}", name, ExecutionState.QUEUED, f"cell {number}", NOW, outputs=[])
        log: Any = await engine._store.executions.accept(execution, principal, None)
        for event in events:
            log.append(event)
        last = finished_record(execution, fold, ExecutionState.OK, finished_at=NOW, session_state_preserved=True)
        await engine._store.executions.finish(last, principal, log)
    return name


def memory_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


async def usual_stall(stop: asyncio.Event) -> float:
    """Return for how long the event loop kept others waiting in 99 of 100 cases, in seconds."""
    stalls = [0.0]
    while not stop.is_set():
        began = time.monotonic()
        await asyncio.sleep(0.005)
        stalls.append(time.monotonic() - began - 0.005)
    return sorted(stalls)[len(stalls) * 99 // 100]


@pytest.mark.parametrize("kind", OUTPUTS)
@only_in_full
async def test_large_session_is_exported_in_the_memory_of_a_few_cells(engine: ExecEngine, kind: str) -> None:
    session = await session_with(engine, CELLS, OUTPUTS[kind]())
    before, most, written, largest = memory_bytes(), 0, 0, 0

    async def write(parts: Iterable[bytes]) -> None:
        nonlocal most, written, largest
        size = sum(map(len, parts))
        written, largest, most = written + size, max(largest, size), max(most, memory_bytes())

    stop = asyncio.Event()
    stall = asyncio.ensure_future(usual_stall(stop))
    await (await engine.notebook(owner(), session)).write_to(write)
    stop.set()
    assert written >= CELLS * CELL_BYTES
    assert largest <= 2 * CELL_BYTES
    assert most - before <= MAX_GROWTH_BYTES
    usual = await stall
    assert usual <= MAX_STALL_SECONDS or not IS_FULL  # other tests run beside this one, except in a full run


@pytest.mark.parametrize("kind", OUTPUTS)
async def test_exported_cells_are_a_valid_notebook_in_order(
    engine: ExecEngine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.engine.sessions.test_notebook_export.CELL_BYTES", 4000)
    session = await session_with(engine, 5, OUTPUTS[kind]())
    content = json.loads(await (await engine.notebook(owner(), session)).collect())
    nbformat.validate(nbformat.from_dict(content))
    assert [cell["source"] for cell in content["cells"]] == [f"cell {number}" for number in range(5)]
    assert all(cell["outputs"] for cell in content["cells"])


async def test_session_without_cells_is_a_notebook_without_any(engine: ExecEngine) -> None:
    session = await session_with(engine, 0, [])
    assert json.loads(await (await engine.notebook(owner(), session)).collect())["cells"] == []


async def test_cells_removed_meanwhile_are_left_out(engine: ExecEngine) -> None:
    session = await session_with(engine, 4, [StreamEvent("stdout", "x")])
    export = await engine.notebook(owner(), session)
    store: Any = engine._store
    sql = "DELETE FROM executions WHERE id IN (?, ?)"
    gone = [f"exe_{session}_{number}" for number in (0, 2)]
    await store._writer.run(lambda db: db.execute(sql, gone), write=True)
    content = json.loads(await export.collect())
    assert [cell["source"] for cell in content["cells"]] == ["cell 1", "cell 3"]


async def test_anothers_session_is_not_exported(engine: ExecEngine) -> None:
    session = await session_with(engine, 1, [], "token:aaaaa")
    for other in (Caller("token:bbbbb"), Caller("token:aaaa"), Caller("token:aaaaa/child")):
        with pytest.raises(SessionNotFound):
            await engine.notebook(other, session)
    await engine.notebook(Caller("token:aaaaa"), session)


async def test_readers_that_never_read_hold_up_only_their_own_exports(engine: ExecEngine) -> None:
    a, b = "token:aaaaa", "token:bbbbb"
    sessions = {name: await session_with(engine, 3, [StreamEvent("stdout", "x")], name) for name in (a, b)}
    stuck, all_stuck, reached = asyncio.Event(), asyncio.Event(), []

    async def never(parts: Iterable[bytes]) -> None:
        if b"cell 0" in b"".join(parts):
            reached.append(1)
            if len(reached) == CELLS_AT_ONCE:
                all_stuck.set()
            await stuck.wait()

    async def at_once(parts: Iterable[bytes]) -> None:
        del parts

    async def export(who: str, write: module.Write) -> None:
        await (await engine.notebook(Caller(who), sessions[who])).write_to(write)

    slow = [asyncio.ensure_future(export(a, never)) for _ in range(CELLS_AT_ONCE + 5)]
    await all_stuck.wait()
    await asyncio.wait_for(export(b, at_once), 10)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(export(a, at_once), 0.3)
    assert len(reached) == CELLS_AT_ONCE
    for task in slow[: CELLS_AT_ONCE + 1]:  # those readers are gone
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    stuck.set()
    await asyncio.wait_for(export(a, at_once), 10)
    await asyncio.gather(*slow[CELLS_AT_ONCE + 1 :])


async def test_notebook_too_large_to_save_is_refused(engine: ExecEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SAVED_BYTES", 50_000)
    session = await session_with(engine, 6, [StreamEvent("stdout", "x" * 10_000)])
    with pytest.raises(Conflict, match=r"50000 bytes.*GET"):
        await (await engine.notebook(owner(), session)).collect()
    content = b""

    async def write(parts: Iterable[bytes]) -> None:
        nonlocal content
        content += b"".join(parts)

    await (await engine.notebook(owner(), session)).write_to(write)
    assert len(json.loads(content)["cells"]) == 6
