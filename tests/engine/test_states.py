"""F12: whatever is asked at once, every answer is one that some order of the requests explains.

A Hypothesis state machine sends requests to an engine without waiting for the ones before, and ends kernels behind its
back. Nothing is real but the engine and the store: time, threads and kernels are simulated, so a sequence that fails
once fails always. The model is a history, of requests by when they began and ended and of code by when the kernel
began and ended it; from it follows what each execution may, and what it must, have ended as.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.executions import ExecutionHandle
from jupyter_exec_ext.engine.ports import KernelExit
from jupyter_exec_ext.engine.stream import follow
from jupyter_exec_ext.errors import (
    ExecError,
    KernelStartFailed,
    QueueFull,
    SessionEnded,
    ShuttingDown,
    StoreUnavailable,
    TooManySessions,
)
from jupyter_exec_ext.models import Execution, ExecutionRequest, ExecutionState, SessionRequest
from jupyter_exec_ext.store.store import ExecStore
from jupyter_exec_ext.wire.jsontext import loads_strict

from .scripted import DEAF_SECONDS, LATENCY_SECONDS, Run, ScriptedHost
from .simulation import SimulatedLoop

SCALE = int(os.environ.get("EXEC_FAULT_SCALE", "1"))
ME = owner("me")
MAX_SESSIONS = 3
MAX_QUEUED = 3
LIMIT_SECONDS = 1.0
SLACK_SECONDS = 5 * LATENCY_SECONDS
KILL_SECONDS = 4.0  # how much longer than its limit code may run that has to be killed


S = ExecutionState
# How code ends that is left alone.
ALONE = {"ok": S.OK, "error": S.ERROR, "die": S.KERNEL_DIED, "wait": S.TIMEOUT, "stubborn": S.TIMEOUT}


@dataclass
class Asked:
    """One request, from when it was made to when it was answered."""

    kind: str
    session: str
    at: float
    target: Submission | None = None
    answered_at: float = float("inf")
    refused: bool = False

    def __str__(self) -> str:
        what = f" {self.target.code!r}" if self.target else ""
        what += ", refused" if self.refused else ""
        return f"{self.at:.6f}-{self.answered_at:.6f} {self.session[-4:]} {self.kind}{what}"

    def overlaps(self, start: float, end: float) -> bool:
        return self.at <= end and start <= self.answered_at


@dataclass
class Submission(Asked):
    """A request to run code, and what became of it."""

    code: str = ""
    handle: ExecutionHandle | None = None
    finished_at: float = float("inf")
    seen: ExecutionState = S.QUEUED

    def __str__(self) -> str:
        end = f"{self.record.state.value} at {self.finished_at:.6f}" if self.handle else "refused"
        return f"{super().__str__()} {self.code!r}: {end}"

    @property
    def word(self) -> str:
        return self.code.partition(" ")[0]

    @property
    def record(self) -> Execution:
        assert self.handle is not None
        return self.handle.record

    @property
    def lasts_until(self) -> float:
        return self.finished_at if self.handle else self.answered_at

    @property
    def limit_seconds(self) -> float:
        return LIMIT_SECONDS if self.word in ("wait", "stubborn") else 60.0

    @property
    def request(self) -> ExecutionRequest:
        return ExecutionRequest(self.code, timeout_seconds=self.limit_seconds)


class EngineMachine(RuleBasedStateMachine):
    """One engine, a few sessions, and requests that overlap as they please."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(0)
        self.host = ScriptedHost(self.random)
        self.loop = SimulatedLoop(self.host.delay)
        self.loop.set_exception_handler(lambda _, context: self.problems.append(str(context)))
        self.directory = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.problems = self.host.problems
        self.sessions: list[str] = []
        self.asked: list[Asked] = []
        self.kills: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.stopped_at = float("inf")
        self.abruptly = False
        # Their processes are not real, and looking through the real ones would take most of the time.
        self.patch = mock.patch("jupyter_exec_ext.engine.session_kernel.kill_marked", return_value=[])
        self.patch.start()
        self.engine: ExecEngine = self.run(self._make())

    async def _make(self) -> ExecEngine:
        log = logging.Logger("engine")  # noqa: LOG001 - one of its own
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.problems.append(logging.Formatter().format(record))  # type: ignore[method-assign]
        log.addHandler(handler)
        store = ExecStore(path=self.directory, reserve_bytes=0, log=log)
        engine = ExecEngine(
            self.host,
            store,
            max_sessions=MAX_SESSIONS,
            max_queued_executions=MAX_QUEUED,
            session_idle_timeout_seconds=0.0,
            session_directories=False,
            log=log,
        )
        self.host.context = engine._resources.context  # inproc addresses are those of a context
        return engine

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @property
    def now(self) -> float:
        return self.loop.time()

    @property
    def submissions(self) -> list[Submission]:
        return [asked for asked in self.asked if isinstance(asked, Submission)]

    @property
    def accepted(self) -> list[Submission]:
        return [submission for submission in self.submissions if submission.handle is not None]

    # --- what may be asked, in any order ---

    @initialize(seed=st.integers(0, 2**32), abruptly=st.booleans())
    def begin(self, seed: int, abruptly: bool) -> None:
        self.random.seed(seed)
        self.abruptly = abruptly
        self.create(wait=True)

    @rule(wait=st.booleans())
    def create(self, wait: bool) -> None:
        async def work() -> None:
            self.sessions.append((await self.engine.create_session(ME, SessionRequest())).id)

        self.ask(Asked("create", "", self.now), work(), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7), word=st.sampled_from([*ALONE, "ok", "ok", "wait"]), wait=st.booleans())
    def submit(self, pick: int, word: str, wait: bool) -> None:
        code = f"{word} {len(self.asked)}"
        submission = Submission("submit", self.pick(pick), self.now, code=code)
        self.ask(submission, self.submitted(submission), wait)

    @precondition(lambda self: self.accepted)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def submit_again(self, pick: int, wait: bool) -> None:
        """As a client does that has lost the answer."""
        first = self.accepted[-1 - pick % len(self.accepted)]
        self.ask(Asked("submit again", first.session, self.now, first), self.submitted(first), wait)

    async def submitted(self, submission: Submission) -> None:
        key = submission.code
        handle = await self.engine.execute(ME, submission.session, submission.request, key)
        if submission.handle is not None:
            assert handle.record.id == submission.record.id, f"{submission.code!r} was accepted twice"
            return
        submission.handle = handle
        self.loop.create_task(self.note_end(submission))

    async def note_end(self, submission: Submission) -> None:
        assert submission.handle is not None
        await submission.handle.wait()
        submission.finished_at = self.now

    @precondition(lambda self: self.accepted)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def cancel(self, pick: int, wait: bool) -> None:
        target = self.accepted[-1 - pick % len(self.accepted)]
        self.ask(Asked("cancel", target.session, self.now, target), self.engine.cancel(ME, target.record.id), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def interrupt(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("interrupt", session, self.now), self.engine.interrupt_session(ME, session), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def restart(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("restart", session, self.now), self.engine.restart_session(ME, session), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def delete(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("delete", session, self.now), self.engine.delete_session(ME, session), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7))
    def look(self, pick: int) -> None:
        """What is read is never older than what was read before."""
        session = self.pick(pick)
        for record in self.run(self.engine.list_executions(ME, session, 1000)):
            self.note_seen(record)
        for submission in self.accepted[-2:]:
            self.note_seen(self.run(self.engine.get_execution(ME, submission.record.id)))
        listed = [record.id for record in self.run(self.engine.list_sessions(ME))]
        assert len(listed) == len(set(listed)) and len(listed) <= MAX_SESSIONS

    @precondition(lambda self: any(process.alive for process in self.host.processes))
    @rule(pick=st.integers(0, 7))
    def a_kernel_dies(self, pick: int) -> None:
        alive = [process for process in self.host.processes if process.alive]
        victim = alive[pick % len(alive)]
        self.kills.append((victim.session_id, self.now))
        victim.end(KernelExit(signal="SIGKILL"))

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.005, 0.02, 0.3, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def everything_ends(self) -> None:
        self.run(self._everything_ends())

    def pick(self, number: int) -> str:
        """Return a session, for 0 the newest, else one that lives, so that most requests find something to do."""
        ended = {asked.session for asked in self.asked if asked.kind == "delete"}
        living = [session for session in self.sessions if session not in ended] or self.sessions
        return living[number % len(living)] if number else self.sessions[-1]

    def ask(self, asked: Asked, work: Awaitable[object], wait: bool) -> None:
        self.asked.append(asked)
        task = self.loop.create_task(self._answer(asked, work))
        self.tasks.append(task)
        self.run(asyncio.shield(task) if wait else asyncio.sleep(0))

    async def _answer(self, asked: Asked, work: Awaitable[object]) -> None:
        try:
            await work
        except ExecError as error:
            asked.refused = True
            if not self.may_refuse(asked, error):
                self.problems.append(f"{asked}: {error!r}")
        except Exception as error:
            self.problems.append(f"{asked}: {error!r}")
        finally:
            asked.answered_at = self.now

    # --- what must hold meanwhile ---

    @invariant()
    def nothing_goes_wrong(self) -> None:
        assert not self.problems, self.problems
        for submission in self.accepted:
            self.note_seen(submission.record, submission)
        for session in self.sessions:
            queued = [s for s in self.accepted if s.session == session and s.record.state is S.QUEUED]
            assert len(queued) <= MAX_QUEUED + 1  # the one whose turn it is may still wait for the kernel

    def note_seen(self, record: Execution, submission: Submission | None = None) -> None:
        found = submission or next((s for s in self.accepted if s.record.id == record.id), None)
        if found is None:  # its request is not answered yet
            return
        if record.state is not found.seen:
            assert not found.seen.finished, f"{found.code!r} was {found.seen.value} and then {record.state.value}"
            assert record.state is not S.QUEUED, f"{found.code!r} was {found.seen.value} and then queued"
        found.seen = record.state

    def may_refuse(self, asked: Asked, error: ExecError) -> bool:
        if self.stopped_at <= self.now and isinstance(error, (ShuttingDown, StoreUnavailable, SessionEnded)):
            return True
        if isinstance(error, SessionEnded):
            first = asked.target if asked.kind == "submit again" else None
            ended = any(other.kind == "delete" and other.session == asked.session for other in self.asked)
            return ended and first is None
        if isinstance(error, KernelStartFailed):
            return asked.kind in ("create", "restart") and self.killed(asked.session, asked.at, self.now)
        if isinstance(error, QueueFull):
            # A request holds a place while it is answered, an execution until its turn has come.
            places = [
                other
                for other in self.asked
                if other.kind.startswith("submit") and other.session == asked.session and other is not asked
                if other.answered_at >= asked.at or (isinstance(other, Submission) and other.lasts_until >= asked.at)
            ]
            return asked.kind == "submit" and len(places) >= MAX_QUEUED
        if isinstance(error, TooManySessions):
            created = [
                other
                for other in self.asked
                if other.kind == "create"
                and other is not asked
                and not (other.refused and other.answered_at < asked.at)
            ]
            deleted = [other for other in self.asked if other.kind == "delete" and other.answered_at < asked.at]
            return len(created) - len({other.session for other in deleted}) >= MAX_SESSIONS
        return False

    def killed(self, session: str, start: float, end: float) -> bool:
        """Whether a kernel of the session died behind the engine's back, or that became known, in this time."""
        return any(
            session in ("", victim) and start - LATENCY_SECONDS - SLACK_SECONDS <= at <= end
            for victim, at in self.kills
        )

    # --- what must hold in the end ---

    async def _everything_is_answered(self) -> None:
        for task in self.tasks:
            await task
        self.tasks.clear()

    async def _everything_ends(self) -> None:
        await self._everything_is_answered()
        for submission in self.accepted:
            await submission.handle.wait()  # type: ignore[union-attr]
        await asyncio.sleep(2.0)  # kernels start anew
        assert self.engine.activity() == {}
        ended = {asked.session for asked in self.asked if asked.kind == "delete"}
        for session in self.sessions:
            state = (await self.engine.get_session(ME, session)).state.value
            assert state == ("ended" if session in ended else "idle"), state
            assert not (session in ended and self.host.living(session))

    async def _everything_works_still(self) -> None:
        """Every place in every queue, and every place for a session, is free again."""
        for session in await self.engine.list_sessions(ME):
            requests = [
                Submission("submit", session.id, self.now, code=f"ok {session.id} {n}") for n in range(MAX_QUEUED)
            ]
            self.asked.extend(requests)
            await asyncio.gather(*(self._answer(request, self.submitted(request)) for request in requests))
        for _ in range(MAX_SESSIONS - len(await self.engine.list_sessions(ME))):
            await self.engine.create_session(ME, SessionRequest())
        await self._everything_ends()

    def teardown(self) -> None:
        try:
            if not self.abruptly:
                self.run(self._everything_ends())
                self.run(self._everything_works_still())
            self.stopped_at = self.now
            self.run(self.engine.shutdown())
            self.run(self._everything_is_answered())
            assert not asyncio.all_tasks(self.loop)
            assert not self.host.kernels and not any(process.alive for process in self.host.processes)
            self.nothing_goes_wrong()
            self.run(self._compare_with_the_store())
            self.judge()
        finally:
            self.patch.stop()
            self.engine._resources.close()
            self.loop.close()
            shutil.rmtree(self.directory)

    async def _compare_with_the_store(self) -> None:
        """What a later server finds is what this one said."""
        store = ExecStore(path=self.directory, reserve_bytes=0)
        try:
            for submission in self.accepted:
                stored = await store.executions.get(submission.record.id)
                log = await store.executions.log(submission.record.id)
                assert stored is not None and log is not None, submission.code
                assert stored.execution == submission.record
                events = [loads_strict(entry.text()) async for batch in follow(log) for entry in batch]
                assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
                assert [event["type"] for event in events].count("end") == 1
                assert events[-1]["execution"]["state"] == submission.record.state.value
            for session in self.sessions:
                record = await store.sessions.get(session)
                assert record is not None and record.state.value == "ended"
        finally:
            store.close()

    def judge(self) -> None:
        """Hold every outcome against the history."""
        for submission in self.accepted:
            assert submission.record.state.finished, submission
            run = self.host.runs.get(submission.code)
            story = "\n".join(map(str, [submission, run, self.kills, *self.asked]))
            assert self.explained(submission, run), story
            assert all(self.obeyed(asked, submission, run) for asked in self.asked), story
            if run is not None:
                assert submission.at <= run.began <= submission.finished_at
                assert submission.finished_at <= run.began + submission.limit_seconds + KILL_SECONDS, story
                died = run.process.ended_at is not None and run.process.ended_at <= submission.finished_at
                assert submission.record.session_state_preserved or died, story
                cut = run.over is not None and run.over == run.process.ended_at
                assert not (submission.record.session_state_preserved and cut), story
        for session in self.sessions:
            self.judge_order([s for s in self.accepted if s.session == session])

    def judge_order(self, submissions: list[Submission]) -> None:
        by_code = {submission.code: submission for submission in submissions}
        began = [(run, by_code[code]) for code, run in self.host.runs.items() if code in by_code]
        for (_, earlier), (run, later) in pairwise(began):
            assert earlier.finished_at <= run.began, f"{earlier}, {later}"
            assert later.answered_at >= earlier.at, f"{earlier}, {later}"

    def explained(self, submission: Submission, run: Run | None) -> bool:
        """Whether the code, a request or a fault is a reason for the state."""
        state, life = submission.record.state, (submission.at, submission.finished_at)
        mine = [
            asked
            for asked in self.asked
            if asked.session == submission.session and asked.target in (None, submission) and asked.overlaps(*life)
        ]
        kinds = {asked.kind for asked in mine}
        if state is S.CANCELLED:
            return bool(kinds & {"cancel", "restart", "delete"})
        if state is S.INTERRUPTED:
            return "interrupt" in kinds and submission.word == "wait"
        if state is S.SERVER_RESTARTED:
            return self.stopped_at <= submission.finished_at
        if state is S.KERNEL_DIED and self.killed(submission.session, *life):
            return True
        if state is not ALONE[submission.word] or run is None or run.over is None:
            return False
        if state is S.TIMEOUT:
            return submission.finished_at - run.began >= LIMIT_SECONDS - SLACK_SECONDS
        return run.over <= submission.finished_at

    def obeyed(self, asked: Asked, submission: Submission, run: Run | None) -> bool:
        """Whether a request has done to this execution what it must do."""
        if asked.refused or asked.session != submission.session or asked.target not in (None, submission):
            return True
        if asked.kind == "interrupt":
            ready = submission.word == "wait" and run is not None and run.began + DEAF_SECONDS <= asked.at
            return not ready or run is None or (run.over is not None and run.over <= asked.answered_at)
        if asked.kind not in ("cancel", "restart", "delete") or asked.at <= submission.answered_at:
            return True
        if submission.finished_at > asked.answered_at:
            return False
        # These take hold at once. What was neither over by then, nor about to be, is cancelled.
        if asked.kind == "restart" or submission.finished_at <= asked.at or submission.record.state is S.CANCELLED:
            return True
        if run is None:  # it was sent to a kernel that was dead by then
            return submission.record.state is S.KERNEL_DIED
        over = run.over if run.over is not None else float("inf")
        if submission.record.state is S.TIMEOUT:
            over = run.began + LIMIT_SECONDS - SLACK_SECONDS
        return over <= asked.at


# Enough for finding the shortest sequence that fails, which takes longer than finding one.
TestStates = pytest.mark.timeout(600 if SCALE < 10 else 3600)(EngineMachine.TestCase)
TestStates.settings = settings(
    max_examples=200 if SCALE < 10 else 2000,
    stateful_step_count=50,
    deadline=None,
    # The tenth for each commit is the same for all, so that what fails was broken by it; in full, it looks for more.
    derandomize=SCALE < 10,
    suppress_health_check=list(HealthCheck),
)
