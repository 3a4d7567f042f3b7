"""F12: whatever is asked at once, every answer is one that some order of the requests explains.

A Hypothesis state machine sends requests to an engine without waiting for the ones before, and ends kernels behind its
back. Nothing is real but the engine and the store: time, threads and kernels are simulated, so a sequence that fails
once fails always. The model is a history, of requests by when they began and ended and of code by when the kernel
began and ended it; from it follows what each execution may, and what it must, have ended as.

Sessions belong to the owner or to tokens, which expire or are revoked meanwhile. Some of the tokens' code waits
until it is approved, as it is or with other code.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable
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
from jupyter_exec_ext.engine.executions.lifecycle import Verdict, advance
from jupyter_exec_ext.engine.executions.live_execution import follow
from jupyter_exec_ext.engine.executions.runner import KernelRun
from jupyter_exec_ext.engine.ports import KernelExit
from jupyter_exec_ext.errors import (
    ExecError,
    KernelStartFailed,
    NotAwaitingApproval,
    QueueFull,
    SessionEnded,
    ShuttingDown,
    StoreUnavailable,
    TooManySessions,
)
from jupyter_exec_ext.models import (
    ApprovalAnswer,
    AuditKind,
    Decision,
    Execution,
    ExecutionState,
    SessionRequest,
    TokenRequest,
)
from jupyter_exec_ext.protocol.run_states import Process
from jupyter_exec_ext.protocol.strict_json import loads_strict
from jupyter_exec_ext.store.audit_table import AuditReader
from jupyter_exec_ext.store.store import ExecStore
from tests.support.full import IS_FULL

from .history import LIMIT_SECONDS, NEVER, Asked, Bearer, Submission
from .scripted import DEAF_SECONDS, LATENCY_SECONDS, Run, ScriptedHost
from .simulation import TICK, SimulatedLoop

ME = owner("me", {"username": "me"})
OWNER = Bearer(ME)
MAX_SESSIONS = 3
MAX_QUEUED = 3
ASK_SECONDS = 1.0  # how long code waits for approval
QUEUE_SECONDS = 1.5  # how long a token's code waits for its turn
NOTICE_SECONDS = 0.25  # until it is noticed that a token has ended
APPROVAL = {"when": ["pattern"], "pattern": "asks$", "timeout_seconds": ASK_SECONDS}
POLICIES = {
    "patient": {"base": "trusted", "approval": APPROVAL},
    "hasty": {"base": "trusted", "approval": APPROVAL, "max_queue_seconds": QUEUE_SECONDS},
}
SCOPES = ("sessions:create", "sessions:read", "sessions:delete", "executions:create", "executions:control")
MILLISECOND = 0.001  # what a timestamp is exact to
SLACK_SECONDS = 5 * LATENCY_SECONDS
KILL_SECONDS = 4.0  # how much longer than its limit code may run that has to be killed

S = ExecutionState
ACTIONS = {Decision.TIMEOUT: "expired"}  # where the audit trail has another word
MOSTLY = st.sampled_from([True, True, False])
A_TOKEN = ("patient", 3600.0)
TOKENS = st.sampled_from([A_TOKEN, ("hasty", 3600.0), ("hasty", 3.0)])  # the policy and the lifetime in seconds
ANSWERS = st.sampled_from(["approve", "approve", "edit", "reject"])
MAYBE_ANSWERS = st.one_of(st.none(), ANSWERS)
DELAYS = st.sampled_from([0.0, 0.001, 0.005, 0.02, 0.3, 0.99, 1.0])
PROGRESS = (S.AWAITING_APPROVAL, S.QUEUED, S.RUNNING)
# How code ends that is left alone.
ALONE = {"ok": S.OK, "error": S.ERROR, "die": S.KERNEL_DIED, "wait": S.TIMEOUT, "stubborn": S.TIMEOUT}
WORDS = st.sampled_from([*ALONE, "ok", "ok", "wait"])


def checked_run(problems: list[str]) -> Callable[..., Awaitable[Verdict]]:
    """Return `KernelRun.run` with a check of each verdict against the run's states."""
    run_code = KernelRun.run

    async def run(self: KernelRun, code: str, **options: Any) -> Verdict:
        verdict = await run_code(self, code, **options)
        states = self.states
        seen = f"{code!r}: {verdict} after {states.code.name}, {states.stop.name}, {states.process.name}"
        if states.end is None:
            problems.append(f"a verdict without an end: {seen}")
        if verdict.preserved and states.process is not Process.ALIVE:
            problems.append(f"state preserved in a process that has ended: {seen}")
        by_itself = verdict.state in (S.OK, S.ERROR, S.INTERRUPTED)
        if by_itself if states.is_stopping else not (by_itself or verdict.state is S.KERNEL_DIED):
            problems.append(f"the verdict does not follow from the wish: {seen}")
        return verdict

    return run


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
        self.bearers: dict[str, Bearer] = {}  # of the sessions
        self.begun: dict[str, float] = {}
        self.tokens: list[Bearer] = []
        self.answers = 0
        self.asked: list[Asked] = []
        self.kills: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.stopped_at = float("inf")
        self.abruptly = False
        # Their processes are not real, and looking through the real ones would take most of the time.
        self.patches = (
            mock.patch("jupyter_exec_ext.engine.kernels.kernel_processes.kill_marked", return_value=[]),
            mock.patch("time.time", self.loop.wall_time),
            mock.patch.object(KernelRun, "run", checked_run(self.problems)),
        )
        for patch in self.patches:
            patch.start()
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
            policies=POLICIES,
            allow_unprotected_tokens=True,
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

    @initialize(seed=st.integers(0, 2**32), abruptly=st.booleans(), by_token=MOSTLY, token=TOKENS)
    def begin(self, seed: int, abruptly: bool, by_token: bool = False, token: tuple[str, float] = A_TOKEN) -> None:
        self.random.seed(seed)
        self.abruptly = abruptly
        self.issue(token)
        self.create(wait=True, by_token=by_token)

    @precondition(lambda self: self.tokens[-1].may_end_at <= self.now)
    @rule(token=TOKENS)
    def issue(self, token: tuple[str, float]) -> None:
        policy, lifetime = token
        request = TokenRequest("agent", policy=policy, scopes=SCOPES, expires_in_seconds=lifetime)

        async def work(expires_at: float) -> None:
            issued = await self.engine.tokens.create(ME, request)
            caller = self.engine.tokens.authenticate(issued.text, "somewhere")
            self.tokens.append(Bearer(caller, expires_at, queue_seconds=QUEUE_SECONDS if policy == "hasty" else NEVER))

        self.run(work(self.now + lifetime))

    @precondition(lambda self: self.open_to(self.tokens[-1]) and self.engine.activity())
    @rule(wait=st.booleans())
    def revoke(self, wait: bool) -> None:
        token = self.tokens[-1]
        token.revoking_at = min(token.revoking_at, self.now)

        async def work() -> None:
            assert token.caller.token_id is not None
            await self.engine.tokens.revoke(ME, token.caller.token_id)
            token.revoked_at = min(token.revoked_at, self.now)

        self.ask(Asked("revoke", "", self.now), work(), wait)

    @precondition(lambda self: len(self.living) + self.starting() <= MAX_SESSIONS)
    @rule(wait=st.booleans(), by_token=MOSTLY)
    def create(self, wait: bool, by_token: bool = False) -> None:
        """A token's bearer goes on asking when the token has ended, as a request does that was let in before."""
        bearer = self.tokens[-1] if by_token else OWNER

        async def work() -> None:
            session = (await self.engine.create_session(bearer.caller, SessionRequest())).id
            self.sessions.append(session)
            self.bearers[session], self.begun[session] = bearer, self.now

        self.ask(Asked("create", "", self.now, bearer=bearer), work(), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7), word=WORDS, wait=st.booleans())
    def submit(self, pick: int, word: str, wait: bool) -> None:
        code = f"{word} {len(self.asked)}"
        submission = Submission("submit", self.pick(pick), self.now, code=code)
        self.ask(submission, self.submitted(submission), wait)

    @precondition(lambda self: self.open_to(self.tokens[-1]))
    @rule(pick=st.integers(0, 7), word=WORDS, wait=st.booleans(), answer=MAYBE_ANSWERS, other=WORDS, after=DELAYS)
    def submit_what_needs_approval(
        self, pick: int, word: str, wait: bool, answer: str | None = None, other: str = "ok", after: float = 0.0
    ) -> None:
        """The one who decides may see it in the list before the request is answered."""
        sessions = self.open_to(self.tokens[-1])
        code = f"{word} {len(self.asked)} asks"
        submission = Submission("submit", sessions[pick % len(sessions)], self.now, code=code, asks=True)
        if answer is not None:
            said = self.answer(answer, other)
            self.tasks.append(self.loop.create_task(self.decided(submission, said, after)))
        self.ask(submission, self.submitted(submission), wait)

    @precondition(lambda self: self.engine.approvals.list(ME))
    @rule(pick=st.integers(0, 7), answers=st.lists(ANSWERS, min_size=1, max_size=2), word=WORDS)
    def decide(self, pick: int, answers: list[str], word: str) -> None:
        """As one or two more do, at once."""
        waiting = {record.code for record in self.engine.approvals.list(ME)}
        targets = [submission for submission in self.submissions if submission.code in waiting]
        for said in [self.answer(answer, word) for answer in answers]:
            self.tasks.append(self.loop.create_task(self.decided(targets[-1 - pick % len(targets)], said, 0.0)))

    def answer(self, answer: str, word: str) -> ApprovalAnswer:
        self.answers += 1
        code = f"{word} {self.answers} edited" if answer == "edit" else None
        return ApprovalAnswer(answer != "reject", code, reason=str(self.answers))

    async def decided(self, submission: Submission, answer: ApprovalAnswer, after: float) -> None:
        await asyncio.sleep(after)
        ids = {record.code: record.id for record in self.engine.approvals.list(ME)}
        execution_id = ids.get(submission.code) or (submission.record.id if submission.handle else None)
        if execution_id is not None:
            asked = Asked("decide", submission.session, self.now, submission, answer)
            self.asked.append(asked)
            await self._answer(asked, self.engine.approvals.decide(ME, execution_id, answer))

    @precondition(lambda self: self.accepted)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def submit_again(self, pick: int, wait: bool) -> None:
        """As a client does that has lost the answer."""
        first = self.accepted[-1 - pick % len(self.accepted)]
        self.ask(Asked("submit again", first.session, self.now, first), self.submitted(first), wait)

    async def submitted(self, submission: Submission) -> None:
        key = submission.code
        caller = self.bearers[submission.session].caller
        handle = await self.engine.execute(caller, submission.session, submission.request, key)
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

    @precondition(lambda self: self.living)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def interrupt(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("interrupt", session, self.now), self.engine.interrupt_session(ME, session), wait)

    @precondition(lambda self: self.living)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def restart(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("restart", session, self.now), self.engine.restart_session(ME, session), wait)

    @precondition(lambda self: self.living)
    @rule(pick=st.integers(0, 7), wait=st.booleans())
    def delete(self, pick: int, wait: bool) -> None:
        session = self.pick(pick)
        self.ask(Asked("delete", session, self.now), self.engine.delete_session(ME, session), wait)

    @precondition(lambda self: self.sessions)
    @rule(pick=st.integers(0, 7))
    def look(self, pick: int) -> None:
        """What is read is never older than what was read before."""
        session = self.pick(pick)
        for record in self.run(self.engine.history.list(ME, session, 1000)):
            self.note_seen(record)
        for submission in self.accepted[-2:]:
            self.note_seen(self.run(self.engine.get_execution(ME, submission.record.id)))
        listed = [record.id for record in self.run(self.engine.list_sessions(ME))]
        assert len(listed) == len(set(listed)) and len(listed) <= MAX_SESSIONS
        waiting = [record.id for record in self.engine.approvals.list(ME)]
        assert {s.record.id for s in self.accepted if s.record.state is S.AWAITING_APPROVAL} <= set(waiting)
        mine = [self.engine.approvals.list(token.caller) for token in self.tokens]
        assert sorted(record.id for records in mine for record in records) == sorted(waiting)

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
        """Return a session: mostly one that lives, and often one that is busy, so that requests meet others."""
        busy = set(self.engine.activity().values()) if number in (5, 6) else set()
        living = [session for session in self.living if session in busy] or self.living or self.sessions
        return living[number % len(living)] if number != 7 else self.sessions[-1]

    @property
    def living(self) -> list[str]:
        return [session for bearer in [OWNER, *self.tokens] for session in self.open_to(bearer)]

    def starting(self) -> int:
        return sum(asked.kind == "create" and asked.answered_at == NEVER for asked in self.asked)

    def open_to(self, bearer: Bearer) -> list[str]:
        """Return the sessions of a bearer that nothing has ended."""
        ended = {asked.session for asked in self.asked if asked.kind == "delete"}
        mine = [session for session in self.sessions if self.bearers[session] is bearer and session not in ended]
        return mine if bearer.may_end_at > self.now else []

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
            queued = [s for s in self.accepted if s.session == session and s.record.state in PROGRESS[:2]]
            assert len(queued) <= MAX_QUEUED + 1  # the one whose turn it is may still wait for the kernel

    def note_seen(self, record: Execution, submission: Submission | None = None) -> None:
        found = submission or next((s for s in self.accepted if s.record.id == record.id), None)
        if found is None:  # its request is not answered yet
            return
        if record.state is not found.seen:
            assert not found.seen.finished, f"{found.code!r} was {found.seen.value} and then {record.state.value}"
            back = record.state in PROGRESS[: PROGRESS.index(found.seen)]
            assert not back, f"{found.code!r} was {found.seen.value} and then {record.state.value}"
        found.seen = record.state

    def may_refuse(self, asked: Asked, error: ExecError) -> bool:
        if self.stopped_at <= self.now and isinstance(error, (ShuttingDown, StoreUnavailable, SessionEnded)):
            return True
        if isinstance(error, SessionEnded):
            deleted = any(other.kind == "delete" and other.session == asked.session for other in self.asked)
            bearer = asked.bearer or self.bearers[asked.session]
            return asked.kind != "submit again" and (deleted or bearer.may_end_at <= self.now)
        if isinstance(error, NotAwaitingApproval):
            others = [o for o in self.decisions(asked.target) if o is not asked and o.overlaps(asked.at, self.now)]
            waiting = {record.code for record in self.engine.approvals.list(ME)}
            return bool(others) or (asked.target is not None and asked.target.code not in waiting)
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
            ended = {other.session for other in self.asked if other.kind == "delete" and other.answered_at < asked.at}
            # A session ends when its kernel has started.
            ended |= {s for s in self.sessions if self.bearers[s].ended_at + 5 < asked.at > self.begun[s] + 5}
            return len(created) - len(ended) >= MAX_SESSIONS
        return False

    def killed(self, session: str, start: float, end: float) -> bool:
        """Whether a kernel of the session died behind the engine's back, or that became known, in this time."""
        return any(
            session in ("", victim) and start - LATENCY_SECONDS - SLACK_SECONDS <= at <= end
            for victim, at in self.kills
        )

    def decisions(self, submission: Submission | None) -> list[Asked]:
        """What has been said about code that waits, or is just being said, in this order."""
        return [
            asked for asked in self.asked if asked.kind == "decide" and asked.target is submission and not asked.refused
        ]

    # --- what must hold in the end ---

    async def _everything_is_answered(self) -> None:
        for task in self.tasks:
            await task
        self.tasks.clear()

    async def _everything_ends(self) -> None:
        await self._everything_is_answered()
        for submission in self.accepted:
            await submission.handle.wait()  # type: ignore[union-attr]
        # Kernels start anew, and the tokens end that have little time left.
        last = max((token.expires_at for token in self.tokens if token.expires_at < self.now + 60), default=0.0)
        await asyncio.sleep(max(2.0, last + 2.0 - self.now))
        assert self.engine.activity() == {}
        ended = {asked.session for asked in self.asked if asked.kind == "delete"}
        ended |= {session for session in self.sessions if self.bearers[session].ended_at <= self.now}
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
            self.engine._resources.close()
            self.loop.close()
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.directory)

    async def _compare_with_the_store(self) -> None:
        """What a later server finds is what this one said."""
        store = ExecStore(path=self.directory, reserve_bytes=0)
        try:
            for submission in self.accepted:
                stored = await store.executions.get(submission.record.id)
                log = await store.executions.log(submission.record.id)
                assert stored is not None and log is not None, submission.code
                assert stored.execution == submission.record, f"{stored.execution}\n{submission.record}"
                events = [loads_strict(entry.line) async for batch in follow(log) for entry in batch]
                assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
                assert [event["type"] for event in events].count("end") == 1
                states = [S(event["state"]) for event in events if event["type"] == "state"]
                assert states[0] is (S.AWAITING_APPROVAL if submission.asks else S.QUEUED)
                for before, after in pairwise([*states, S(events[-1]["execution"]["state"])]):
                    advance(before, after)
                assert events[-1]["execution"]["state"] == submission.record.state.value
            for session in self.sessions:
                record = await store.sessions.get(session)
                assert record is not None and record.state.value == "ended"
        finally:
            store.close()
        self._compare_with_the_trail()

    def _compare_with_the_trail(self) -> None:
        """What is on record about who approved what is what has become of it."""
        with AuditReader(Path(self.directory)).snapshot() as (_, lines):
            records = [line.record() for line in lines]
        said: dict[str, list[str]] = {}
        for record in records:
            if record.kind is AuditKind.APPROVAL:
                said.setdefault(record.subject, []).append(record.action)
        for submission in self.accepted:
            approval = submission.record.approval
            expected = [] if approval is None else ["requested"]
            if approval is not None and approval.decision is not None:
                expected.append(ACTIONS.get(approval.decision, approval.decision.value))
            assert said.get(submission.record.id, []) == expected, submission

    def judge(self) -> None:
        """Hold every outcome against the history."""
        assert set(self.host.runs) <= {submission.record.code for submission in self.accepted}
        for submission in self.accepted:
            assert submission.record.state.finished, submission
            run = self.host.runs.get(submission.record.code)
            story = "\n".join(map(str, [submission, run, self.kills, *self.bearers.items(), *self.asked]))
            assert self.explained(submission, run), story
            assert all(self.obeyed(asked, submission, run) for asked in self.asked), story
            assert self.approved(submission, run), story
            assert self.in_time(submission, run), story
            if run is not None:
                assert submission.at <= run.began <= submission.finished_at
                assert submission.finished_at <= run.began + submission.limit_seconds + KILL_SECONDS, story
                died = run.process.ended_at is not None and run.process.ended_at <= submission.finished_at
                assert submission.record.session_state_preserved or died, story
                assert not (submission.record.session_state_preserved and run.cut), story
        for session in self.sessions:
            self.judge_order([s for s in self.accepted if s.session == session])

    def judge_order(self, submissions: list[Submission]) -> None:
        by_code = {submission.record.code: submission for submission in submissions}
        began = [(run, by_code[code]) for code, run in self.host.runs.items() if code in by_code]
        for (_, earlier), (run, later) in pairwise(began):
            assert earlier.finished_at <= run.began, f"{earlier}, {later}"
            assert later.answered_at >= earlier.at, f"{earlier}, {later}"
        for run, later in began:
            # Whatever did not run is out of the way before its end is written.
            before = [s for s in submissions if s.answered_at < later.at]
            assert all(s.finished_at <= run.began + SLACK_SECONDS for s in before), f"{later} did not wait"

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
        if state is S.TOKEN_REVOKED:
            return self.bearers[submission.session].may_end_at <= submission.finished_at + TICK
        if state is S.REJECTED:
            return run is None and "decide" in kinds
        if state is S.KERNEL_DIED and self.killed(submission.session, *life):
            return True
        if state is S.TIMEOUT and run is None:
            return submission.finished_at >= self.patience_ends(submission)
        if state is not ALONE[submission.word] or run is None or run.over is None:
            return False
        if state is S.TIMEOUT:
            return submission.finished_at - run.began >= LIMIT_SECONDS - SLACK_SECONDS
        return run.over <= submission.finished_at

    def patience_ends(self, submission: Submission, *, at_the_latest: bool = False) -> float:
        """Return when an execution that does not begin to run ends by itself, at the earliest."""
        decided = self.decisions(submission)
        asked = decided[0] if decided else submission
        since = asked.answered_at if at_the_latest else asked.at
        if submission.asks and not decided:
            return since + ASK_SECONDS - MILLISECOND
        return since + self.bearers[submission.session].queue_seconds

    def approved(self, submission: Submission, run: Run | None) -> bool:
        """Whether what has become of code that waits for approval is what was said, once, and nothing before that."""
        record, decided = submission.record, self.decisions(submission)
        if not submission.asks:
            return record.approval is None and not decided and record.code == submission.code
        assert record.approval is not None
        if not decided:
            decision = Decision.TIMEOUT if record.state is S.TIMEOUT else None
            unchanged = record.approval.original_code is None and record.code == submission.code
            return run is None and record.approval.decision is decision and unchanged
        (asked,) = decided
        answer = asked.answer
        assert answer is not None
        if not answer.approve:
            decision = Decision.REJECTED
        else:
            decision = Decision.APPROVED if answer.code is None else Decision.EDITED
        original = None if answer.code is None else submission.code
        return (
            (record.approval.decision, record.approval.reason) == (decision, answer.reason)
            and (record.code, record.approval.original_code) == (answer.code or submission.code, original)
            and (record.state is S.REJECTED) is not answer.approve
            and (run is None or asked.at <= run.began)
        )

    def in_time(self, submission: Submission, run: Run | None) -> bool:
        """Whether nothing waited for longer than it may, or outlasted its token."""
        begins_at = submission.finished_at if run is None else run.began
        token_gone_at = max(self.bearers[submission.session].ended_at, self.begun[submission.session])
        return (
            begins_at <= self.patience_ends(submission, at_the_latest=True) + SLACK_SECONDS
            and (run is None or begins_at <= token_gone_at + NOTICE_SECONDS + SLACK_SECONDS)
            and submission.finished_at <= max(token_gone_at, submission.at) + 1.0
        )

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
        state = submission.record.state
        if state is S.TOKEN_REVOKED:
            return self.bearers[submission.session].may_end_at <= asked.at + TICK
        if state is S.REJECTED:
            return self.decisions(submission)[0].at <= asked.at
        if state is S.TIMEOUT and run is None:
            return self.patience_ends(submission) <= asked.at
        if run is None:  # it was sent to a kernel that was dead by then
            return state is S.KERNEL_DIED
        over = run.over if run.over is not None else float("inf")
        if state is S.TIMEOUT:
            over = run.began + LIMIT_SECONDS - SLACK_SECONDS
        return over <= asked.at


# Enough for finding the shortest sequence that fails, which takes longer than finding one.
TestStates = pytest.mark.timeout(3600 if IS_FULL else 600)(EngineMachine.TestCase)
TestStates.settings = settings(
    max_examples=2000 if IS_FULL else 60,
    stateful_step_count=50,
    deadline=None,
    # The part for each commit is the same for all, so that what fails was broken by it; in full, it looks for more.
    derandomize=not IS_FULL,
    suppress_health_check=list(HealthCheck),
)
