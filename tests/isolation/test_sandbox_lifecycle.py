"""Sandboxes whose start or life is cut at a chosen point: what is left of them, and what still works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.isolation.common.isolated_process import in_lasting_thread
from jupyter_exec_ext.isolation.common.launch_request import SOCKET, SOCKETS
from jupyter_exec_ext.isolation.common.leftovers import MARK
from jupyter_exec_ext.isolation.sandbox import IsolationUnavailableError, sandbox_process
from tests.support.kernel_answers import answer
from tests.support.kernelspecs import add_kernelspec
from tests.support.sandbox_leftovers import (
    IN_NAMESPACES,
    TRACE,
    WITHOUT_RIGHTS,
    Watch,
    at_last,
    bwraps,
    directories_of,
    groups_of,
    inner_of,
    kinds_of_sandbox,
    processes_with,
)

pytestmark = pytest.mark.needs("sandbox")


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[AsyncKernelManager]:
    add_kernelspec(tmp_path, "boxed", "sandbox-provisioner")
    (tmp_path / "work").mkdir()
    with zmq.asyncio.Context() as context:
        yield AsyncKernelManager(kernel_name="boxed", connection_file=str(tmp_path / "kernel.json"), context=context)
        context.destroy(linger=0)


async def start(manager: AsyncKernelManager, watch: Watch, **env: str) -> None:
    work = str(Path(manager.connection_file).parent / "work")
    await manager.start_kernel(cwd=work, env={**os.environ, TRACE: watch.trace, **env})


async def test_a_kernel_that_is_shut_down_leaves_nothing(manager: AsyncKernelManager, watch: Watch) -> None:
    await start(manager, watch)
    sandbox = watch.left()
    assert set(sandbox) == kinds_of_sandbox()
    await manager.shutdown_kernel(now=True)
    assert watch.left() == {}


async def test_a_kernel_finds_its_sockets_at_short_addresses(manager: AsyncKernelManager, watch: Watch) -> None:
    await start(manager, watch)
    code = "from ipykernel.kernelapp import IPKernelApp; app = IPKernelApp.instance(); print(app.ip, app.shell_port)"
    ip, port = (await answer(manager, code)).split()
    assert ip == f"{SOCKETS}/{SOCKET}"
    assert Path(f"{manager.ip}-{port}").is_socket()
    await manager.shutdown_kernel(now=True)


async def test_a_restarted_kernel_has_one_sandbox_and_leaves_none(manager: AsyncKernelManager, watch: Watch) -> None:
    await start(manager, watch)
    before = watch.left()
    await manager.restart_kernel(now=True)
    assert {what: len(found) for what, found in watch.left().items() if isinstance(found, list)} == {
        what: len(found) for what, found in before.items() if isinstance(found, list)
    }
    assert await answer(manager, "print(6 * 7)") == "42\n"
    await manager.shutdown_kernel()
    assert watch.left() == {}


async def test_a_start_that_is_cancelled_while_the_sandbox_is_made_leaves_nothing(
    manager: AsyncKernelManager, watch: Watch
) -> None:
    going, go_on = hold_up_the_launcher()
    starting = asyncio.ensure_future(start(manager, watch))
    await asyncio.wrap_future(going)
    await asyncio.to_thread(until_launching, manager)
    starting.cancel()
    go_on()
    await asyncio.wait([starting])
    assert starting.cancelled()
    await asyncio.to_thread(wait_for_the_launcher)
    assert watch.left() == {}


async def test_a_kernel_that_is_shut_down_while_it_starts_does_not_come_to_life(
    manager: AsyncKernelManager, watch: Watch
) -> None:
    going, go_on = hold_up_the_launcher()
    starting = asyncio.ensure_future(start(manager, watch))
    await asyncio.wrap_future(going)
    await asyncio.to_thread(until_launching, manager)
    await manager.shutdown_kernel(now=True)
    go_on()
    with pytest.raises((RuntimeError, asyncio.InvalidStateError)):  # two calls say that the manager is ready
        await starting
    assert not manager.has_kernel
    await asyncio.to_thread(wait_for_the_launcher)
    assert watch.left() == {}


def hold_up_the_launcher() -> tuple[Future[None], Callable[[], None]]:
    """Keep the thread that starts sandboxes busy; return what is done when it is, and what lets it go on."""
    going: Future[None] = Future()
    over: Future[None] = Future()

    def wait() -> None:
        going.set_result(None)
        over.result(60)

    in_lasting_thread(wait)
    return going, lambda: over.set_result(None)


def until_launching(manager: AsyncKernelManager) -> None:
    while getattr(manager.provisioner, "_launch", None) is None:
        pass


def wait_for_the_launcher() -> None:
    in_lasting_thread(lambda: None).result(60)


@pytest.mark.parametrize("step", ["memfd_create", "pipe", "pidfd_open"])
async def test_a_start_without_descriptors_fails_and_leaves_nothing(
    manager: AsyncKernelManager, watch: Watch, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real, calls = getattr(os, step), 0
    module: Any = os
    await start(manager, watch)  # what it finds out once, it knows
    await manager.shutdown_kernel(now=True)
    fds = psutil.Process().num_fds()
    failed = 0

    def give(fail_at: int, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise OSError(24, "Too many open files")
        return real(*arguments)

    for fail_at in range(1, 10):
        calls = 0
        monkeypatch.setattr(module, step, partial(give, fail_at))
        try:
            await start(manager, watch)
        except OSError:
            failed += 1
        finally:
            monkeypatch.setattr(module, step, real)
        await manager.shutdown_kernel(now=True)
        assert watch.left() == {}
        if calls < fail_at:
            break
    assert failed
    assert abs(psutil.Process().num_fds() - fds) <= 2


async def test_a_start_that_may_not_fork_says_so_and_leaves_nothing(
    manager: AsyncKernelManager, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    await start(manager, watch)
    await manager.shutdown_kernel(now=True)
    monkeypatch.setattr(subprocess, "_fork_exec", refuse)
    with pytest.raises(BlockingIOError):
        await start(manager, watch)
    monkeypatch.undo()
    await manager.shutdown_kernel(now=True)
    assert watch.left() == {}


# Where somebody kills bubblewrap: what is called just before.
MOMENTS = ["_first_status", "_hold", "_until_tied"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", ["outer", "inner"])
async def test_a_sandbox_that_is_killed_while_it_is_made_leaves_nothing(
    manager: AsyncKernelManager, watch: Watch, monkeypatch: pytest.MonkeyPatch, moment: str, victim: str
) -> None:
    real = getattr(sandbox_process.SandboxProcess, moment)

    def kill_first(self: sandbox_process.SandboxProcess, *arguments: Any) -> Any:
        while not (inner := inner_of(self.pid)):
            pass
        for pid in [self.pid] if victim == "outer" else inner:
            os.kill(pid, signal.SIGKILL)
        return real(self, *arguments)

    monkeypatch.setattr(sandbox_process.SandboxProcess, moment, kill_first)
    with suppress(IsolationUnavailableError):  # or it is taken for one that ended right after
        await start(manager, watch)
    monkeypatch.undo()
    await manager.shutdown_kernel(now=True)
    await asyncio.to_thread(wait_for_the_launcher)
    assert watch.left_at_last() == {}


async def test_a_start_works_after_one_that_was_cut(
    manager: AsyncKernelManager, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(self: sandbox_process.SandboxProcess) -> int:
        while not inner_of(self.pid):
            pass
        os.kill(self.pid, signal.SIGKILL)
        raise sandbox_process.BrokenSandboxError

    monkeypatch.setattr(sandbox_process.SandboxProcess, "_first_status", kill)
    with pytest.raises(IsolationUnavailableError, match="could not make a sandbox"):
        await start(manager, watch)
    monkeypatch.undo()
    await start(manager, watch)
    assert await answer(manager, "print(1)") == "1\n"
    await manager.shutdown_kernel(now=True)
    assert watch.left() == {}


async def test_limits_hold_before_anything_of_the_kernels_runs(manager: AsyncKernelManager, watch: Watch) -> None:
    """A library that the environment names would run before a program that sets limits does."""
    await start(manager, watch)
    (bwrap,) = bwraps()
    limits = Path(f"/proc/{inner_of(bwrap)[0]}/limits").read_text()
    await manager.shutdown_kernel(now=True)
    found = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    assert found["Max open files"] == ["4096", "4096"]
    assert found["Max file size"] == [str(4 * 1024**3)] * 2
    assert found["Max core file size"] == ["0", "0"]
    assert found["Max address space"] == [str(psutil.virtual_memory().total // 2)] * 2


IN_A_CHILD = """
import asyncio, json, os, sys
import psutil
from tests.isolation.test_sandbox_lifecycle import AsyncKernelManager, Path, Watch, start
from tests.support.sandbox_leftovers import bwraps, inner_of
from jupyter_exec_ext.isolation.sandbox import SandboxProvisioner

