"""Checkpoints of real kernels: state, files, branches, refusals, limits, races, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import (
    CheckpointFailed,
    CheckpointHindered,
    CheckpointNotFound,
    CheckpointUnsupported,
    Conflict,
    TooManyCheckpoints,
    TooManySessions,
)
from jupyter_exec_ext.models import Execution, ExecutionRequest, ExecutionState, SessionRequest
from tests.support.audit_records import audit_records
from tests.support.session_processes import ends, marked, runs
from tests.support.waiting import until

ME = owner("me")
Make = Callable[..., ExecEngine]


async def run(engine: ExecEngine, session_id: str, code: str, caller: Caller = ME) -> Execution:
    return await (await engine.execute(caller, session_id, ExecutionRequest(code))).wait()


async def printed(engine: ExecEngine, session_id: str, code: str) -> str:
    execution = await run(engine, session_id, code)
    assert execution.state is ExecutionState.OK, execution.error
    return execution.stdout.strip()


async def new_session(engine: ExecEngine, code: str = "") -> str:
    session_id = (await engine.create_session(ME, SessionRequest())).id
    if code:
        await printed(engine, session_id, code)
    return session_id


def frozen_pids(engine: ExecEngine, session_id: str) -> list[int]:
    return engine._registry.checkpoints[session_id].pids()


async def test_a_session_goes_back_and_forth_between_its_checkpoints(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = [1]")
    first = await engine.checkpoints.create(ME, session_id, "first")
    await printed(engine, session_id, "x.append(2)")
    second = await engine.checkpoints.create(ME, session_id, "second")
    await printed(engine, session_id, "x.append(3)")
    for checkpoint, value in ((first, "[1]"), (second, "[1, 2]"), (first, "[1]")):
        session = await engine.checkpoints.restore(ME, session_id, checkpoint.id)
        assert await printed(engine, session_id, "print(x)") == value
    assert [restore.checkpoint for restore in session.restores] == [first.id, second.id, first.id]
    assert [one.name for one in await engine.checkpoints.list(ME, session_id)] == ["first", "second"]


async def test_the_kernel_keeps_its_id_and_what_is_left_has_ended(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    before = (await engine.get_session(ME, session_id)).kernel_id
    old = int(await printed(engine, session_id, "import os; print(os.getpid())"))
    checkpoint = await engine.checkpoints.create(ME, session_id)
    session = await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert (session.kernel_id, session.kernel_starts) == (before, 2)
    assert ends(old, within_seconds=5)
    assert len(marked(session_id)) == 1
    # An ordinary restart has none of the state, and checkpoints stay.
    await engine.restart_session(ME, session_id)
    assert await printed(engine, session_id, "print('os' in dir())") == "False"
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print('os' in dir())") == "True"


async def test_each_life_of_a_chain_adds_few_descriptors(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    counts = []
    for _ in range(8):
        checkpoint = await engine.checkpoints.create(ME, session_id)
        await engine.checkpoints.restore(ME, session_id, checkpoint.id)
        await engine.checkpoints.delete(ME, session_id, checkpoint.id)
        counts.append(int(await printed(engine, session_id, "import os; print(len(os.listdir('/proc/self/fd')))")))
    # Two of the history, and what is not the kernel's own.
    assert counts[-1] - counts[1] <= 6 * 7, counts


async def test_a_branch_that_dies_says_how(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    branches = await engine.checkpoints.branch(ME, session_id, count=2)
    died = [await run(engine, branches[0].id, "import os; os._exit(3)")]
    died.append(await run(engine, branches[1].id, "os = __import__('os'); os.kill(os.getpid(), 9)"))
    assert [(one.kernel_exit_code, one.kernel_signal) for one in died] == [(3, None), (None, "SIGKILL")]


async def test_files_open_files_and_the_directory_are_as_they_were(engine: ExecEngine) -> None:
    code = "import os; os.mkdir('d'); os.chdir('d'); f = open('log', 'w'); f.write('one '); f.flush()"
    session_id = await new_session(engine, code)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    assert checkpoint.files
    await printed(engine, session_id, "f.write('two '); f.flush(); open('new', 'w').close()")
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    execution = await run(engine, session_id, "f.write('three'); f.close(); print(os.listdir(), open('log').read())")
    assert execution.stdout == "['log'] one three\n"
    assert [file.path for file in execution.files] == ["d/log"]  # what came back is no change of the run


async def test_what_files_have_in_memory_is_written_once(engine: ExecEngine, tmp_path: Path) -> None:
    # Outside of the working directory, so that the files are not restored.
    session_id = await new_session(engine, f"import os; os.chdir({str(tmp_path)!r}); f = open('log', 'w')")
    await printed(engine, session_id, "f.write('one ')")
    first = await engine.checkpoints.create(ME, session_id)
    assert (tmp_path / "log").read_text() == "one "
    # One more file, and another one with the same path and descriptor.
    await printed(engine, session_id, "g = open('other', 'w'); g.write('two '); f.close(); f = open('log', 'a')")
    await printed(engine, session_id, "f.write('three ')")
    await engine.checkpoints.create(ME, session_id)
    assert [(tmp_path / name).read_text() for name in ("log", "other")] == ["one three ", "two "]
    await engine.checkpoints.restore(ME, session_id, first.id)
    await printed(engine, session_id, "h = open('last', 'w'); h.write('four ')")
    await engine.checkpoints.create(ME, session_id)
    await printed(engine, session_id, "f.close(); h.close()")
    assert [(tmp_path / name).read_text() for name in ("log", "other", "last")] == ["one three ", "two ", "four "]


async def test_branches_have_the_state_and_share_nothing_afterwards(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1; f = open('log', 'w'); f.write('of all '); f.flush()")
    branches = await engine.checkpoints.branch(ME, session_id, count=3)
    assert [branch.branch_of for branch in branches] == [session_id] * 3
    assert await engine.checkpoints.list(ME, session_id) == []  # the one for the branches is gone
    assert (await run(engine, branches[0].id, "x")).files == ()
    code = "x += {0}; f.write('{0}'); f.close(); print(x, open('log').read())"
    done = [await printed(engine, branch.id, code.format(number)) for number, branch in enumerate(branches, 10)]
    assert done == ["11 of all 10", "12 of all 11", "13 of all 12"]
    assert await printed(engine, session_id, "print(x, open('log').read())") == "1 of all"
    pids = {await printed(engine, branch.id, "import os; print(os.getpid())") for branch in branches}
    assert len(pids) == 3
    assert all(marked(branch.id) for branch in branches)
    await engine.delete_session(ME, session_id)
    assert await printed(engine, branches[0].id, "print(x)") == "11"  # they outlive what they came from
    await engine.restart_session(ME, branches[0].id)
    assert await printed(engine, branches[0].id, "print('x' in dir())") == "False"


async def test_a_branch_that_is_restarted_starts_as_a_session_like_its_origin(engine: ExecEngine) -> None:
    request = SessionRequest(env={"A": "1"}, cwd="data")
    session_id = (await engine.create_session(ME, request, setup_code="set_up = True")).id
    [branch] = await engine.checkpoints.branch(ME, session_id)
    [second] = await engine.checkpoints.branch(ME, branch.id)
    await engine.delete_session(ME, session_id)
    for branch_id in (branch.id, second.id):
        await engine.restart_session(ME, branch_id)
        printed_all = await printed(engine, branch_id, "import os; print(os.environ['A'], os.getcwd(), set_up)")
        assert printed_all == f"1 {Path(engine.work_root).absolute() / branch_id / 'data'} True"


async def test_branches_are_all_there_or_none(make_engine: Make) -> None:
    engine = make_engine(max_sessions=3)
    session_id = await new_session(engine)
    with pytest.raises(TooManySessions):
        await engine.checkpoints.branch(ME, session_id, count=3)
    assert [session.id for session in await engine.list_sessions(ME)] == [session_id]


async def test_random_numbers_differ_unless_the_same_ones_are_wanted(engine: ExecEngine) -> None:
    draw = "import random; print(random.random())"
    session_id = await new_session(engine, draw)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    expected = await printed(engine, session_id, draw)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, draw) != expected
    await engine.checkpoints.restore(ME, session_id, checkpoint.id, same_random=True)
    assert await printed(engine, session_id, draw) == expected


async def test_a_kernel_that_has_died_comes_back(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 'kept'")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    died = await run(engine, session_id, "import os; os._exit(3)")
    assert died.state is ExecutionState.KERNEL_DIED
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print(x)") == "kept"
    # Its exit is known, although another process is its parent.
    died = await run(engine, session_id, "import os; os.kill(os.getpid(), 9)")
    assert (died.state, "SIGKILL" in (died.reason or "")) == (ExecutionState.KERNEL_DIED, True)


async def test_running_code_stands_against_both(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    handle = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(60)"))
    await until(lambda: handle.record.state is ExecutionState.RUNNING)
    for attempt in (
        engine.checkpoints.create(ME, session_id),
        engine.checkpoints.restore(ME, session_id, checkpoint.id),
    ):
        with pytest.raises(Conflict, match="runs code"):
            await attempt
    await engine.interrupt_session(ME, session_id)
    await handle.wait()
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)


HINDRANCES = {
    "thread: worker": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), name='worker').start()",
    "child process: sleep": "import subprocess; child = subprocess.Popen(['sleep', '60'])",
    "connection: listening at 127.0.0.1": "import socket; listening = socket.create_server(('127.0.0.1', 0))",
    "database: ": "import sqlite3; database = sqlite3.connect('data.db'); database.execute('create table t (a)')",
    "asyncio task: mine (wait)": (
        "import asyncio\nasync def wait(): await asyncio.sleep(60)\ntask = asyncio.create_task(wait(), name='mine')"
    ),
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
async def test_what_cannot_be_taken_along_is_named(engine: ExecEngine, hindrance: str) -> None:
    session_id = await new_session(engine, HINDRANCES[hindrance])
    with pytest.raises(CheckpointHindered) as refused:
        await engine.checkpoints.create(ME, session_id)
    assert hindrance in refused.value.message
    checkpoint = await engine.checkpoints.create(ME, session_id, force=True)
    assert [str(lost).startswith(hindrance) for lost in checkpoint.lost] == [True]
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print('works')") == "works"


async def test_idle_pools_go_on_after_a_return(engine: ExecEngine) -> None:
    code = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2); pool.submit(int).result()"
    session_id = await new_session(engine, code)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print(pool.submit(int, '7').result(5))") == "7"


async def test_limits_hold(make_engine: Make) -> None:
    engine = make_engine(max_checkpoints=1)
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    with pytest.raises(TooManyCheckpoints, match="at most 1"):
        await engine.checkpoints.create(ME, session_id)
    await engine.checkpoints.delete(ME, session_id, checkpoint.id)
    for use in (engine.checkpoints.delete, engine.checkpoints.restore):
        with pytest.raises(CheckpointNotFound):
            await use(ME, session_id, checkpoint.id)
    await engine.checkpoints.create(ME, session_id)


async def test_a_checkpoint_that_is_not_used_is_deleted(make_engine: Make) -> None:
    engine = make_engine(checkpoint_ttl_seconds=0.2)
    session_id = await new_session(engine)
    await engine.checkpoints.create(ME, session_id)
    (pid,) = frozen_pids(engine, session_id)
    assert await asyncio.to_thread(ends, pid, within_seconds=5)
    assert await engine.checkpoints.list(ME, session_id) == []


async def test_a_checkpoint_is_kept_while_its_session_runs_code(make_engine: Make) -> None:
    engine = make_engine(checkpoint_ttl_seconds=2.0)
    session_id = await new_session(engine, "import time")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await printed(engine, session_id, "time.sleep(2.5)")
    await printed(engine, session_id, "time.sleep(1.5)")
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    await until(lambda: not frozen_pids(engine, session_id))
    assert engine._registry.sessions[session_id].idle_seconds >= 2.0


async def test_nothing_is_left_of_a_session_with_checkpoints(make_engine: Make) -> None:
    engine = make_engine(pool_size=0)
    descriptors = []
    for _ in range(3):
        session_id = await new_session(engine, "open('file', 'w').close()")
        for _ in range(2):
            checkpoint = await engine.checkpoints.create(ME, session_id)
            await engine.checkpoints.restore(ME, session_id, checkpoint.id)
        pids = [*frozen_pids(engine, session_id), *marked(session_id)]
        assert len(pids) == 3
        await engine.delete_session(ME, session_id)
        await until(lambda pids=pids: not any(map(runs, pids)))  # type: ignore[misc]
        kept = Path(engine.work_root) / ".checkpoints" / session_id
        await until(lambda kept=kept: not kept.exists())  # type: ignore[misc]
        gc.collect()
        descriptors.append(len(os.listdir("/proc/self/fd")))
    # The index of the search opens its files in its own time; a leak would be one for each of six returns.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors[0] + 5)


async def test_a_notebook_has_what_has_led_to_the_present_state(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await printed(engine, session_id, "x = 'left'")
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    await printed(engine, session_id, "x += 1")
    notebook = json.loads(await (await engine.notebook(ME, session_id)).collect())
    assert [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"] == ["x = 1", "x += 1"]


async def test_code_submitted_during_a_restore_is_not_undone_by_it(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    # Files that the restore removes at its end, which takes a moment.
    undone = await run(engine, session_id, "x = 2\nfor number in range(500): open(str(number), 'w').close()")
    live = engine._registry.sessions[session_id]
    restoring = asyncio.create_task(engine.checkpoints.restore(ME, session_id, checkpoint.id))
    await until(lambda: live.kernel.connection is None)
    execution = await run(engine, session_id, "x += 1; open('new', 'w').close()")
    session = await restoring
    assert [file.path for file in execution.files] == ["new"]
    assert session.restores[-1].before == undone.id
    notebook = json.loads(await (await engine.notebook(ME, session_id)).collect())
    sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sources == ["x = 1", "x += 1; open('new', 'w').close()"]


async def test_memory_of_a_session_has_its_checkpoints(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await printed(engine, session_id, "data = bytearray(64_000_000)")
    larger = await engine.checkpoints.create(ME, session_id)
    await printed(engine, session_id, "del data")
    session = await engine.get_session(ME, session_id, memory=True)
    assert (session.memory_bytes or 0) > 64_000_000  # which the checkpoint alone has
    memory = {one.id: one.memory_bytes or 0 for one in await engine.checkpoints.list(ME, session_id)}
    assert memory[larger.id] > 64_000_000 > memory[checkpoint.id] > 0


async def test_a_lost_checkpoint_leaves_the_session_as_it_is(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 5")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    (pid,) = frozen_pids(engine, session_id)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(CheckpointFailed, match="lost"):
        await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print(x)") == "5"
    assert await engine.checkpoints.list(ME, session_id) == []
    assert await asyncio.to_thread(ends, pid, within_seconds=5)
    lost = [record for record in await audit_records(engine) if record["action"] == "checkpoint_lost"]
    assert [record["data"]["checkpoint"] for record in lost] == [checkpoint.id]


async def test_a_process_that_does_not_begin_is_killed_and_the_kernel_unharmed(engine: ExecEngine) -> None:
    code = (
        "import os, time; os.register_at_fork(after_in_child=lambda: blocks and time.sleep(60)); blocks = True; x = 1"
    )
    session_id = await new_session(engine, code)
    with pytest.raises(CheckpointFailed, match=r"within|begin"):
        await engine.checkpoints.create(ME, session_id)
    assert await printed(engine, session_id, "blocks = False; print(x)") == "1"
    await until(lambda: len(marked(session_id)) == 1)
    await engine.checkpoints.create(ME, session_id)


async def test_garbage_is_collected_again_after_a_checkpoint_that_failed(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "import gc, os, time; gc.unfreeze()")  # as in a kernel that was not forked
    await printed(engine, session_id, "os.register_at_fork(after_in_child=lambda: time.sleep(30))")
    with pytest.raises(CheckpointFailed):
        await engine.checkpoints.create(ME, session_id)
    assert await printed(engine, session_id, "print(gc.get_freeze_count())") == "0"


async def test_hostile_answers_are_refused(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    fake = (
        "import sys, types\nfake = sys.modules['jupyter_exec_checkpoint'] = types.ModuleType('fake')\n"
        "fake.schedule_checkpoint = lambda address, nonce, force: {answer}\nfake.kill_last = lambda: None"
    )
    for answer in ("'[' * 100_000", "'{}'", "1", "'[[1]]'", "1 / 0"):
        await engine.checkpoints.create(ME, session_id)  # loads the program, again after each error
        await printed(engine, session_id, fake.replace("{answer}", answer))
        with pytest.raises(CheckpointFailed):
            await engine.checkpoints.create(ME, session_id)


@pytest.mark.parametrize(
    "line", [b"", b"no json\n", b"[]\n", b"x" * 10_000, b'{"nonce": "%s", "problem": "because"}\n']
)
async def test_a_process_that_says_something_else_is_no_checkpoint(engine: ExecEngine, line: bytes) -> None:
    session_id = await new_session(engine)
    fake = (
        "import socket, sys, types\nfake = sys.modules['jupyter_exec_checkpoint'] = types.ModuleType('fake')\n"
        "def take(address, nonce, **options):\n    control = socket.socket(socket.AF_UNIX); control.connect(address)\n"
        f"    control.sendall({line!r}.replace(b'%s', nonce.encode())); control.close(); return '[]'\n"
        "fake.schedule_checkpoint = take; fake.kill_last = lambda: None"
    )
    await engine.checkpoints.create(ME, session_id)  # loads the program
    await printed(engine, session_id, fake)
    with pytest.raises(CheckpointFailed, match="because" if b"because" in line else "process"):
        await engine.checkpoints.create(ME, session_id)


async def test_an_attached_session_has_none(engine: ExecEngine, manager: Any) -> None:
    kernel_id = await manager.start_kernel()
    session = await engine.create_session(ME, SessionRequest(kernel_id=kernel_id))
    with pytest.raises(CheckpointUnsupported, match="its user's"):
        await engine.checkpoints.create(ME, session.id)
    await manager.shutdown_kernel(kernel_id, now=True)


async def test_many_at_once_come_one_after_the_other(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    made = await asyncio.gather(*(engine.checkpoints.create(ME, session_id) for _ in range(4)))
    work = [engine.checkpoints.restore(ME, session_id, one.id) for one in made]
    work += [engine.checkpoints.create(ME, session_id)]  # type: ignore[list-item]
    done = await asyncio.gather(*work, run(engine, session_id, "x += 1"), return_exceptions=True)
    assert not [one for one in done if isinstance(one, Exception) and not isinstance(one, Conflict)], done
    assert await printed(engine, session_id, "print(x)") in ("1", "2")


async def test_a_cancelled_request_leaves_no_checkpoint(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    creating = asyncio.ensure_future(engine.checkpoints.create(ME, session_id))
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert await engine.checkpoints.list(ME, session_id) == []
