"""Output beyond the cap in the engine: whose it is, and that no trouble with it touches a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecutionNotFound, OutputExpired, OutputNotFound
from jupyter_exec_ext.models import Execution, ExecutionRequest, ExecutionState, SessionRequest
from jupyter_exec_ext.server.routes import ROUTES

Make = Callable[..., ExecEngine]
ME, OTHER = owner("me"), Caller("token:stranger")
FLOOD = "print('x' * 50_000)"


async def run(engine: ExecEngine, code: str) -> Execution:
    session = await engine.create_session(ME, SessionRequest())
    handle = await engine.execute(ME, session.id, ExecutionRequest(code))
    return await handle.wait()


async def read(engine: ExecEngine, caller: Caller, execution_id: str, name: str) -> bytes:
    reader = await engine.outputs.open(caller, execution_id, name)
    try:
        return b"".join([block async for block in reader.blocks()])
    finally:
        await reader.close()


async def test_an_output_belongs_to_whom_its_execution_belongs(make_engine: Make) -> None:
    engine = make_engine(max_output_bytes=1000)
    record = await run(engine, FLOOD)
    assert await read(engine, ME, record.id, "stdout") == b"x" * 50_000 + b"\n"
    assert await read(engine, owner(), record.id, "stdout") == b"x" * 50_000 + b"\n"
    for caller, execution_id in ((OTHER, record.id), (ME, "exe_unknown")):
        with pytest.raises(ExecutionNotFound):
            await engine.outputs.open(caller, execution_id, "stdout")
    with pytest.raises(OutputNotFound, match="there are: stdout"):
        await engine.outputs.open(ME, record.id, "../executions.db")


def test_to_read_an_output_is_to_read_an_execution() -> None:
    access = {route.path: route.methods for route in ROUTES}
    assert access["/executions/{execution_id}/outputs/{name}"] == access["/executions/{execution_id}"]


async def test_an_output_that_somebody_removed_is_said_to_be_gone(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine(max_output_bytes=1000)
    record = await run(engine, FLOOD)
    (path,) = tmp_path.rglob("*.outputs/stdout")
    path.unlink()
    with pytest.raises(OutputExpired):
        await engine.outputs.open(ME, record.id, "stdout")


async def test_where_nothing_beyond_the_cap_is_kept_that_is_said(
    make_engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(max_output_bytes=1000)
    monkeypatch.setattr(engine._store.executions, "_max_spool_bytes", 0)
    record = await run(engine, FLOOD)
    assert record.state is ExecutionState.OK
    assert record.truncated is not None
    assert record.truncated.stdout_bytes > 49_000
    assert record.spooled == ()
    assert "max_spool_bytes is 0" in str(record.truncated.unspooled_reason)
    assert list(tmp_path.rglob("*.outputs")) == []


async def test_a_run_within_its_cap_never_touches_the_spool(
    make_engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(max_output_bytes=100_000)
    opened: list[Any] = []
    monkeypatch.setattr(engine._store.executions, "spool", opened.append)
    record = await run(engine, "print('x' * 90_000)\ndisplay(1)")
    assert record.truncated is None
    assert (opened, list(tmp_path.rglob("*.outputs"))) == ([], [])


async def test_a_disk_that_fills_up_while_spooling_breaks_no_run(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(max_output_bytes=1000)
    write = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if ".outputs/" in os.readlink(f"/proc/self/fd/{fd}") and offset >= 10_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:10_000], offset)

    monkeypatch.setattr(os, "pwrite", full)
    record = await run(engine, FLOOD + "\n1 + 1")
    assert record.state is ExecutionState.OK
    assert record.outputs[-1]["data"] == {"text/plain": "2"}
    assert record.truncated is not None
    assert [(output.size_bytes, output.complete) for output in record.spooled] == [(10_000, False)]
    assert record.truncated.unspooled_reason == "it could not be written: No space left on device"
    assert await read(engine, ME, record.id, "stdout") == b"x" * 10_000
    assert engine.trouble() is None