async def main():
    watch = Watch()
    home = Path(os.environ["HOME"])
    manager = AsyncKernelManager(kernel_name="boxed", connection_file=str(home / "kernel.json"))
"""


@contextmanager
def child(tmp_path: Path, body: str, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that starts kernels."""
    add_kernelspec(tmp_path, "boxed", "sandbox-provisioner")
    (tmp_path / "work").mkdir(parents=True)
    text = IN_A_CHILD + textwrap.indent(textwrap.dedent(body), "    ") + "\nasyncio.run(main())\n"
    with subprocess.Popen(
        [*prefix, sys.executable, "-c", text],
        env={**os.environ, "HOME": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path / "jupyter_data_dir")},
        cwd=Path(__file__).parent.parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_kernel_whose_manager_is_forgotten_ends(tmp_path: Path) -> None:
    body = """
    import concurrent.futures.thread
    import gc
    await start(manager, watch)
    before = watch.left()
    manager.context.destroy(linger=0)
    with concurrent.futures.thread._global_shutdown_lock:  # the collector can be at work anywhere
        del manager
        gc.collect()
    print(json.dumps([sorted(before), await asyncio.to_thread(watch.left_at_last)]))
    """
    with child(tmp_path, body) as server:
        out, _ = server.communicate(timeout=60)
    assert json.loads(out) == [sorted(kinds_of_sandbox()), {}]


