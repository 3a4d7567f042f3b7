"""Sessions and what happens to them: time limits, cancelling, dying kernels, restarts, many callers at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_exec_ext.errors import (
    ExecutionNotFound,
    InvalidRequest,
    KernelSpecNotFound,
    LanguageNotSupported,
    NoInputRequested,
    PayloadTooLarge,
    SessionEnded,
    SessionNotFound,
)
from jupyter_exec_ext.models import ExecutionState, SessionState, SessionStateLostEvent, StateLoss
from tests.support.hosts import CANARY, MAX_CODE_BYTES

STUBBORN = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass"


def wait_for_state(handle: Any, state: ExecutionState) -> None:
    for event in handle.events():
        if getattr(event, "state", None) is state:
            return


def wait_for_output(handle: Any) -> None:
    """Wait until the code itself has said something; only then is it certain to be running."""
    for event in handle.events():
        if event.type == "stream":
            return


# --- time limits ---


def test_code_that_takes_too_long_is_stopped_and_the_state_kept(session: Any) -> None:
    session.run("before_timeout = 'kept'")
    began = time.monotonic()
    result = session.run("print('started', flush=True)\nwhile True: pass", timeout_seconds=1.5)
    assert 1.4 < time.monotonic() - began < 10.0
    assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, True)
    assert result.stdout == "started\n"
    assert "1.5 s" in result.reason
    began = time.monotonic()
    assert session.run("print(before_timeout)").stdout == "kept\n"
    assert time.monotonic() - began < 5.0


def test_the_time_limit_is_total_however_much_the_code_prints(session: Any) -> None:
    began = time.monotonic()
    result = session.run("import time\nwhile True: print('tick', flush=True); time.sleep(0.05)", timeout_seconds=2)
    assert time.monotonic() - began < 10.0
    assert result.state is ExecutionState.TIMEOUT
    assert result.stdout.count("tick") > 5


def test_code_that_ignores_the_interrupt_is_killed_and_that_is_said(fresh: Any) -> None:
    fresh.run("lost = 1")
    began = time.monotonic()
    result = fresh.run(STUBBORN, timeout_seconds=0.5)
    assert time.monotonic() - began < 15.0
    assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, False)
    assert "killed" in result.reason
    again = fresh.run("print('lost' in globals())")
    assert again.stdout == "False\n"
    assert again.kernel_starts == result.kernel_starts + 1


def test_time_in_the_queue_does_not_count(session: Any) -> None:
    first = session.submit("import time; time.sleep(2.5)")
    second = session.submit("print('ran')", timeout_seconds=2.0)
    assert second.result().stdout == "ran\n"
    assert first.result().ok


def test_without_a_limit_the_servers_default_holds(session: Any) -> None:
    assert session.run("1").timeout_seconds == 300.0


# --- cancelling and interrupting ---


def test_a_running_execution_is_cancelled_and_its_code_stops(session: Any) -> None:
    handle = session.submit("import time\nran_on = False\nprint('go', flush=True)\ntime.sleep(30)\nran_on = True")
    wait_for_output(handle)
    began = time.monotonic()
    record = handle.cancel()
    assert time.monotonic() - began < 10.0
    assert (record.state, record.session_state_preserved) == (ExecutionState.CANCELLED, True)
    assert session.run("print(ran_on)").stdout == "False\n"


def test_a_running_execution_can_be_cancelled_right_away(session: Any) -> None:
    began = time.monotonic()
    for _ in range(3):
        cancelled = session.submit("import time; time.sleep(30)").cancel()
        # An interrupt that came too early would be lost, and the kernel killed after the grace period.
        assert (cancelled.state, cancelled.session_state_preserved) == (ExecutionState.CANCELLED, True)
    assert session.run("print('free')").stdout == "free\n"
    assert time.monotonic() - began < 15.0


def test_a_queued_execution_is_cancelled_and_never_runs(session: Any) -> None:
    running = session.submit("import time; time.sleep(1.0); touched = 'no'")
    queued = session.submit("touched = 'yes'")
    assert queued.refresh().state is ExecutionState.QUEUED
    record = queued.cancel()
    assert (record.state, record.started_at, record.session_state_preserved) == (ExecutionState.CANCELLED, None, True)
    assert running.result().ok
    assert session.run("print(touched)").stdout == "no\n"


def test_cancelling_twice_or_after_the_end_changes_nothing(session: Any) -> None:
    handle = session.submit("print('done')")
    done = handle.result()
    assert handle.cancel() == done
    assert handle.cancel() == done


def test_an_interrupt_ends_the_code_as_ctrl_c_would(session: Any) -> None:
    handle = session.submit("print('go', flush=True)\nimport time; time.sleep(30)")
    wait_for_output(handle)
    session.interrupt()
    result = handle.result(timeout_seconds=10)
    assert (result.state, result.error.name) == (ExecutionState.INTERRUPTED, "KeyboardInterrupt")
    assert result.session_state_preserved is True


def test_an_interrupt_of_an_idle_session_does_no_harm(session: Any) -> None:
    session.interrupt()
    assert session.run("print('unharmed')").stdout == "unharmed\n"


def test_code_may_handle_an_interrupt(session: Any) -> None:
    code = "import time\ntry: print('go', flush=True); time.sleep(30)\nexcept KeyboardInterrupt: print('handled')"
    handle = session.submit(code)
    wait_for_output(handle)
    session.interrupt()
    result = handle.result(timeout_seconds=10)
    assert (result.state, result.stdout) == (ExecutionState.OK, "go\nhandled\n")


# --- the queue ---


def test_ten_callers_at_once_each_get_their_own_result(session: Any) -> None:
    session.run("order = []")

    def call(number: int) -> str:
        return str(session.run(f"order.append({number}); print('call', {number})").stdout)

    with ThreadPoolExecutor(10) as pool:
        results = list(pool.map(call, range(10)))
    assert results == [f"call {number}\n" for number in range(10)]
    assert session.run("print(len(order), sorted(order) == list(range(10)))").stdout == "10 True\n"


def test_executions_run_in_the_order_they_were_accepted(session: Any) -> None:
    session.run("sequence = []")
    handles = [session.submit(f"sequence.append({i})") for i in range(20)]
    handles[-1].result()
    assert session.run("print(sequence == list(range(20)))").stdout == "True\n"


def test_two_sessions_run_side_by_side(client: Any, session: Any) -> None:
    with client.session() as other:
        for begun in (session, other):
            begun.run("1")  # a kernel elsewhere begins with its first run
        began = time.monotonic()
        handles = [s.submit("import time; time.sleep(3.0)") for s in (session, other)]
        assert all(handle.result().ok for handle in handles)
        assert time.monotonic() - began < 5.5


def test_a_session_lists_its_executions(fresh: Any) -> None:
    fresh.run("1")
    handle = fresh.submit("import time; time.sleep(0.3)")
    listed = fresh.list_executions()
    assert [execution.code for execution in listed] == ["1", "import time; time.sleep(0.3)"]
    assert listed[0].state is ExecutionState.OK
    assert listed[1].id == handle.id
    assert [execution.id for execution in fresh.list_executions(limit=1)] == [handle.id]


# --- dying kernels ---


def test_a_kernel_that_exits_is_named_with_its_code_at_once(fresh: Any) -> None:
    fresh.run("gone = 1")
    began = time.monotonic()
    # The pause lets the kernel's own sender publish; what it has published is never lost.
    result = fresh.run("import os, time; print('last words', flush=True); time.sleep(0.2); os._exit(3)")
    assert time.monotonic() - began < 5.0
    assert (result.state, result.kernel_exit_code) == (ExecutionState.KERNEL_DIED, 3)
    assert result.session_state_preserved is False
    assert result.stdout == "last words\n"
    again = fresh.run("print('gone' in globals())")
    assert (again.stdout, again.kernel_starts) == ("False\n", result.kernel_starts + 1)


def test_a_kernel_that_is_killed_is_named_with_its_signal(fresh: Any) -> None:
    result = fresh.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (result.state, result.kernel_signal) == (ExecutionState.KERNEL_DIED, "SIGKILL")
    assert result.error.name == "KernelDied"


def test_a_kernel_that_crashes_is_named_with_its_signal(fresh: Any) -> None:
    result = fresh.run("import ctypes; ctypes.string_at(0)")
    assert (result.state, result.kernel_signal) == (ExecutionState.KERNEL_DIED, "SIGSEGV")


def test_what_is_queued_behind_a_dying_kernel_runs_in_a_fresh_one(fresh: Any) -> None:
    dying = fresh.submit("import os, time; time.sleep(0.3); os._exit(1)")
    queued = fresh.submit("print('after')")
    assert dying.result().state is ExecutionState.KERNEL_DIED
    assert queued.result().stdout == "after\n"


def test_a_kernel_that_dies_while_idle_is_replaced(fresh: Any) -> None:
    starts = fresh.run("import threading, os\nthreading.Timer(0.2, lambda: os._exit(5)).start()").kernel_starts
    time.sleep(0.8)
    events = list(fresh.stream("print('fresh')"))
    result = events[-1].execution
    assert (result.stdout, result.kernel_starts) == ("fresh\n", starts + 1)
    assert result.session_state_lost == StateLoss("the kernel exited with code 5", kernel_exit_code=5)
    assert [event.reason for event in events if isinstance(event, SessionStateLostEvent)] == [
        "the kernel exited with code 5"
    ]
    assert result.to_text().startswith("State lost: the kernel exited with code 5 after the code before this had run.")
    assert fresh.run("1").session_state_lost is None


# --- restart ---


def test_a_restart_clears_the_state(fresh: Any) -> None:
    starts = fresh.run("old = 1").kernel_starts
    fresh.restart()
    assert fresh.run("print('old' in globals())").stdout == "False\n"
    assert fresh.refresh().kernel_starts == starts + 1


def test_a_restart_ends_what_runs_and_what_is_queued(fresh: Any) -> None:
    running = fresh.submit(STUBBORN)
    queued = fresh.submit("print('never')")
    wait_for_state(running, ExecutionState.RUNNING)
    fresh.restart()
    assert (running.refresh().state, running.record.session_state_preserved) == (ExecutionState.CANCELLED, False)
    assert queued.refresh().state is ExecutionState.CANCELLED
    assert fresh.run("print('works')").stdout == "works\n"


def test_a_restart_revives_a_dead_kernel(fresh: Any) -> None:
    fresh.run("import os; os._exit(1)")
    fresh.restart()
    assert fresh.run("print('alive')").stdout == "alive\n"


# --- sessions ---


def test_a_session_says_what_it_is(client: Any) -> None:
    with client.session("python3", name="mine ü", metadata={"task": [1]}, idle_timeout_seconds=77) as session:
        record = session.refresh()
        assert (record.name, record.metadata, record.idle_timeout_seconds) == ("mine ü", {"task": [1]}, 77.0)
        assert (record.kernel_name, record.language, record.state) == ("python3", "python", SessionState.IDLE)
        assert record.id in {listed.id for listed in client.list_sessions()}


def test_what_a_session_uses_is_told_where_it_can_be_known(client: Any) -> None:
    with client.session() as empty, client.session() as full:
        full.run("held = bytearray(220 * 10**6); held[::4096] = b'x' * len(held[::4096])")
        assert full.refresh().memory_bytes is None
        listed = {session.id: session.memory_bytes for session in client.list_sessions(memory=True)}
        if full.record.isolation == "remote":
            assert (listed[empty.id], full.refresh(memory=True).memory_bytes) == (None, None)
        else:
            assert 200 * 10**6 <= listed[full.id] - listed[empty.id] < 300 * 10**6
            assert full.refresh(memory=True).memory_bytes >= 200 * 10**6
        usage = full.usage()
        assert (usage.measured, usage.processors > 0) == (full.record.isolation != "remote", True)
        assert all(sample.memory_bytes > 0 and 0 <= sample.cpu <= usage.processors for sample in usage.samples)


def test_a_session_is_busy_while_it_runs(fresh: Any) -> None:
    handle = fresh.submit("import time; time.sleep(0.5)")
    assert fresh.refresh().state is SessionState.BUSY
    handle.result()
    assert fresh.refresh().state is SessionState.IDLE


def test_the_environment_is_what_the_caller_set_and_never_the_servers(client: Any) -> None:
    with client.session(env={"KERNEL_CONTRACT": "välue"}) as session:
        result = session.run("import os; print(os.environ['KERNEL_CONTRACT']); print(dict(os.environ))")
    assert result.stdout.startswith("välue\n")
    assert CANARY not in result.stdout
    assert "JUPYTER_TOKEN" not in result.stdout
    assert "KG_AUTH_TOKEN" not in result.stdout


def test_sessions_with_different_environments_do_not_mix(client: Any) -> None:
    def value_seen(value: str) -> str:
        with client.session(env={"KERNEL_VALUE": value}) as session:
            return str(session.run("import os; print(os.environ['KERNEL_VALUE'])").stdout.strip())

    values = [f"v{i}" for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(value_seen, values)) == values


@pytest.mark.parametrize("name", ["JUPYTER_TOKEN", "JPY_PARENT_PID", "not a name"])
def test_some_variables_cannot_be_set(client: Any, name: str) -> None:
    with pytest.raises(InvalidRequest, match="env"):
        client.session(env={name: "x"})


def test_an_unknown_kernelspec_is_refused_with_those_there_are(client: Any) -> None:
    with pytest.raises(KernelSpecNotFound, match="python3"):
        client.session("no-such-kernel")


def test_a_deleted_session_is_gone_for_good(client: Any) -> None:
    session = client.session()
    execution = session.run("print('kept')")
    session.close()
    session.close()
    with pytest.raises(SessionEnded, match="deleted"):
        session.run("1")
    assert session.refresh().state is SessionState.ENDED
    assert session.id not in {listed.id for listed in client.list_sessions()}
    assert session.id in {listed.id for listed in client.list_sessions(ended=True)}
    assert client.get_execution(execution.id).record.stdout == "kept\n"


def test_deleting_a_session_ends_what_runs_in_it(client: Any) -> None:
    session = client.session()
    handle = session.submit("import time; time.sleep(30)")
    wait_for_state(handle, ExecutionState.RUNNING)
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 15.0
    assert handle.refresh().state is ExecutionState.CANCELLED


def test_an_idle_session_ends_by_itself(client: Any) -> None:
    session = client.session(idle_timeout_seconds=2.0)
    session.run("import time; time.sleep(2.5)")
    assert session.refresh().state is SessionState.IDLE
    deadline = time.monotonic() + 10
    while session.refresh().state is not SessionState.ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
    assert session.record.ended_reason == "idle for 2 s"


def test_somebody_else_may_go_on_with_a_session(client: Any, session: Any) -> None:
    session.run("handed_over = 'yes'")
    assert client.get_session(session.id).run("print(handed_over)").stdout == "yes\n"


# --- what does not exist, does not fit or is too much ---


@pytest.mark.parametrize("session_id", ["ses_unknown", "x", "a" * 64])
def test_an_unknown_session_is_not_found(client: Any, session_id: str) -> None:
    with pytest.raises(SessionNotFound):
        client.get_session(session_id)


def test_an_unknown_execution_is_not_found(client: Any) -> None:
    with pytest.raises(ExecutionNotFound):
        client.get_execution("exe_unknown")


def test_a_language_the_kernel_cannot_run_is_refused(session: Any) -> None:
    with pytest.raises(LanguageNotSupported, match="python"):
        session.run("fn main() {}", language="rust")


def test_code_beyond_the_limit_is_refused_and_just_below_it_runs(session: Any) -> None:
    with pytest.raises(PayloadTooLarge, match=str(MAX_CODE_BYTES)):
        session.run("#" * (MAX_CODE_BYTES + 1))
    assert session.run("#" * MAX_CODE_BYTES).ok


def test_input_that_nobody_asked_for_is_refused(session: Any) -> None:
    handle = session.submit("import time; time.sleep(0.5)", allow_input=True)
    wait_for_state(handle, ExecutionState.RUNNING)
    with pytest.raises(NoInputRequested):
        handle.answer_input("x")
    handle.result()
    with pytest.raises(NoInputRequested):
        handle.answer_input("x")


def test_input_is_answered_from_elsewhere(session: Any) -> None:
    handle = session.submit("print('got', input('? '))", allow_input=True)
    answered = threading.Event()
    for event in handle.events():
        if event.type == "input_request" and not answered.is_set():
            handle.answer_input("it")
            answered.set()
    assert handle.result().stdout.endswith("got it\n")


@pytest.mark.owner
def test_the_server_says_what_it_is_and_what_we_may_do(client: Any) -> None:
    info = client.info()
    assert info["host"] in ("jupyter_server", "kernel_gateway")
    assert info["caller"]["principal"] == "owner"
    assert "executions:create" in info["caller"]["scopes"]
    assert info["limits"]["max_code_bytes"] == MAX_CODE_BYTES
    assert "python3" in {spec.name for spec in client.kernelspecs()}
