"""A session's kernel's processes: busy, hung or stopped, told by answers; found and killed by their mark."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from jupyter_exec_ext.engine.kernels import kernel_processes
from jupyter_exec_ext.engine.kernels.kernel_processes import (
    NOT_ANSWERING,
    STOPPED,
    HealthWatch,
    diagnose,
    is_stopped,
    memory_below,
)
from jupyter_exec_ext.models import OutputEvent, ResponsiveEvent, UnresponsiveEvent
from jupyter_exec_ext.system.marked_processes import MARK, kill_left_behind, kill_marked


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
        monkeypatch.setattr(kernel_processes, name, 0.001)
    monkeypatch.setattr(kernel_processes, "_ANSWER_SECONDS", 0.02)


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
    monkeypatch.setattr(kernel_processes, "is_stopped", lambda pid: True)
    kernel, events = Kernel(), asyncio.Queue[OutputEvent]()
    kernel.silent = True
    watch = HealthWatch(kernel, kernel, events.put_nowait, answers_while_busy=False, on_answer=lambda: None)
    assert await asyncio.wait_for(events.get(), 30) == UnresponsiveEvent(STOPPED)
    watch.close()


SLEEP = "import time; print('up', flush=True); time.sleep(60)"
WITH_A_CHILD = (
    "import subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True, stdout=-1)\n"
    "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
)

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def _start(mark: str | None, code: str = SLEEP) -> subprocess.Popen[str]:
        env = {**os.environ, **({MARK: mark} if mark is not None else {})}
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_only_the_named_sessions_processes_are_killed(start: Start) -> None:
    mine, other, unmarked = start("ses_mine"), start("ses_other"), start(None)
    for process in (mine, other, unmarked):
        assert first_line(process) == "up"
    assert kill_marked({"ses_mine", "ses_gone"}) == [mine.pid]
    assert mine.wait(30) == -signal.SIGKILL
    assert other.poll() is None
    assert unmarked.poll() is None
    assert kill_marked({"ses_mine"}) == []
    assert kill_marked(set()) == []


def test_what_earlier_kernels_left_is_killed_but_not_the_present_one_and_its_children(start: Start) -> None:
    old, kernel = start("ses_x"), start("ses_x", WITH_A_CHILD)
    assert first_line(old) == "up"
    child = int(first_line(kernel))
    assert kill_left_behind("ses_x", kernel.pid) == [old.pid]
    assert kernel.poll() is None
    assert psutil.pid_exists(child)
    assert set(kill_marked({"ses_x"})) == {kernel.pid, child}


def test_a_stopped_process_is_seen_as_such(start: Start) -> None:
    process = start(None)
    assert first_line(process) == "up"
    assert not is_stopped(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(process.pid)
    process.kill()
    process.wait()
    assert not is_stopped(process.pid)
    assert not is_stopped(None)


def test_the_memory_of_a_process_is_that_of_all_below_it(start: Start) -> None:
    parent, other = start(None, WITH_A_CHILD), start(None)
    child = int(first_line(parent))
    assert first_line(other) == "up"
    found = memory_below([parent.pid, child, other.pid])
    assert all(found.values())
    assert (found[parent.pid] or 0) > 1.5 * (found[child] or 0)


def test_of_a_process_that_has_ended_no_memory_is_known(start: Start) -> None:
    process = start(None)
    assert first_line(process) == "up"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert memory_below([process.pid]) == {process.pid: None}  # nobody has asked yet how it ended
    process.wait()
    assert memory_below([process.pid]) == {process.pid: None}
