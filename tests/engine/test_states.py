"""F12: any order of requests leaves every execution with one end, and the end that its code and the requests allow."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.executions import ExecutionHandle
from jupyter_exec_ext.engine.stream import follow
from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest
from jupyter_exec_ext.store.store import ExecStore
from jupyter_exec_ext.wire.jsontext import loads_strict

from .scripted import ScriptedHost

SCALE = int(os.environ.get("EXEC_FAULT_SCALE", "1"))
ME = owner("me")
S = ExecutionState
# How each code ends if nobody interferes. The time limit is for those that would not end.
ALONE = {
    "ok": {S.OK},
    "error": {S.ERROR},
    "die": {S.KERNEL_DIED},
    "wait": {S.TIMEOUT},
    "stubborn": {S.TIMEOUT},
}
CANCELLED = {S.CANCELLED}
INTERRUPTED = {S.INTERRUPTED, S.ERROR}


@dataclass
class Expected:
    """What the model knows of an execution."""

    code: str
    handle: ExecutionHandle
    allowed: set[ExecutionState] = field(default_factory=set)


class EngineMachine(RuleBasedStateMachine):
    """One engine, up to three sessions; requests overlap as they please."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.mkdtemp()
        self.host = ScriptedHost(self.directory)
        self.number = 0
        self.sessions: list[str] = []
        self.ended: set[str] = set()
        self.expected: dict[str, list[Expected]] = {}
        self.background: list[asyncio.Task[Any]] = []
        self.engine: ExecEngine = self.run(self._make())

    async def _make(self) -> ExecEngine:
        store = ExecStore(path=self.directory, reserve_bytes=0)
        engine = ExecEngine(self.host, store, interrupt_grace_seconds=0.01, session_directories=False)
        self.host.context = engine._resources.context
        return engine

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    def open_executions(self, session_id: str) -> list[Expected]:
        return [e for e in self.expected[session_id] if not e.handle.record.state.finished]

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something and go on without waiting for it."""
        self.background.append(self.loop.create_task(work))
        self.run(asyncio.sleep(0))

    # --- what may be asked, in any order ---

    @precondition(lambda self: len(self.sessions) - len(self.ended) < 3)
    @rule()
    def create(self) -> None:
        session_id = self.run(self.engine.create_session(ME, SessionRequest())).id
        self.sessions.append(session_id)
        self.expected[session_id] = []

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), word=st.sampled_from([*ALONE, "ok", "ok", "wait"]))
    def submit(self, data: st.DataObject, word: str) -> None:
        session_id = data.draw(st.sampled_from(self.sessions))
        self.number += 1
        code = f"{word} {self.number}"
        request = ExecutionRequest(code, timeout_seconds=0.05)
        try:
            handle = self.run(self.engine.execute(ME, session_id, request))
        except SessionEnded:
            assert session_id in self.ended
            return
        assert session_id not in self.ended
        self.expected[session_id].append(Expected(code, handle, set(ALONE[word])))

    @precondition(lambda self: any(self.expected.values()))
    @rule(data=st.data(), wait=st.booleans())
    def cancel(self, data: st.DataObject, wait: bool) -> None:
        chosen = data.draw(st.sampled_from([e for some in self.expected.values() for e in some]))
        if not chosen.handle.record.state.finished:
            chosen.allowed |= CANCELLED
        work = self.engine.cancel(ME, chosen.handle.record.id)
        self.run(work) if wait else self.start(work)

    @precondition(lambda self: set(self.sessions) - self.ended)
    @rule(data=st.data(), wait=st.booleans())
    def interrupt(self, data: st.DataObject, wait: bool) -> None:
        session_id = data.draw(st.sampled_from(sorted(set(self.sessions) - self.ended)))
        for execution in self.open_executions(session_id)[:2]:
            execution.allowed |= INTERRUPTED
        work = self.engine.interrupt_session(ME, session_id)
        self.run(work) if wait else self.start(work)

    @precondition(lambda self: set(self.sessions) - self.ended)
    @rule(data=st.data(), wait=st.booleans())
    def restart(self, data: st.DataObject, wait: bool) -> None:
        session_id = data.draw(st.sampled_from(sorted(set(self.sessions) - self.ended)))
        for execution in self.open_executions(session_id):
            execution.allowed |= CANCELLED
        work = self._restart(session_id)
        self.run(work) if wait else self.start(work)

    async def _restart(self, session_id: str) -> None:
        try:
            await self.engine.restart_session(ME, session_id)
        except SessionEnded:
            assert session_id in self.ended

    @precondition(lambda self: set(self.sessions) - self.ended)
    @rule(data=st.data(), wait=st.booleans())
    def delete(self, data: st.DataObject, wait: bool) -> None:
        session_id = data.draw(st.sampled_from(sorted(set(self.sessions) - self.ended)))
        for execution in self.open_executions(session_id):
            execution.allowed |= CANCELLED
        self.ended.add(session_id)
        work = self.engine.delete_session(ME, session_id)
        self.run(work) if wait else self.start(work)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.005, 0.03, 0.08]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # --- what must hold ---

    @invariant()
    def each_code_began_at_most_once(self) -> None:
        assert len(self.host.ran) == len(set(self.host.ran))

    def teardown(self) -> None:
        try:
            self.run(self._settle())
        finally:
            self.run(self.engine.shutdown())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.directory)

    async def _settle(self) -> None:
        if self.background:
            for outcome in await asyncio.gather(*self.background, return_exceptions=True):
                assert outcome is None or not isinstance(outcome, BaseException), repr(outcome)
        for session_id, executions in self.expected.items():
            for execution in executions:
                record = await execution.handle.wait()
                assert record.state in execution.allowed, (execution.code, record.state, record.reason)
                assert await self.engine.get_execution(ME, record.id) == record or record.files == ()
                log = await self.engine.open_log(ME, record.id)
                events = [loads_strict(entry.text()) async for batch in follow(log) for entry in batch]
                assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
                assert [event["type"] for event in events].count("end") == 1
                assert events[-1]["execution"]["state"] == record.state.value
                began = execution.code in self.host.ran
                assert began or record.state in CANCELLED | {S.KERNEL_DIED}, execution.code
            order = [e.code for e in executions if e.code in self.host.ran]
            assert order == [code for code in self.host.ran if code in set(order)]
            state = (await self.engine.get_session(ME, session_id)).state.value
            assert (state == "ended") == (session_id in self.ended), state


TestStates = EngineMachine.TestCase
TestStates.settings = settings(
    max_examples=40 * SCALE if SCALE < 10 else 2000,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
