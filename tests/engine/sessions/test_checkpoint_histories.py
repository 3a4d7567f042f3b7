"""Random histories of sessions with checkpoints, returns and branches, against a model that runs each line again.

The model of a session is its line: the steps that have led to its state. At the end of a history each session must have
what a fresh session has in which that line was run: variables, output history, counts, files and directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.assembly import build_engine, build_host
from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.models import Checkpoint, Execution, ExecutionRequest, ExecutionState, SessionRequest
from tests.support.blocking_client import LoopThread
from tests.support.kernelspecs import add_kernelspec
from tests.support.waiting import until, wait_until

ME = owner("me")
MAX_SESSIONS = 3
# The full run has five batches, each a part of its own, so that it can be stopped between them.
BATCH = os.environ.get("EXEC_TEST_HISTORIES")
HISTORIES = 200 if BATCH else 10
_LIMIT_SECONDS = 0.5
BEGIN = """\
import os, json, time
x, names, made = 0, [], []
def hang(): {hang}
"""
# What a session's code can do; the same in the model, but for `hang`.
CELLS = {
    "add": "x += 1; x",
    "append": "names.append(x); names",
    "file": "made.append(open(f'f{x}', 'a').write('line')); len(made)",
    "directory": "os.makedirs('d', exist_ok=True); os.chdir('d')",
    "error": "x += 10; 1 / 0",
    "output": "[_ if isinstance(_, int) else 0, len(Out)]",
    "hang": "x += 100; hang()",
}
INTERRUPTED = "x += 1000; _ = 1; open(f'begun{x}', 'a').write('.'); hang()"
DIE, RESTART = "os._exit(3)", "restart"
PROBE = """\
def read_all(place):
    found = {}
    for here, _, files in os.walk(place):
        for name in files:
            path = os.path.join(here, name)
            found[os.path.relpath(path, place)] = open(path).read()
    return found
