"""Kernels that hang, leave children behind or ask for input nobody gives; see `test_faults` for the scale."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import EndEvent, Execution, ExecutionState, ResponsiveEvent, UnresponsiveEvent
from tests.support.full import IS_FULL, SCALE, only_in_full, scaled
from tests.support.hosts import Host
from tests.support.session_processes import kernel_of, marked, outside

HUNG = scaled(50, per_commit=3)
FORKING = scaled(50, per_commit=4)
# Both hold Python's interpreter lock; a signal wakes the first one up, but nothing the second.
# The pause lets the output out: the thread that sends it needs the lock, too.
HOLDS_THE_LOCK = "print('now', flush=True)\nimport ctypes, time; time.sleep(0.1); ctypes.PyDLL(None).sleep(60)"
DEADLOCKS = """\
import ctypes, time
lib, mutex = ctypes.PyDLL(None), (ctypes.c_char * 64)()
print('now', flush=True)
time.sleep(0.1)
lib.pthread_mutex_lock(mutex)
lib.pthread_mutex_lock(mutex)
"""
SLEEPS = "print('now', flush=True)\nimport time; time.sleep(60)"
MARK = "JUPYTER_EXEC_SESSION"


@pytest.fixture(scope="module")
def client(hosts: Any) -> Iterator[ExecClient]:
    host: Host = hosts["server"]
    with ExecClient(host.info) as client:
        yield client


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")


def worst(seconds: list[float]) -> str:
    return f"median {sorted(seconds)[len(seconds) // 2]:.2f} s, max {max(seconds):.2f} s"


@pytest.mark.timeout(900)
def test_f3_a_hung_kernel_is_noticed_and_ended_within_five_seconds(
    client: ExecClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """50 (3) kernels, stopped or held up by native code: `unresponsive` ≤ 5 s, and cancelling ends the run ≤ 5 s."""
    noticed: list[float] = []
    ended: list[float] = []
    for number in range(HUNG):
        stops = number % 3 == 0
        with client.session() as session:
            pid = kernel_of(session)
            handle = session.submit((SLEEPS, HOLDS_THE_LOCK, DEADLOCKS)[number % 3])
            reasons, began = [], 0.0
            for event in handle.events():
                if event.type == "stream":
                    if stops:
                        os.kill(pid, signal.SIGSTOP)
                    began = time.monotonic()
                if isinstance(event, UnresponsiveEvent):
                    noticed.append(time.monotonic() - began)
                    reasons.append(event.reason)
                    break
            assert reasons == ["stopped" if stops else "not answering"]
            began = time.monotonic()
            record = handle.cancel() if number % 2 else restarted(session, handle)
            ended.append(time.monotonic() - began)
            assert record.state is ExecutionState.CANCELLED
            assert record.session_state_preserved is (number % 2 == 1 and number % 3 == 1)
            assert session.run("6 * 7").ok
    assert max(noticed) <= 5.0
    assert max(ended) <= 5.0
    report(capsys, f"F3: {len(noticed)} of {HUNG} hung kernels noticed ({worst(noticed)}), ended ({worst(ended)})")


def restarted(session: Any, handle: Any) -> Execution:
    session.restart()
    record: Execution = handle.result()
    return record


def test_f3_the_time_limit_ends_a_stopped_kernel(client: ExecClient) -> None:
    with client.session() as session:
        pid = kernel_of(session)
        began = time.monotonic()
        record = session.run(SLEEPS, timeout_seconds=1.0, on_event=lambda e: stop_at(e, pid))
        assert record.state is ExecutionState.TIMEOUT
        assert time.monotonic() - began < 1.0 + 5.0


def stop_at(event: Any, pid: int) -> None:
    if event.type == "stream":
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("what", ["restart", "close"])
def test_f3_a_stopped_idle_kernel_is_not_waited_for(client: ExecClient, what: str) -> None:
    session = client.session()
    os.kill(kernel_of(session), signal.SIGSTOP)
    began = time.monotonic()
    getattr(session, what)()
    assert time.monotonic() - began < 4.0
    if what == "restart":
        assert session.run("1").ok
        session.close()


@only_in_full
def test_f3_a_kernel_that_answers_again_is_said_to(client: ExecClient) -> None:
    with client.session() as session:
        pid = kernel_of(session)
        health: list[str] = []

        def wake(event: Any) -> None:
            stop_at(event, pid)
            if isinstance(event, (UnresponsiveEvent, ResponsiveEvent)):
                health.append(event.type)
                os.kill(pid, signal.SIGCONT)

        code = "print('now', flush=True)\nimport time\nfor _ in range(40): time.sleep(0.1)"
        record = session.run(code, on_event=wake)
        assert record.ok
        assert health == ["unresponsive", "responsive"]


@pytest.mark.parametrize(
    "code",
    ["import time\nt=time.time()+8\nwhile time.time()<t: 1", "import time; time.sleep(8)"][: 2 if IS_FULL else 1],
)
def test_f3_busy_is_not_hung(client: ExecClient, code: str) -> None:
    with client.session() as session:
        kinds = [event.type for event in session.stream(code)]
    assert kinds == ["state", "state", "end"]


FORKS = """\
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    os.write(1, b"from the child\\n")
    time.sleep(600)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(f"kernel {os.getpid()}")
