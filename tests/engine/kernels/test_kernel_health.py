"""Busy, hung or stopped: told apart by answers, without a kernel that has to be any of these."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_exec_ext.engine.kernels import kernel_health
from jupyter_exec_ext.engine.kernels.kernel_health import NOT_ANSWERING, STOPPED, HealthWatch, diagnose
from jupyter_exec_ext.models import OutputEvent, ResponsiveEvent, UnresponsiveEvent


@pytest.mark.parametrize(
    ("waited", "stopped", "answers_while_busy", "reason"),
    [
        (0.1, True, True, None),
        (1.0, True, True, STOPPED),
        (1.0, True, False, STOPPED),
        (1.0, False, True, None),
        (3.0, False, True, None),
        (3.5, False, True, NOT_ANSWERING),
        (60.0, False, False, None),
    ],
)
def test_the_diagnosis(waited: float, stopped: bool, answers_while_busy: bool, reason: str | None) -> None:
    assert diagnose(waited, stopped=stopped, answers_while_busy=answers_while_busy) == reason


class Kernel:
    """Answers, or does not; an answer may lie unread for a while."""

    pid = None

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self.questions = 0
        self.silent = False
        self.answer_unread = False

    def ask(self) -> None:
        self.questions += 1
        self.asked_at = asyncio.get_running_loop().time()
        self.answer_unread = not self.silent

    def look(self) -> None:
        if self.answer_unread:
            self.asked_at, self.answer_unread = None, False

    def wake_up(self) -> None:
        self.silent, self.answer_unread = False, True


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK_SECONDS", "_ASK_SECONDS", "_STOPPED_SECONDS"):
        monkeypatch.setattr(kernel_health, name, 0.001)
    monkeypatch.setattr(kernel_health, "_ANSWER_SECONDS", 0.02)


@pytest.mark.usefixtures("_quick")
async def test_silence_and_answer_emit_one_event_each() -> None:
    kernel, events, learned = Kernel(), asyncio.Queue[OutputEvent](), asyncio.Event()
    watch = HealthWatch(kernel, kernel, events.put_nowait, answers_while_busy=False, on_answer=learned.set)
    await asyncio.wait_for(learned.wait(), 30)
    kernel.silent = True
    assert await asyncio.wait_for(events.get(), 30) == UnresponsiveEvent(NOT_ANSWERING)
    assert watch.unresponsive
    asked = kernel.questions
    kernel.wake_up()
    assert await asyncio.wait_for(events.get(), 30) == ResponsiveEvent()
    assert not watch.unresponsive
    assert kernel.questions == asked  # a silent kernel is not buried in questions
    watch.close()
    assert events.empty()


@pytest.mark.usefixtures("_quick")
async def test_stopped_process_is_reported_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_health, "is_stopped", lambda pid: True)
    kernel, events = Kernel(), asyncio.Queue[OutputEvent]()
    kernel.silent = True
    watch = HealthWatch(kernel, kernel, events.put_nowait, answers_while_busy=False, on_answer=lambda: None)
    assert await asyncio.wait_for(events.get(), 30) == UnresponsiveEvent(STOPPED)
    watch.close()
