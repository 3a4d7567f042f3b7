"""Checkpoints of kernels in sandboxes: the sandbox goes on, with its limits, and all else in it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.files.checkpoint_files import StagedFiles
from jupyter_exec_ext.engine.ports import CheckpointSupport
from jupyter_exec_ext.errors import CheckpointFailed, CheckpointUnsupported, KernelStartFailed
from jupyter_exec_ext.forkserver.frozen_kernel import FrozenKernelListener
from jupyter_exec_ext.isolation.sandbox.kernel_removal import PLACEHOLDER_SIGNAL
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest
from tests.support.full import scaled
from tests.support.session_processes import ends, marked, outside, runs
from tests.support.waiting import until

pytestmark = pytest.mark.needs("sandbox")
ME = owner("me")
_PRINT_PID = "import os; print(os.getpid())"


async def printed(engine: ExecEngine, session_id: str, code: str) -> str:
    execution = await (await engine.execute(ME, session_id, ExecutionRequest(code))).wait()
    assert execution.state is ExecutionState.OK, execution.error
    return execution.stdout.strip()


async def new_session(engine: ExecEngine, code: str = "pass") -> str:
    session_id = (await engine.create_session(ME, SessionRequest(isolation="sandbox"))).id
    await printed(engine, session_id, code)
    return session_id


async def kernel_of(engine: ExecEngine, session_id: str) -> int:
    return outside(session_id, int((await printed(engine, session_id, _PRINT_PID)).split()[-1]))


def sandbox_of(pid: int) -> list[int]:
    """Return the processes in the sandbox of a process."""
    there = os.readlink(f"/proc/{pid}/ns/pid")
    return [other for other in psutil.pids() if _namespace(other) == there and runs(other)]


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


async def test_a_session_is_restored_again_and_again_in_one_sandbox(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = [1]")
    kernel_id = (await engine.get_session(ME, session_id)).kernel_id
    init = psutil.Process(await kernel_of(engine, session_id)).ppid()
    first = await engine.checkpoints.create(ME, session_id, "first")
    await printed(engine, session_id, "x.append(2); open('new', 'w').close()")
    second = await engine.checkpoints.create(ME, session_id, "second")
    await printed(engine, session_id, "x.append(3)")
    for checkpoint, value in ((first, "[1] []"), (second, "[1, 2] ['new']"), (first, "[1] []")):
        session = await engine.checkpoints.restore(ME, session_id, checkpoint.id)
        assert session.kernel_id == kernel_id
        assert await printed(engine, session_id, "import os; print(x, os.listdir())") == value
    # The init, the first process, which waits, two checkpoints and a kernel.
    assert len(sandbox_of(init)) == 5
    await engine.checkpoints.delete(ME, session_id, second.id)
    assert await printed(engine, session_id, "print(x)") == "[1]"
    await engine.delete_session(ME, session_id)
    assert ends(init, within_seconds=5)


async def test_what_the_kernel_has_started_ends_with_it(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    # Neither the session nor the environment of the kernel leads to it.
    start = "import subprocess; subprocess.Popen(['sleep', '1000'], env={}, start_new_session=True) and None"
    await printed(engine, session_id, start)
    (hidden,) = (pid for pid in sandbox_of(await kernel_of(engine, session_id)) if "1000" in _command(pid))
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert not runs(hidden)
    assert len(marked(session_id)) == 1


def _command(pid: int) -> list[str]:
    return psutil.Process(pid).cmdline()


async def test_a_kernel_that_becomes_no_placeholder_is_killed_all_the_same(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    old = await kernel_of(engine, session_id)
    await printed(engine, session_id, f"import signal; signal.signal({PLACEHOLDER_SIGNAL}, signal.SIG_IGN); x = 2")
    for _ in range(2):
        await engine.checkpoints.restore(ME, session_id, checkpoint.id)
        assert await printed(engine, session_id, "print(x)") == "1"
    assert not runs(old)
    init = psutil.Process(old).ppid()  # it has not noticed
    await engine.delete_session(ME, session_id)
    assert ends(init, within_seconds=5)


async def test_restores_at_once_come_one_after_the_other(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    restores = [engine.checkpoints.restore(ME, session_id, checkpoint.id) for _ in range(3)]
    await asyncio.gather(*restores)
    assert await printed(engine, session_id, "print(x)") == "1"


async def test_a_restart_during_a_restore_leaves_a_session_that_works(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    restoring = engine.checkpoints.restore(ME, session_id, checkpoint.id)
    done = await asyncio.gather(restoring, engine.restart_session(ME, session_id), return_exceptions=True)
    assert not isinstance(done[1], BaseException), done
    assert await printed(engine, session_id, "print(1)") == "1"


async def test_a_restore_whose_files_cannot_come_back_leaves_a_session_that_starts_anew(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)

    def fail(self: StagedFiles) -> None:
        raise CheckpointFailed("the disk is full")

    monkeypatch.setattr(StagedFiles, "_swap", fail)
    with pytest.raises(KernelStartFailed, match="the disk is full"):
        await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print('x' in dir())") == "False"


async def test_a_kernel_that_only_pretends_to_become_the_placeholder_is_killed(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    old = await kernel_of(engine, session_id)
    await printed(engine, session_id, _PRETEND.format(signal=PLACEHOLDER_SIGNAL))
    assert _command(old)[0].startswith("sleep")
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert not runs(old)


# Overwrites the memory in which other processes read the command.
_PRETEND = """
import ctypes, signal
signal.signal({signal}, lambda *_: None)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
ctypes.memmove(int(fields[45]), b"sleep" + bytes(20), 20)
"""


async def test_a_process_of_another_list_is_no_checkpoint(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    path = (await checkpoint_support_of(engine, session_id)).path.with_name("other")
    listener = FrozenKernelListener(path)
    with socket.socket(socket.AF_UNIX) as outside_of_it:
        outside_of_it.connect(str(path))
        outside_of_it.sendall(b'{"nonce": "n"}\n')
        with pytest.raises(CheckpointFailed, match="not among the kernel's processes"):
            await asyncio.to_thread(listener.accept, "n", 5, await kernel_of(engine, session_id))
    listener.close()


async def checkpoint_support_of(engine: ExecEngine, session_id: str) -> CheckpointSupport:
    kernel = engine._registry.sessions[session_id].kernel.kernel
    assert kernel is not None and kernel.traits.checkpoints is not None
    return kernel.traits.checkpoints


async def test_a_stopped_kernel_is_replaced(engine: ExecEngine) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    os.kill(await kernel_of(engine, session_id), signal.SIGSTOP)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, "print(x)") == "1"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "restart"])
async def test_checkpoints_end_with_the_kernel_and_the_session_goes_on(engine: ExecEngine, end: str) -> None:
    session_id = await new_session(engine, "x = 1")
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    init = [pid for pid in sandbox_of(await kernel_of(engine, session_id)) if "bwrap" in psutil.Process(pid).name()]
    if end == "restart":
        await engine.restart_session(ME, session_id)
    else:
        execution = await (await engine.execute(ME, session_id, ExecutionRequest(f"import os; {end}"))).wait()
        assert execution.state is ExecutionState.KERNEL_DIED
        assert execution.error is not None
    assert await printed(engine, session_id, "print('x' in dir())") == "False"
    assert ends(init[0], within_seconds=5)
    assert await engine.checkpoints.list(ME, session_id) == []
    again = await engine.checkpoints.create(ME, session_id)
    await engine.checkpoints.restore(ME, session_id, again.id)
    assert await printed(engine, session_id, "print(1)") == "1"


_WALLS = """
import os, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({name: status[name].strip() for name in ("Seccomp", "Seccomp_filters", "NoNewPrivs", "CapEff", "CapBnd", "Uid")})
print([(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name.startswith("RLIMIT")])
print({name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup")})
print(open("/proc/self/cgroup").read(), open("/proc/self/mountinfo").read())
"""


async def test_limits_filters_and_namespaces_are_the_same_afterwards(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    before = await printed(engine, session_id, _WALLS)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    assert await printed(engine, session_id, _WALLS) == before


async def test_it_is_interrupted_and_prints_as_before(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    checkpoint = await engine.checkpoints.create(ME, session_id)
    await engine.checkpoints.restore(ME, session_id, checkpoint.id)
    running = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(60)"))
    await until(lambda: running.record.state is ExecutionState.RUNNING)
    await engine.interrupt_session(ME, session_id)
    assert (await running.wait()).state is ExecutionState.INTERRUPTED
    begun_at = time.monotonic()
    lines = await printed(engine, session_id, "import os; os.system('echo below'); print('here')")
    assert sorted(lines.split()) == ["below", "here"]  # they come by different ways
    await engine.delete_session(ME, session_id)
    assert time.monotonic() - begun_at < 2  # it exits when it is asked to, before it is killed


async def test_no_link_in_the_place_of_the_socket_is_followed(engine: ExecEngine, tmp_path: Path) -> None:
    session_id = await new_session(engine)
    target = tmp_path / "secret"
    target.touch(mode=0o644)
    race = f"""
import os, threading
def swap():
    while not done:
        try:
            os.symlink({str(target)!r}, '/sockets/link'); os.replace('/sockets/link', '/sockets/chkpt')
        except OSError:
            pass
done = []
threading.Thread(target=swap, daemon=True).start()
"""
    await printed(engine, session_id, race)
    for _ in range(scaled(50, per_commit=3)):
        try:
            made = await engine.checkpoints.create(ME, session_id, force=True)
        except (CheckpointFailed, CheckpointUnsupported):  # it depends on chance which
            continue
        await engine.checkpoints.delete(ME, session_id, made.id)
    assert target.stat().st_mode & 0o777 == 0o644


async def test_a_directory_in_the_place_of_the_socket_is_no_failure_of_the_server(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    at_fork = "os.register_at_fork(before=lambda: (os.unlink('/sockets/chkpt'), os.mkdir('/sockets/chkpt')))"
    await printed(engine, session_id, f"import os; {at_fork}")
    with pytest.raises(CheckpointFailed):
        await engine.checkpoints.create(ME, session_id)
    with pytest.raises(CheckpointUnsupported):
        await engine.checkpoints.create(ME, session_id)
    assert await printed(engine, session_id, "print(1)") == "1"


async def test_a_branch_of_it_is_refused(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    with pytest.raises(CheckpointUnsupported, match="sandbox"):
        await engine.checkpoints.branch(ME, session_id)
    assert await engine.checkpoints.list(ME, session_id) == []


async def test_checkpoints_of_two_sandboxes_at_once(make_engine: Callable[..., ExecEngine]) -> None:
    engine = make_engine(max_sessions=4)
    ids = await asyncio.gather(*(new_session(engine, f"x = {number}") for number in range(2)))
    made = await asyncio.gather(*(engine.checkpoints.create(ME, session_id) for session_id in ids))
    restoring = (engine.checkpoints.restore(ME, one, done.id) for one, done in zip(ids, made, strict=True))
    await asyncio.gather(*restoring)
    assert await asyncio.gather(*(printed(engine, session_id, "print(x)") for session_id in ids)) == ["0", "1"]
