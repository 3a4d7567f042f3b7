"""Checkpoints: a session keeps its state and goes back to it, with all that code can see of a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import (
    CheckpointHindered,
    CheckpointNotFound,
    CheckpointUnsupported,
    Conflict,
    InvalidRequest,
    SessionEnded,
)
from jupyter_exec_ext.models import ExecutionState, Hindrance, SessionState
from tests.contract.test_control import wait_for_output, wait_for_state
from tests.support.bearers import mint
from tests.support.hosts import Host

WAITING = "import time; print('runs', flush=True); time.sleep(60)"
# Each process that a fork has made of the kernel holds the lock until it ends.
LOCK = "import fcntl, os; file = open('lock', 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
THREAD = "import threading\nstop = threading.Event()\nthreading.Thread(target=stop.wait, name='poller').start()"


@pytest.fixture
def kept(fresh: Any) -> Any:
    """A session of the test's own, whose kernel can have checkpoints."""
    if fresh.record.isolation not in ("none", "sandbox"):
        pytest.skip(f"no checkpoints of kernels with the isolation {fresh.record.isolation!r}")
    return fresh


@pytest.fixture
def unconfined(kept: Any) -> Any:
    """A session of the test's own without a sandbox, with which checkpoints end."""
    if kept.record.isolation != "none":
        pytest.skip("checkpoints end with the sandbox")
    return kept


def seen(session: Any, expression: str) -> str:
    """Return what an expression prints in a session."""
    result = session.run(f"print({expression})")
    assert result.ok, result
    return str(result.stdout.strip())


# --- state that comes back ---


def test_variables_are_as_they_were_at_the_checkpoint(kept: Any) -> None:
    kept.run("text, numbers, kept_by_code = 'first', [1], (lambda: numbers)")
    checkpoint = kept.checkpoint()
    kept.run("text = 'second'; numbers.append(2); new = 1")
    kept.restore(checkpoint)
    assert seen(kept, "text, numbers, kept_by_code() is numbers, 'new' in globals()") == "first [1] True False"


def test_execution_count_and_history_lists_are_as_they_were(kept: Any) -> None:
    kept.run("6 * 7")
    checkpoint = kept.checkpoint()
    before = kept.run("a = 1").execution_count
    kept.run("'later'")
    kept.restore(checkpoint)
    result = kept.run("print(len(In), In[1], Out, _)")
    assert (result.execution_count, result.stdout) == (before, f"{before + 1} 6 * 7 {{1: 42}} 42\n")
    result = kept.run("'again'")
    assert (result.execution_count, seen(kept, f"Out[{before + 1}]")) == (before + 1, "again")


def test_working_directory_and_environment_are_as_they_were(kept: Any) -> None:
    kept.run("import os; os.makedirs('below'); os.chdir('below'); os.environ['STAGE'] = 'one'; place = os.getcwd()")
    checkpoint = kept.checkpoint()
    kept.run("os.chdir('..'); os.environ['STAGE'] = 'two'; os.environ['MORE'] = '1'")
    kept.restore(checkpoint)
    assert seen(kept, "os.getcwd() == place, os.environ['STAGE'], os.environ.get('MORE')") == "True one None"
    assert kept.run("!pwd; echo $STAGE").stdout.split()[-1] == "one"


def test_imports_and_open_files_are_as_they_were(kept: Any) -> None:
    kept.run("import fractions; file = open('lines.txt', 'w+'); _ = file.write('one\\n'); file.flush()")
    checkpoint = kept.checkpoint()
    kept.run("file.close(); del fractions")
    kept.restore(checkpoint)
    assert seen(kept, "fractions.Fraction(1, 2), file.closed, file.write('two\\n')") == "1/2 False 4"
    assert seen(kept, "file.flush(), open('lines.txt').read().split()") == "None ['one', 'two']"


def test_files_are_as_they_were(kept: Any) -> None:
    kept.run("open('kept.txt', 'w').write('one'); open('removed.txt', 'w').close()")
    checkpoint = kept.checkpoint()
    kept.run("open('kept.txt', 'w').write('two'); import os; os.remove('removed.txt'); open('new.txt', 'w').close()")
    kept.restore(checkpoint)
    assert checkpoint.files is True
    assert (
        seen(kept, "open('kept.txt').read(), sorted(__import__('os').listdir())") == "one ['kept.txt', 'removed.txt']"
    )


@pytest.mark.parametrize("same", [False, True])
def test_random_numbers_are_others_unless_the_same_are_asked_for(kept: Any, same: bool) -> None:
    kept.run("import random; random.seed(1)")
    checkpoint = kept.checkpoint()
    drawn = []
    for _ in range(2):
        kept.restore(checkpoint, same_random=same)
        drawn.append(seen(kept, "random.random()"))
    assert (drawn[0] == drawn[1]) is same


