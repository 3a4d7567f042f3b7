"""What the engine tells of the server as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from jupyter_core.paths import jupyter_data_dir

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels import kernel_processes
from jupyter_exec_ext.errors import ShuttingDown
from jupyter_exec_ext.models import AuditKind, ExecutionRequest, Readiness, SessionRequest
from jupyter_exec_ext.store.audit_table import AuditReader

ME = owner("me")


async def test_free_places_are_what_the_limit_leaves(make_engine: Callable[..., ExecEngine]) -> None:
    engine = make_engine(max_sessions=2, pool_size=0)
    assert (await engine.status.load()).free_places == 2
    session = await engine.create_session(ME, SessionRequest())
    load = await engine.status.load()
    assert (load.sessions, load.running, load.queued, load.free_places) == (1, 0, 0, 1)
    await engine.delete_session(ME, session.id)
    assert (await engine.status.load()).free_places == 2
    engine.max_sessions = 0
    assert (await engine.status.load()).free_places is None


async def test_memory_of_kernels_is_measured_once_for_several_questions(
    make_engine: Callable[..., ExecEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Collection[int]] = []

    def measure(pids: Collection[int]) -> dict[int, int | None]:
        measured.append(pids)
        return dict.fromkeys(pids, 7)

    monkeypatch.setattr(kernel_processes, "memory_below", measure)
    engine = make_engine(pool_size=0)
    await engine.create_session(ME, SessionRequest())
    assert [(await engine.status.load()).kernels_pss_bytes for _ in range(3)] == [7, 7, 7]
    assert [len(pids) for pids in measured] == [1]


async def test_engine_that_shuts_down_is_not_ready(make_engine: Callable[..., ExecEngine]) -> None:
    engine = make_engine()
    assert engine.status.readiness() == Readiness(ready=True, draining=False)
    await engine.shutdown()
    assert engine.status.readiness() == Readiness(ready=False, draining=False)


async def test_a_drain_and_its_end_are_in_the_audit_trail_once(
    make_engine: Callable[..., ExecEngine],
) -> None:
    engine = make_engine(server_name="w1")
    for _ in range(2):
        engine.status.drain("user:grace")
    for _ in range(2):
        engine.status.end_drain("user:grace")
    await engine.shutdown()
    with AuditReader(Path(jupyter_data_dir()) / "jupyter_exec_ext").snapshot() as (_, lines):
        told = [(r.action, r.principal, r.subject) for line in lines if (r := line.record()).kind is AuditKind.SERVER]
    assert told == [("drain_started", "user:grace", "w1"), ("drain_ended", "user:grace", "w1")]


async def test_drain_ends_after_its_time_though_code_runs(make_engine: Callable[..., ExecEngine]) -> None:
    engine = make_engine(pool_size=0)
    session = await engine.create_session(ME, SessionRequest())
    running = await engine.execute(ME, session.id, ExecutionRequest("import time; time.sleep(600)"))
    assert await engine.status.drain_to_end(0.1) is True
    assert not running.record.state.finished
    with pytest.raises(ShuttingDown):
        engine.status.end_drain("me")
    # With an hour to wait, it is the shutdown that ends it.
    waiting = asyncio.create_task(engine.status.drain_to_end(3600.0))
    await asyncio.sleep(0)  # it begins
    await engine.shutdown()
    assert await asyncio.wait_for(waiting, 10) is False