print(json.dumps([
    x, names, made, repr(Out), repr(_), len(In), get_ipython().execution_count, os.path.relpath(os.getcwd(), ROOT),
    read_all(ROOT), [code for code in In[2:] if 'ROOT' not in code],
]))
"""

run_steps = st.tuples(st.just("run"), st.sampled_from(sorted(CELLS)), st.integers(0, 2))
restore_steps = st.tuples(st.just("restore"), st.integers(0, 2), st.integers(0, 3))
steps = st.one_of(
    run_steps,
    run_steps,
    restore_steps,
    restore_steps,
    st.tuples(st.just("checkpoint"), st.integers(0, 2)),
    st.tuples(st.just("branch"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["die", "restart", "interrupt"]), st.integers(0, 2)),
)


@dataclass
class Modelled:
    """A session and its line; `checkpoints` have the lines that they keep."""

    id: str
    line: list[str] = field(default_factory=list)
    checkpoints: list[tuple[Checkpoint, list[str]]] = field(default_factory=list)


class History:
    """One history on an engine."""

    def __init__(self, engine: ExecEngine, known: dict[tuple[str, ...], Any]) -> None:
        self.engine = engine
        self.known = known  # what lines give, which earlier histories have had, too
        self.sessions: list[Modelled] = []
        self.ends: list[asyncio.Task[None]] = []

    async def run(self, session_id: str, code: str, timeout_seconds: float | None = None) -> Execution:
        request = ExecutionRequest(code, timeout_seconds=timeout_seconds)
        return await asyncio.wait_for((await self.engine.execute(ME, session_id, request)).wait(), 60)

    async def begin(self, hang: str) -> str:
        session_id = (await self.engine.create_session(ME, SessionRequest())).id
        await self.set_up(session_id, hang)
        return session_id

    async def set_up(self, session_id: str, hang: str) -> None:
        done = await self.run(
            session_id, BEGIN.format(hang=hang) + f"ROOT = os.path.join({self.root!r}, {session_id!r})"
        )
        assert done.state is ExecutionState.OK, done.error

    @property
    def root(self) -> str:
        return str(Path(self.engine.work_root).absolute())

    async def take(self, step: tuple[Any, ...]) -> None:
        kind, number = step[0], step[-1] if step[0] == "run" else step[1]
        modelled = self.sessions[number % len(self.sessions)]
        if kind == "run":
            await self.run(modelled.id, CELLS[step[1]], _LIMIT_SECONDS if step[1] == "hang" else None)
            modelled.line.append(CELLS[step[1]])
        elif kind == "interrupt":
            await self.interrupt(modelled.id)
            modelled.line.append(INTERRUPTED)
        elif kind in ("die", "restart"):
            await (self.run(modelled.id, DIE) if kind == "die" else self.engine.restart_session(ME, modelled.id))
            await self.set_up(modelled.id, "time.sleep(60)")
            modelled.line.append(RESTART)
        elif (kind == "checkpoint" and len(modelled.checkpoints) < 4) or (
            kind == "restore" and not modelled.checkpoints
        ):
            made = await self.engine.checkpoints.create(ME, modelled.id)
            modelled.checkpoints.append((made, list(modelled.line)))
        elif kind == "restore" and modelled.checkpoints:
            checkpoint, line = modelled.checkpoints[step[2] % len(modelled.checkpoints)]
            await self.engine.checkpoints.restore(ME, modelled.id, checkpoint.id)
            modelled.line = list(line)
        elif kind == "branch" and len(self.sessions) < MAX_SESSIONS:
            (branch,) = await self.engine.checkpoints.branch(ME, modelled.id)
            await self.run(branch.id, f"ROOT = os.path.join({self.root!r}, {branch.id!r})")
            self.sessions.append(Modelled(branch.id, ["ROOT" if line is None else line for line in modelled.line]))
            self.sessions[-1].line.append("ROOT")

    async def interrupt(self, session_id: str) -> None:
        """Interrupt code when it has changed the state."""
        directory = Path(self.root) / session_id

        def marks() -> int:
            return sum(path.stat().st_size for path in directory.rglob("begun*"))

        before = marks()
        execution = await self.engine.execute(ME, session_id, ExecutionRequest(INTERRUPTED))
        await until(lambda: marks() > before)
        await self.engine.interrupt_session(ME, session_id)
        done = await asyncio.wait_for(execution.wait(), 60)
        assert done.state is ExecutionState.INTERRUPTED, done

    async def probe(self, session_id: str) -> Any:
        done = await self.run(session_id, PROBE)
        assert done.state is ExecutionState.OK, done.error
        return json.loads(done.stdout)

    async def expected(self, line: list[str]) -> Any:
        """Return what a fresh session has in which a line was run."""
        if tuple(line) not in self.known:
            self.known[tuple(line)] = await self.run_line(line)
        return self.known[tuple(line)]

    async def run_line(self, line: list[str]) -> Any:
        raises = "raise KeyboardInterrupt"
        session_id = await self.begin(raises)
        for code in line:
            if code == RESTART:
                await self.engine.restart_session(ME, session_id)
                await self.set_up(session_id, raises)
            else:
                await self.run(session_id, "ROOT = ROOT" if code == "ROOT" else code)
        found = await self.probe(session_id)
        self.end(session_id)
        return found

    def end(self, session_id: str) -> None:
        """Delete a session while others go on."""
        self.ends.append(asyncio.create_task(self.engine.delete_session(ME, session_id)))

    async def play(self, history: list[tuple[Any, ...]]) -> None:
        self.sessions.append(Modelled(await self.begin("time.sleep(60)")))
        for step in history:
            await self.take(step)
        found = await asyncio.gather(*(self.probe(modelled.id) for modelled in self.sessions))
        for modelled in self.sessions:
            self.end(modelled.id)
        expected = await asyncio.gather(*(self.expected(modelled.line) for modelled in self.sessions))
        await asyncio.gather(*self.ends)
        for modelled, state, right in zip(self.sessions, found, expected, strict=True):
            assert state == right, modelled.line


Playing = tuple[LoopThread, ExecEngine, dict[tuple[str, ...], Any]]


@pytest.fixture(scope="module")
def playing(record_testsuite_property: Callable[[str, object], None]) -> Iterator[Playing]:
    """An engine on an event loop of its own, with forked kernels."""
    loop = LoopThread()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as runtime:
        add_kernelspec(Path(home), "python3", "forkserver-provisioner")

        async def make() -> tuple[AsyncMappingKernelManager, ExecEngine]:
            specs = KernelSpecManager()
            specs.kernel_dirs = [str(Path(home) / "jupyter_data_dir" / "kernels"), *specs.kernel_dirs]
            manager = AsyncMappingKernelManager(kernel_spec_manager=specs, connection_dir=runtime)
            engine = build_engine(build_host(manager, specs), work_root=str(Path(home) / "work"), pool_size=0)
            return manager, engine

        manager, engine = loop.run(make())
        known: dict[tuple[str, ...], Any] = {}
        yield loop, engine, known
        record_testsuite_property("different lines compared", len(known))
        loop.run(engine.shutdown())
        manager.__del__()
        loop.close()


def repeatable(test: Callable[..., None]) -> Callable[..., None]:
    """Return a test with the histories of its batch."""
    return seed(int(BATCH))(test) if BATCH else test


@pytest.mark.timeout(3600)
@repeatable
@settings(
    max_examples=HISTORIES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(steps, min_size=5, max_size=14))
def test_each_session_has_what_its_line_gives(playing: Playing, history: list[tuple[Any, ...]]) -> None:
    loop, engine, known = playing
    descriptors = psutil.Process().num_fds()
    loop.run(History(engine, known).play(history))
    wait_until(lambda: psutil.Process().num_fds() <= descriptors + 12)  # the first history opens the database's files