# --- a session goes on after a restore ---


def test_output_and_results_come_after_a_restore(kept: Any) -> None:
    kept.restore(kept.checkpoint())
    result = kept.run("import sys; print('out'); print('err', file=sys.stderr); 'value'")
    assert (result.state, result.stdout, result.stderr) == (ExecutionState.OK, "out\n", "err\n")
    assert result.text == "'value'"
    assert kept.run("import os; os.system('echo child') and None").stdout == "child\n"
    assert kept.run("print('x' * 300_000)").stdout == "x" * 300_000 + "\n"


def test_streams_that_code_has_kept_print_after_a_restore(kept: Any) -> None:
    kept.run("import sys, logging; out = sys.stdout; logging.basicConfig(stream=sys.stderr, format='%(message)s')")
    kept.restore(kept.checkpoint())
    result = kept.run("_ = out.write('kept\\n'); logging.warning('logged')")
    assert (result.stdout, result.stderr) == ("kept\n", "logged\n")


def test_errors_come_after_a_restore(kept: Any) -> None:
    kept.run("def fail(): return 1 / 0")
    kept.restore(kept.checkpoint())
    result = kept.run("fail()")
    assert (result.state, result.error.name) == (ExecutionState.ERROR, "ZeroDivisionError")
    assert "return 1 / 0" in result.error.traceback


def test_input_is_asked_for_after_a_restore(kept: Any) -> None:
    kept.restore(kept.checkpoint())
    assert kept.run("print('got', input('? '))", on_input=lambda request: "it").stdout.endswith("got it\n")


def test_displays_are_shown_and_updated_after_a_restore(kept: Any) -> None:
    kept.run("from IPython.display import display")
    kept.run("shown = display({'text/plain': 'early'}, raw=True, display_id='early')")
    kept.restore(kept.checkpoint())
    code = "display({'text/plain': 'one'}, raw=True, display_id=True).update({'text/plain': 'two'}, raw=True)"
    assert [output["data"]["text/plain"] for output in kept.run(code).outputs] == ["two"]
    code = "shown.display({'text/plain': 'three'}, raw=True); shown.update({'text/plain': 'four'}, raw=True)"
    assert [output["data"]["text/plain"] for output in kept.run(code).outputs] == ["four"]


def test_an_interrupt_and_a_time_limit_end_code_after_a_restore(kept: Any) -> None:
    kept.restore(kept.checkpoint())
    handle = kept.submit(WAITING)
    wait_for_output(handle)
    kept.interrupt()
    assert handle.result(timeout_seconds=10).state is ExecutionState.INTERRUPTED
    result = kept.run("while True: pass", timeout_seconds=0.3)
    assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, True)


def test_restart_after_a_restore_clears_the_state_and_the_checkpoint_stays(unconfined: Any) -> None:
    unconfined.run("state = 'kept'")
    checkpoint = unconfined.checkpoint()
    unconfined.restore(checkpoint)
    unconfined.restart()
    assert seen(unconfined, "'state' in globals()") == "False"
    unconfined.restore(checkpoint)
    assert seen(unconfined, "state") == "kept"


# --- the session's record ---


def test_the_session_keeps_its_ids_and_counts_a_start(kept: Any) -> None:
    before = kept.refresh()
    kept.restore(kept.checkpoint())
    after = kept.record
    assert (after.id, after.kernel_id, after.state) == (before.id, before.kernel_id, SessionState.IDLE)
    assert (after.kernel_starts, kept.refresh().kernel_starts) == (before.kernel_starts + 1,) * 2


def test_the_record_of_a_checkpoint_names_its_session_and_the_last_execution(kept: Any) -> None:
    first = kept.checkpoint()
    ran = kept.run("1")
    second = kept.checkpoint("data loaded ü")
    assert (first.session_id, first.name, first.after, first.lost) == (kept.id, "", None, ())
    assert (second.session_id, second.name, second.after) == (kept.id, "data loaded ü", ran.id)
    assert (second.automatic, second.memory_bytes) == (False, None)
    listed = list(kept.checkpoints())
    assert [checkpoint.id for checkpoint in listed] == [first.id, second.id]
    assert all(checkpoint.memory_bytes > 0 for checkpoint in listed)


# --- many checkpoints, many restores ---