"""


@pytest.mark.timeout(900)
def test_f10_children_that_keep_stdout_neither_hold_up_a_run_nor_outlive_the_kernel(
    client: ExecClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """50 (4) cells that fork: each ends at once, and nothing is left after shutdown, restart or the kernel's death."""
    took: list[float] = []
    ways: list[Callable[[Any, int], None]] = [close, restart, kill_and_run, kill_and_wait]
    for number in range(FORKING):
        session = client.session()
        began = time.monotonic()
        record = session.run(FORKS)
        took.append(time.monotonic() - began)
        assert record.ok
        assert len(marked(session.id)) == 3
        ways[number % len(ways)](session, outside(session.id, int(re.findall(r"kernel (\d+)", record.stdout)[0])))
        assert marked(session.id) == []
    assert max(took) < 2.0
    report(capsys, f"F10: {len(took)} of {FORKING} runs ended with the cell ({worst(took)}), 0 processes left")


def close(session: Any, pid: int) -> None:
    session.close()


def restart(session: Any, pid: int) -> None:
    session.restart()
    kernel = kernel_of(session)
    assert marked(session.id) == [kernel]
    session.close()


def kill_and_run(session: Any, pid: int) -> None:
    handle = session.submit(SLEEPS)
    next(event for event in handle.events() if event.type == "stream")
    os.kill(pid, signal.SIGKILL)
    assert handle.result().state is ExecutionState.KERNEL_DIED
    restart_pid = kernel_of(session)
    assert marked(session.id) == [restart_pid]
    session.close()


def kill_and_wait(session: Any, pid: int) -> None:
    """A kernel that dies while nothing runs takes its children with it, too."""
    os.kill(pid, signal.SIGKILL)
    gone = threading.Event()
    give_up_at = time.monotonic() + 5
    while marked(session.id):
        assert not gone.wait(0.05)
        assert time.monotonic() < give_up_at
    session.close()


@pytest.mark.parametrize("call", ["input()", "input('? ')", "import getpass; getpass.getpass()"])
def test_f11_input_that_nobody_answers_raises_at_once(client: ExecClient, call: str) -> None:
    with client.session() as session:
        session.run("1")
        for _ in range(3 * SCALE):
            began = time.monotonic()
            record = session.run(call)
            assert time.monotonic() - began < 1.0
            assert record.state is ExecutionState.ERROR
            assert record.error is not None
            assert record.error.name == "StdinNotImplementedError"
        events = list(session.stream("1 + 1"))
        assert isinstance(events[-1], EndEvent)
        assert events[-1].execution.ok
