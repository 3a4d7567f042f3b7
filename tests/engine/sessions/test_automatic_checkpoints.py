"""Automatic checkpoints: one before each run in a ring, which makes room for others and never stands against a run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from jupyter_exec_ext.auth.caller import Caller
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions import automatic_checkpoints
from jupyter_exec_ext.errors import MissingScope, PolicyDenied, PolicyLimitReached, TooManyCheckpoints
from jupyter_exec_ext.models import Checkpoint, Execution, ExecutionState, SessionRequest
from tests.engine.sessions.test_attached_kernel import bearer
from tests.engine.sessions.test_checkpoints import HINDRANCES, ME, Make, frozen_pids, printed, run
from tests.support.waiting import until

EACH_RUN = SessionRequest(auto_checkpoint="each_run")


async def watched_session(engine: ExecEngine, caller: Caller = ME) -> str:
    return (await engine.create_session(caller, EACH_RUN)).id


async def ran(engine: ExecEngine, session_id: str, *codes: str) -> list[Execution]:
    """Run code, and return the executions."""
    return [await run(engine, session_id, code) for code in codes]


async def kept(engine: ExecEngine, session_id: str) -> list[Checkpoint]:
    return list(await engine.checkpoints.list(ME, session_id))


async def problem(engine: ExecEngine, session_id: str) -> str:
    return (await engine.get_session(ME, session_id)).auto_checkpoint_problem or ""


async def test_each_run_has_a_checkpoint_before_it_that_names_it(engine: ExecEngine) -> None:
    session_id = await watched_session(engine)
    executions = await ran(engine, session_id, "x = 1", "x = 2", "x = 3; 1 / 0")
    checkpoints = await kept(engine, session_id)
    assert [one.name for one in checkpoints] == [f"before {execution.id}" for execution in executions]
    assert [one.after for one in checkpoints] == [None, executions[0].id, executions[1].id]
    assert all(one.automatic for one in checkpoints)
    await engine.checkpoints.restore(ME, session_id, checkpoints[-1].id)
    assert await printed(engine, session_id, "print(x)") == "2"
    assert await problem(engine, session_id) == ""


async def test_the_first_one_has_the_state_of_a_fresh_kernel(engine: ExecEngine) -> None:
    session_id = await watched_session(engine)
    await ran(engine, session_id, "x = 1; open('file', 'w').close()")
    (first,) = await kept(engine, session_id)
    await engine.checkpoints.restore(ME, session_id, first.id)
    assert await printed(engine, session_id, "import os; print('x' in dir(), os.listdir())") == "False []"


async def test_the_ring_keeps_the_newest_and_what_a_person_has_made(make_engine: Make) -> None:
    engine = make_engine(max_automatic_checkpoints=2)
    session_id = await watched_session(engine)
    await ran(engine, session_id, "1")
    mine = await engine.checkpoints.create(ME, session_id, "mine")
    executions = await ran(engine, session_id, "2", "3", "4")
    names = [one.name for one in await kept(engine, session_id)]
    assert names == [mine.name, *[f"before {execution.id}" for execution in executions[1:]]]
    await until(lambda: len(frozen_pids(engine, session_id)) == 3)


async def test_a_session_without_it_has_none_and_no_hook(engine: ExecEngine) -> None:
    session_id = (await engine.create_session(ME, SessionRequest())).id
    await ran(engine, session_id, "1")
    assert engine._registry.sessions[session_id].runner.before_run is None
    assert session_id not in engine._registry.checkpoints
    assert (await engine.get_session(ME, session_id)).auto_checkpoint == "off"


async def test_a_branch_has_it_as_its_origin(engine: ExecEngine) -> None:
    session_id = await watched_session(engine)
    await ran(engine, session_id, "x = 1")
    (branch,) = await engine.checkpoints.branch(ME, session_id)
    assert branch.auto_checkpoint == "each_run"
    (execution,) = await ran(engine, branch.id, "x = 2")
    assert [one.name for one in await kept(engine, branch.id)] == [f"before {execution.id}"]


async def test_a_hindrance_is_in_the_record_and_logged_once_and_code_runs(
    engine: ExecEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session_id = await watched_session(engine)
    await ran(engine, session_id, HINDRANCES["child process: sleep"])
    for execution in await ran(engine, session_id, "x = 1", "x = 2"):
        assert execution.state is ExecutionState.OK
    assert "child process: sleep" in await problem(engine, session_id)
    assert [record.levelname for record in caplog.records if "no automatic" in record.message] == ["INFO"]
    assert len(await kept(engine, session_id)) == 1
    await ran(engine, session_id, "child.kill(); child.wait()", "x = 3")
    assert await problem(engine, session_id) == ""
    assert len(await kept(engine, session_id)) == 2


async def test_a_kernel_that_cannot_be_frozen_delays_one_run_within_the_bound(engine: ExecEngine) -> None:
    session_id = await watched_session(engine)
    await ran(engine, session_id, "import os, time; os.register_at_fork(after_in_child=lambda: time.sleep(60)); x = 1")
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    assert await printed(engine, session_id, "print(x)") == "1"
    first_seconds, began_at = loop.time() - began_at, loop.time()
    for _ in range(3):
        assert await printed(engine, session_id, "print(x)") == "1"
    assert loop.time() - began_at < first_seconds
    assert await problem(engine, session_id)


async def test_one_that_takes_too_long_is_given_up_and_leaves_nothing(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await watched_session(engine)
    await ran(engine, session_id, "x = 1")
    files, end, calls = engine.checkpoints._maker.files, asyncio.Event(), []
    keep = files.keep

    async def keep_slowly(*ids: str) -> None:
        calls.append(ids)
        if len(calls) == 1:
            await end.wait()
        await keep(*ids)

    monkeypatch.setattr(files, "keep", keep_slowly)
    monkeypatch.setattr("jupyter_exec_ext.engine.sessions.checkpoint_maker.MAX_DELAY_SECONDS", 0.5)
    assert await printed(engine, session_id, "print(x)") == "1"
    assert "within 0.5 s" in await problem(engine, session_id)
    assert len(await kept(engine, session_id)) == 1
    left_behind = engine._registry.checkpoints[session_id]._left_behind
    assert left_behind is not None
    creating = asyncio.ensure_future(engine.checkpoints.create(ME, session_id))
    await printed(engine, session_id, "print(x)")  # the checkpoint would be ready by now
    assert (creating.done(), left_behind.done()) == (False, False)
    end.set()
    mine = await creating
    assert [(directory.name, directory.is_dir()) for directory in sorted(files._of_session(session_id).iterdir())] == [
        (one.id, True) for one in sorted(await kept(engine, session_id), key=lambda one: one.id)
    ]
    assert [one.automatic for one in await kept(engine, session_id)] == [True, False]
    await engine.checkpoints.restore(ME, session_id, mine.id)
    assert await printed(engine, session_id, "print(x)") == "1"


async def test_a_kernel_that_dies_meanwhile_is_replaced_and_the_loss_reported(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await watched_session(engine)
    pid = int(await printed(engine, session_id, "import os; x = 1; print(os.getpid())"))
    live = engine._registry.sessions[session_id]

    async def die(name: str) -> None:
        os.kill(pid, signal.SIGKILL)
        await until(lambda: live.kernel.connection is None)

    log = logging.getLogger("test")
    live.runner.before_run = automatic_checkpoints.AutomaticCheckpoints(live, die, log).before_run
    execution = await run(engine, session_id, "print('x' in dir())")
    assert (execution.stdout, execution.state) == ("False\n", ExecutionState.OK)
    assert execution.session_state_lost is not None


async def test_a_restart_meanwhile_cancels_the_execution(engine: ExecEngine) -> None:
    session_id = await watched_session(engine)
    live = engine._registry.sessions[session_id]
    begun, end = asyncio.Event(), asyncio.Event()

    async def wait(name: str) -> None:
        begun.set()
        await end.wait()

    log = logging.getLogger("test")
    live.runner.before_run = automatic_checkpoints.AutomaticCheckpoints(live, wait, log).before_run
    running = asyncio.ensure_future(run(engine, session_id, "x = 1"))
    await begun.wait()
    await engine.restart_session(ME, session_id)
    end.set()
    assert (await running).state is ExecutionState.CANCELLED
    live.runner.before_run = None
    assert await printed(engine, session_id, "print('x' in dir())") == "False"


async def test_a_persons_checkpoint_takes_the_place_of_the_oldest_automatic_one(make_engine: Make) -> None:
    engine = make_engine(max_checkpoints=2)
    session_id = await watched_session(engine)
    executions = await ran(engine, session_id, "1", "2")
    mine = [await engine.checkpoints.create(ME, session_id, "first")]
    assert [one.name for one in await kept(engine, session_id)] == [f"before {executions[1].id}", "first"]
    mine += [await engine.checkpoints.create(ME, session_id, "second")]
    with pytest.raises(TooManyCheckpoints):
        await engine.checkpoints.create(ME, session_id)
    await ran(engine, session_id, "3")
    assert "at most 2" in await problem(engine, session_id)
    assert [one.id for one in await kept(engine, session_id)] == [one.id for one in mine]


async def test_the_limit_of_a_policy_holds_for_them_too(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    agent = await bearer(engine, max_checkpoints=2)
    session_id = await watched_session(engine, agent)
    executions = [await run(engine, session_id, str(number), agent) for number in range(4)]
    names = [one.name for one in await engine.checkpoints.list(agent, session_id)]
    assert names == [f"before {execution.id}" for execution in executions[2:]]


async def test_memory_of_a_policy_is_kept_by_deleting_the_oldest_automatic_ones(make_engine: Make) -> None:
    engine, budget_bytes = make_engine(allow_unprotected_tokens=True), 300_000_000
    agent = await bearer(engine, max_checkpoint_memory_bytes=budget_bytes)
    session_id = await watched_session(engine, agent)
    counts = []
    for number in range(6):
        assert (await run(engine, session_id, f"x = b'{number}' * 64_000_000", agent)).state is ExecutionState.OK
        counts.append(len(await engine.checkpoints.list(agent, session_id)))
    assert counts[:2] == [1, 2]
    assert 2 <= min(counts[2:]) <= counts[-1] < 5  # as many as there would be otherwise
    assert await problem(engine, session_id) == ""
    before = {one.id for one in await engine.checkpoints.list(agent, session_id)}
    await run(engine, session_id, "x = b'y' * 64_000_000", agent)
    ((_, used_bytes),) = await engine.sessions._memory.measure_now(agent.may_see)
    assert used_bytes < budget_bytes + 64_000_000  # the last run has come on top
    await run(engine, session_id, "x = b'y' * 310_000_000", agent)
    with pytest.raises(PolicyLimitReached, match=r"300000000 bytes of memory.*max_checkpoint_memory_bytes"):
        await engine.checkpoints.create(agent, session_id)
    kept_ids = [one.id for one in await engine.checkpoints.list(agent, session_id)]
    assert kept_ids
    assert set(kept_ids) - before  # those that would not have been enough are still there
    await run(engine, session_id, "del x", agent)
    assert "max_checkpoint_memory_bytes" in await problem(engine, session_id)
    made = await engine.checkpoints.create(agent, session_id, "mine")
    assert not made.automatic


async def test_memory_of_another_owner_does_not_count(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    session_id = (await engine.create_session(ME, SessionRequest())).id
    await printed(engine, session_id, "x = b'y' * 300_000_000")
    agent = await bearer(engine, max_checkpoint_memory_bytes=300_000_000)
    own = await engine.create_session(agent, SessionRequest())
    await engine.checkpoints.create(agent, own.id)
    await engine.checkpoints.create(ME, session_id)  # who has no policy


async def test_who_may_have_none_gets_no_session_with_it(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    with pytest.raises(PolicyDenied, match="max_checkpoints"):
        await engine.create_session(await bearer(engine, max_checkpoints=0), EACH_RUN)
    without = await bearer(engine, ALL_SCOPES - {"sessions:checkpoint"})
    with pytest.raises(MissingScope, match="sessions:checkpoint"):
        await engine.create_session(without, EACH_RUN)
    for name in ("max_automatic_checkpoints", "max_checkpoints"):
        with pytest.raises(TooManyCheckpoints, match=name):
            await make_engine(**{name: 0}).create_session(ME, EACH_RUN)