def test_a_checkpoint_stays_after_a_restore(kept: Any) -> None:
    kept.run("count = 0")
    checkpoint = kept.checkpoint()
    for _ in range(3):
        assert seen(kept, "count") == "0"
        kept.run("count += 1")
        kept.restore(checkpoint)
    assert [one.id for one in kept.checkpoints()] == [checkpoint.id]


def test_a_session_goes_forth_and_back_between_checkpoints(kept: Any) -> None:
    made = []
    for number in range(3):
        kept.run(f"stage = {number}")
        made.append(kept.checkpoint())
    for number in (1, 0, 2):
        kept.restore(made[number])
        assert seen(kept, "stage") == str(number)


def test_a_restored_session_can_have_checkpoints_of_its_own(kept: Any) -> None:
    kept.run("path = ['first']")
    first = kept.checkpoint()
    kept.restore(first)
    kept.run("path.append('second')")
    second = kept.checkpoint()
    kept.restore(first)
    assert seen(kept, "path") == "['first']"
    kept.restore(second.id)
    assert seen(kept, "path") == "['first', 'second']"


# --- automatic checkpoints ---


def test_a_session_with_auto_checkpoint_undoes_its_last_run(client: Any, kept: Any) -> None:
    assert (kept.record.auto_checkpoint, kept.record.auto_checkpoint_problem) == ("off", None)
    with client.session(auto_checkpoint="each_run") as session:
        assert session.record.auto_checkpoint == "each_run"
        session.run("data = [1]")
        failed = session.run("data.clear(); unknown")
        checkpoint = session.checkpoints()[-1]
        assert (checkpoint.name, checkpoint.automatic) == (f"before {failed.id}", True)
        session.restore(checkpoint)
        assert seen(session, "data") == "[1]"
        assert session.refresh().auto_checkpoint_problem is None


def test_another_value_of_auto_checkpoint_is_refused(client: Any) -> None:
    with pytest.raises(InvalidRequest, match="'auto_checkpoint' must be 'off' or 'each_run'"):
        client.session(auto_checkpoint="sometimes")


# --- code that runs, and code that waits ---


def test_queued_executions_are_cancelled_by_a_restore(kept: Any, host: Host) -> None:
    # The first in the queue waits for approval, so no code runs.
    asking = mint(host, policy="trusted", approval={"when": ["shell"]})
    with ExecClient(host.info.url, asking.token) as agent, agent.session() as session:
        session.run("state = 'kept'")
        checkpoint = session.checkpoint()
        handles = [session.submit("!echo never"), session.submit("state = 'changed'")]
        wait_for_state(handles[0], ExecutionState.AWAITING_APPROVAL)
        session.restore(checkpoint)
        assert [handle.refresh().state for handle in handles] == [ExecutionState.CANCELLED] * 2
        assert session.run("print(state)").stdout == "kept\n"


@pytest.mark.parametrize("action", ["checkpoint", "restore"])
def test_while_code_runs_there_is_no_checkpoint_and_no_restore(kept: Any, action: str) -> None:
    kept.run("state = 'kept'")
    checkpoint = kept.checkpoint()
    handle = kept.submit(WAITING)
    wait_for_output(handle)
    with pytest.raises(Conflict, match="runs code"):
        kept.checkpoint() if action == "checkpoint" else kept.restore(checkpoint)
    handle.cancel()
    assert seen(kept, "state") == "kept"
    assert [one.id for one in kept.checkpoints()] == [checkpoint.id]


# --- branches ---


def test_branches_begin_with_the_state_and_go_ways_of_their_own(unconfined: Any) -> None:
    unconfined.run("path = ['trunk']; open('trunk.txt', 'w').close()")
    branches = unconfined.branch(2)
    try:
        for number, branch in enumerate(branches):
            assert (branch.record.branch_of, branch.id != unconfined.id) == (unconfined.id, True)
            branch.run(f"path.append({number}); open('branch.txt', 'w').close()")
            assert seen(branch, "path, sorted(__import__('os').listdir())") == (
                f"['trunk', {number}] ['branch.txt', 'trunk.txt']"
            )
    finally:
        for branch in branches:
            branch.close()
    assert seen(unconfined, "path, __import__('os').listdir()") == "['trunk'] ['trunk.txt']"
    assert list(unconfined.checkpoints()) == []


# --- the end of checkpoints ---


def test_a_deleted_checkpoint_is_not_found(kept: Any) -> None:
    first, second = kept.checkpoint(), kept.checkpoint()
    kept.delete_checkpoint(first)
    assert [one.id for one in kept.checkpoints()] == [second.id]
    for call in (kept.restore, kept.delete_checkpoint):
        with pytest.raises(CheckpointNotFound, match=first.id):
            call(first)
    kept.restore(second)
    kept.delete_checkpoint(second.id)
    assert list(kept.checkpoints()) == []
    assert kept.run("print('goes on')").stdout == "goes on\n"