def test_a_process_that_was_forked_ends_no_kernel_of_its_parents(tmp_path: Path) -> None:
    body = """
    import gc
    await start(manager, watch)
    before = watch.left()
    forked = os.fork()
    if forked == 0:
        del manager
        gc.collect()
        os._exit(0)
    os.waitpid(forked, 0)
    print(json.dumps([sorted(before), watch.left() == before]))
    await manager.shutdown_kernel(now=True)
    """
    with child(tmp_path, body) as server:
        out, _ = server.communicate(timeout=60)
    assert json.loads(out) == [sorted(kinds_of_sandbox()), True]


def test_a_server_that_is_process_1_keeps_no_zombies(tmp_path: Path) -> None:
    """In a container it is, and nobody else waits for the processes that lose their parent."""
    body = """
    for number in range(6):
        manager = AsyncKernelManager(kernel_name="boxed", connection_file=str(home / "kernel.json"))
        await start(manager, watch)
        if number % 2:
            os.kill(bwraps()[0], 9)
        await manager.shutdown_kernel(now=True)
    print(json.dumps([os.getpid(), [c.status() for c in psutil.Process().children(recursive=True)]]))
    """
    alone = (*IN_NAMESPACES, "--pid", "--fork", "--mount-proc", "--kill-child", *WITHOUT_RIGHTS)
    with child(tmp_path, body, *alone) as server:
        out, _ = server.communicate(timeout=60)
    assert json.loads(out) == [1, []]


@pytest.mark.parametrize("moment", ["_hold", "_until_tied"])
def test_a_server_that_is_killed_while_it_makes_a_sandbox_leaves_none(tmp_path: Path, moment: str) -> None:
    """What waits for leave to begin does not begin.

    There is a moment before that, in which bubblewrap has begun a process that waits for it for ever if it is killed;
    that one ends when the next server starts.
    """
    body = f"""
    from jupyter_exec_ext.isolation.sandbox.sandbox_process import SandboxProcess
    from jupyter_exec_ext.isolation.common.leftovers import own_name
    def hang(self, *_):
        while os.path.samefile(f"/proc/{{inner_of(self.pid)[0]}}/root", "/"):
            pass
        print(own_name(), flush=True)
        sys.stdin.read()
    SandboxProcess.{moment} = hang
    await start(manager, watch)
    """
    with child(tmp_path, body) as server:
        assert server.stdout is not None
        name = server.stdout.readline().strip()
        assert len(processes_with(f"{MARK}={name}")) >= 2
        server.kill()
        server.wait()

    def left() -> dict[str, object]:
        found = processes_with(f"{MARK}={name}")
        return {"processes": found} if found else {}

    assert at_last(left, 3.0) == {}


def test_the_next_server_ends_and_removes_what_a_killed_one_has_left_behind(tmp_path: Path) -> None:
    """Here bubblewrap is a program that does not end with its server; that of a living one is left alone."""
    body = """
    import subprocess
    from jupyter_exec_ext.isolation.common.cgroup import new_group
    from jupyter_exec_ext.isolation.common.leftovers import MARK, make_directory, new_link, own_name
    make_directory(new_link())
    group = new_group(None, 10)
    sleeper = subprocess.Popen(["sleep", "600"], env={MARK: own_name()}, stdout=subprocess.DEVNULL)
    if group is not None:
        group.add(sleeper.pid)
    print(own_name(), flush=True)
    sys.stdin.read()
    """
    with child(tmp_path / "killed", body) as killed, child(tmp_path / "living", body) as living:
        names = []
        for server in (killed, living):
            assert server.stdout is not None
            names.append(server.stdout.readline().strip())

        def there() -> list[tuple[int, int, int]]:
            found = [(processes_with(f"{MARK}={name}"), directories_of(name), groups_of(name)) for name in names]
            return [(len(processes), len(directories), len(groups)) for processes, directories, groups in found]

        before = there()
        assert before[0] == before[1]
        assert before[0][:2] == (1, 1)
        killed.kill()
        killed.wait()
        with child(tmp_path / "next", "SandboxProvisioner.sweep()") as sweeper:
            sweeper.communicate(timeout=60)
        assert there() == [(0, 0, 0), before[1]]
        for pid in processes_with(f"{MARK}={names[1]}"):
            os.kill(pid, signal.SIGKILL)
        living.kill()
