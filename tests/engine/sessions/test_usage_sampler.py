"""Use of kernels over time: what is measured, how much is kept, and what the measuring itself may cost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions import usage_sampler
from jupyter_exec_ext.engine.sessions.usage_sampler import PROCESSORS, TreeMeter, TreeUse, UsageSampler
from jupyter_exec_ext.models import SessionRequest, SessionState, TokenRequest

USE = TreeUse(at=1000.0, pid=7, started_at=900.0, memory_bytes=5, cpu_seconds=50.0)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (None, 0.5),
        (replace(USE, at=990.0, cpu_seconds=47.5), 0.25),
        (replace(USE, at=990.0, cpu_seconds=60.0), 0.0),
        (replace(USE, at=1001.0, cpu_seconds=0.0), PROCESSORS),
        (replace(USE, at=990.0, started_at=1.0), 0.5),
        (replace(USE, at=990.0, pid=8), 0.5),
    ],
    ids=["first", "later", "child left the tree", "clock set back", "other process of this id", "other process"],
)
def test_processors_are_the_mean_since_the_last_look_or_the_start(before: TreeUse | None, expected: float) -> None:
    assert USE.cpu_since(before) == pytest.approx(expected)


def test_a_process_that_has_not_run_since_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(usage_sampler, "memory_bytes", lambda pid: read.append(pid) or 17)  # type: ignore[func-returns-value]
    monkeypatch.setattr(usage_sampler, "processes_below", lambda pids: {pid: set() for pid in pids})
    times = SimpleNamespace(used=1.0)
    process = SimpleNamespace(
        oneshot=nullcontext,
        cpu_times=lambda: (times.used, 0.0, 0.0, 0.0, 0.0),
        memory_info=lambda: SimpleNamespace(rss=5),
        create_time=lambda: 3.0,
    )
    monkeypatch.setattr(psutil, "Process", lambda pid: process)
    meter = TreeMeter()
    for _ in range(3):
        found, _ = meter.measure({"a": 7})
        assert found["a"].memory_bytes == 17
    assert read == [7]
    times.used = 2.0
    assert meter.measure({"a": 7})[0]["a"].cpu_seconds == 2.0
    assert read == [7, 7]


def test_a_process_that_has_ended_has_no_use() -> None:
    found, cost_seconds = TreeMeter().measure({"here": os.getpid(), "gone": 2**22 - 1})
    assert list(found) == ["here"]
    assert found["here"].memory_bytes > 10**6
    assert 0 < cost_seconds < 60


class ScriptedMeter:
    """Answers as it is told, at once, and notes how often it was asked."""

    def __init__(self, cost_seconds: float = 0.0) -> None:
        self.asked: list[dict[str, int]] = []
        self.cost_seconds = cost_seconds

    def measure(self, roots: dict[str, int]) -> tuple[dict[str, TreeUse], float]:
        self.asked.append(dict(roots))
        at = time.time()
        return {name: replace(USE, at=at, pid=pid) for name, pid in roots.items()}, self.cost_seconds


def live(pid: int | None, state: SessionState = SessionState.IDLE) -> Any:
    return SimpleNamespace(kernel=SimpleNamespace(pid=pid), record=SimpleNamespace(state=state))


class Sampling:
    """A sampler on sessions of the test's, whose timer the test fires."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost_seconds: float = 0.0) -> None:
        registry: Any = SimpleNamespace(sessions={}, stopping=False)
        self.registry = registry
        self.sampler = UsageSampler(registry)
        self.meter = self.sampler._meter = ScriptedMeter(cost_seconds)  # type: ignore[assignment]
        self.waits: list[float] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", self._note_timer)
        monkeypatch.setattr(loop, "run_in_executor", self._run)

    def _note_timer(self, seconds: float, callback: Any) -> Any:
        self.waits.append(seconds)
        self._callback = callback
        return SimpleNamespace(cancel=lambda: self.waits.append(-1.0))

    @staticmethod
    def _run(_: None, work: Any) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(work())
        return done

    async def fire(self) -> None:
        """Fire the timer, and let the result be noted."""
        self._callback()
        await asyncio.sleep(0)


async def test_samples_of_an_hour_are_kept_for_each_live_session(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(monkeypatch)
    sampling.registry.sessions = {"a": live(7), "remote": live(None), "old": live(8, SessionState.ENDED)}
    sampling.sampler.start()
    for _ in range(800):
        await sampling.fire()
    assert sampling.meter.asked == [{"a": 7}] * 800
    assert len((await sampling.sampler.usage("a")).samples) == 720
    remote = await sampling.sampler.usage("remote")
    assert (remote.measured, remote.samples) == (False, ())
    assert set(sampling.waits) == {0.0, 5.0}
    del sampling.registry.sessions["a"]
    await sampling.fire()
    assert (await sampling.sampler.usage("a")).samples == ()


async def test_what_is_older_than_an_hour_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(monkeypatch)
    sampling.registry.sessions = {"a": live(7)}
    sampling.sampler.start()
    await sampling.fire()
    later = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: later)
    assert (await sampling.sampler.usage("a")).samples == ()


async def test_without_sessions_nothing_is_sampled_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(monkeypatch)
    sampling.sampler.start()
    sampling.sampler.start()
    await sampling.fire()
    assert (sampling.waits, sampling.meter.asked) == ([0.0], [])
    sampling.registry.sessions = {"a": live(7)}
    sampling.sampler.start()
    await sampling.fire()
    assert (sampling.waits, sampling.meter.asked) == ([0.0, 0.0, 5.0], [{"a": 7}])
    sampling.registry.stopping = True
    await sampling.fire()
    sampling.sampler.close()
    assert sampling.waits == [0.0, 0.0, 5.0]


async def test_sampling_that_takes_long_is_done_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(monkeypatch, cost_seconds=0.2)
    sampling.registry.sessions = {"a": live(7)}
    sampling.sampler.start()
    await sampling.fire()
    assert sampling.waits == [0.0, 40.0]


async def test_a_session_tells_its_use_and_the_limits_of_its_policy(
    make_engine: Callable[..., ExecEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    monkeypatch.setattr(usage_sampler, "SAMPLE_SECONDS", 0.05)
    me = owner("me", {"username": "me"})
    limits = {"max_memory_bytes": 3 * 10**9}
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES), limits=limits)
    caller = engine.tokens.authenticate((await engine.tokens.create(me, request)).text, "here")
    session = await engine.create_session(caller, SessionRequest())
    sampled = asyncio.Event()
    note = UsageSampler._note

    def note_and_tell(sampler: UsageSampler, job: Any) -> None:
        note(sampler, job)
        if sampler._samples.get(session.id):
            sampled.set()

    monkeypatch.setattr(UsageSampler, "_note", note_and_tell)
    await asyncio.wait_for(sampled.wait(), 60)
    usage = await engine.sessions.usage(me, session.id)
    assert usage.measured
    assert usage.samples[0].memory_bytes > 5 * 10**6
    assert 0 <= usage.samples[0].cpu <= usage.processors
    assert usage.max_memory_bytes == 3 * 10**9