@pytest.mark.parametrize("unknown", ["chk_unknown", "x", "a" * 64])
def test_an_unknown_checkpoint_is_not_found_and_changes_nothing(kept: Any, unknown: str) -> None:
    kept.run("state = 'kept'")
    for call in (kept.restore, kept.delete_checkpoint):
        with pytest.raises(CheckpointNotFound):
            call(unknown)
    assert seen(kept, "state") == "kept"


def test_a_checkpoint_is_of_its_session_alone(client: Any, kept: Any) -> None:
    checkpoint = kept.checkpoint()
    with client.session() as other:
        assert list(other.checkpoints()) == []
        with pytest.raises(CheckpointNotFound):
            other.restore(checkpoint)


def test_the_process_of_a_deleted_checkpoint_ends(kept: Any) -> None:
    kept.run(LOCK)
    checkpoint = kept.checkpoint()
    kept.run("file.close()")
    assert kept.run("fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)").error.name == "BlockingIOError"
    kept.delete_checkpoint(checkpoint)
    assert kept.run("fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX)", timeout_seconds=10).ok


def test_checkpoints_and_their_processes_end_with_the_session(kept: Any, session: Any) -> None:
    kept.run(LOCK)
    path = seen(kept, "os.path.abspath('lock')")
    checkpoint = kept.checkpoint()
    kept.restore(checkpoint)
    kept.close()
    for call in (kept.checkpoint, kept.checkpoints, lambda: kept.restore(checkpoint)):
        with pytest.raises(SessionEnded, match="deleted"):
            call()
    assert session.run(f"import fcntl; fcntl.flock(open({path!r}, 'w'), fcntl.LOCK_EX)", timeout_seconds=10).ok


# --- things that cannot be taken along ---


def test_a_thread_is_refused_by_its_name_and_left_behind_with_force(kept: Any) -> None:
    kept.run(THREAD)
    with pytest.raises(CheckpointHindered, match="thread: poller"):
        kept.checkpoint()
    assert list(kept.checkpoints()) == []
    checkpoint = kept.checkpoint(force=True)
    assert checkpoint.lost == (Hindrance("thread", "poller"),)
    assert [tuple(one.lost) for one in kept.checkpoints()] == [checkpoint.lost]
    assert seen(kept, "[thread.name for thread in threading.enumerate()].count('poller')") == "1"
    kept.run("stop.set()")
    kept.restore(checkpoint)
    assert seen(kept, "stop.is_set(), [thread.name for thread in threading.enumerate()].count('poller')") == "False 0"


def test_checkpoint_is_made_once_the_hindrance_has_ended(kept: Any) -> None:
    kept.run("import subprocess; child = subprocess.Popen(['sleep', '60'])")
    with pytest.raises(CheckpointHindered, match="child process: sleep"):
        kept.checkpoint()
    kept.run("child.kill(); child.wait()")
    assert kept.checkpoint().lost == ()


# --- kernels without checkpoints ---


@pytest.mark.owner
def test_a_kernel_of_a_person_has_no_checkpoints(client: Any, host: Host) -> None:
    with (
        ExecClient(host.owner) as owner,
        owner.standard_session() as person,
        client.session(kernel_id=person.id) as attached,
    ):
        with pytest.raises(CheckpointUnsupported, match="its user's"):
            attached.checkpoint()
        assert list(attached.checkpoints()) == []


def test_what_isolation_does_not_allow_is_refused_with_its_reason(fresh: Any) -> None:
    isolation = fresh.record.isolation
    if isolation == "none":
        pytest.skip("kernels of this host are not isolated")
    if isolation == "sandbox":
        with pytest.raises(CheckpointUnsupported, match="no branches of a session in a sandbox"):
            fresh.branch()
    else:
        with pytest.raises(CheckpointUnsupported, match=f"isolation '{isolation}'"):
            fresh.checkpoint()


# --- kernels that have died ---


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_session_whose_kernel_has_died_goes_back_to_its_checkpoint(unconfined: Any, end: str) -> None:
    unconfined.run("import os, signal; state = 'kept'")
    checkpoint = unconfined.checkpoint()
    unconfined.run("state = 'changed'")
    assert unconfined.run(end).state is ExecutionState.KERNEL_DIED
    unconfined.restore(checkpoint)
    result = unconfined.run("print(state)")
    assert (result.stdout, result.session_state_lost) == ("kept\n", None)
    assert [one.id for one in unconfined.checkpoints()] == [checkpoint.id]
