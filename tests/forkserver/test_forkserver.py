"""Kernels that are forked: each is one of its own, and ends when it should."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.forkserver import ForkServerProvisioner
from jupyter_exec_ext.forkserver.forked_process import UNKNOWN_EXIT, ForkedProcess
from jupyter_exec_ext.forkserver.forking_process import ParentGoneError
from jupyter_exec_ext.forkserver.forkserver_provisioner import fork_parents
from jupyter_exec_ext.system.marked_processes import MARK, kill_marked
from tests.support.forked_kernels import (
    ARGV,
    add_forked,
    add_plain,
    kernels_of,
    retire_all,
    running,
    until,
)
from tests.support.full import SCALE, only_in_full

pytestmark = pytest.mark.skipif(ForkServerProvisioner.unavailable() is not None, reason="no fork here")

_ROWS = 4
_FORKS = 100 * SCALE


@pytest.fixture(autouse=True)
def _parents() -> Iterator[None]:
    yield
    retire_all()


def module(tmp_path: Path, name: str, text: str, directory: str = "modules") -> dict[str, str]:
    """Write a module; return the environment in which it is found."""
    path = tmp_path / directory
    path.mkdir(exist_ok=True)
    (path / f"{name}.py").write_text(text)
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(path), *([known] if known else [])])}


# --- a kernel like any other ---


async def test_kernels_are_children_of_one_process_that_has_one_thread(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as one, running(tmp_path) as other:
        assert one.pid != other.pid
        assert one.parent == other.parent != os.getpid()
        assert psutil.Process(one.parent).num_threads() == 1
        assert os.getsid(one.pid) == os.getpgid(one.pid) == one.pid


# What must be the same in a kernel that was forked and in one that was started.
_ALIKE = """\
import builtins, gc, locale, os, signal, sys, threading, time, warnings
print(os.getcwd(), os.environ['OF_THIS'], len(In), _dh, __name__, sys.modules['__main__'].__dict__ is globals())
print(sorted(n for n in os.environ if not n.startswith('PYDEVD_')), os.environ['JPY_PARENT_PID'], os.environ['TERM'])
print(sys.path, sys.argv[:-1], sys.flags, sys.executable, sys.prefix, sys._xoptions, sys.getrecursionlimit())
print(gc.isenabled(), gc.get_threshold(), locale.getlocale(), time.tzname, os.umask(0o22), sys.excepthook.__name__)
print([signal.getsignal(s) for s in sorted(signal.valid_signals())], signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sorted(t.name for t in threading.enumerate() if 'IOPub' in t.name or 'Control' in t.name or 'Shell' in t.name))
shell = get_ipython(); kernel = shell.kernel
print(shell.parent is kernel, type(shell).__name__, type(kernel).__name__, kernel.parent.name, shell.starting_dir)
print(shell.profile_dir.location, sys.stdout.name)
print([type(c).__name__ for c in shell.configurables], shell.events.callbacks.keys())
print(shell.magics_manager.lsmagic()['line'].keys(), sorted(shell.user_ns_hidden), sorted(vars(builtins)), dir())
print(shell.displayhook.session is kernel.session, shell.display_pub.session is kernel.session, shell.exiter is exit)
print(os.getsid(0) == os.getpid(), shell.history_manager.hist_file, shell._atexit_once)
print(sorted(k for k in shell._orig_sys_module_state), type(shell._orig_sys_module_state['stdout']).__name__)
"""


async def test_a_kernel_finds_what_it_would_find_if_it_were_started(tmp_path: Path) -> None:
    add_forked(tmp_path)
    add_plain(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    found = []
    for name in ("plain", "forked"):
        async with running(tmp_path, name, env={"OF_THIS": "one"}, cwd=str(work)) as kernel:
            said = await kernel.says(_ALIKE)
            found.append(re.sub(r"0x[0-9a-f]+", "", said).splitlines())
    assert len(found[0]) > 10, found[0]
    assert found[1] == found[0]


async def test_its_children_get_its_environment(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path, env={"OF_THIS": "one"}) as kernel:
        assert await kernel.says("!echo $OF_THIS $TERM $JUPYTER_EXEC_ROOM") == "one xterm-color"
        started = (
            "import multiprocessing as m; p = m.get_context('spawn').Process(); p.start(); p.join(); print(p.exitcode)"
        )
        assert await kernel.says(started) == "0"


async def test_the_first_cells_find_everything_imported(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        before = set((await kernel.says("import sys; print(*sys.modules)")).split())
        await kernel.says("1/0")
        await kernel.says("import math, json; x = [1]; print(x)")
        await kernel.says("%timeit -n1 -r1 1")
        after = set((await kernel.says("print(*sys.modules)")).split())
        assert len(after - before) <= 5, after - before
        at_start = await kernel.says("import _jupyter_exec_forked_kernel as k")
        assert "ModuleNotFoundError" in at_start


async def test_what_is_preloaded_is_there(tmp_path: Path) -> None:
    env = module(tmp_path, "slowly", "import os; LOADED_BY = os.getpid()")
    add_forked(tmp_path, preload=["slowly", "missing.altogether"])
    async with running(tmp_path, env=env) as kernel:
        assert await kernel.says("import sys; print('slowly' in sys.modules)") == "True"
        assert await kernel.says("import slowly; print(slowly.LOADED_BY)") == str(kernel.parent)


async def test_modules_that_came_after_the_parent_are_found(tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    env = {"PYTHONPATH": os.pathsep.join([module(tmp_path, "first", "", "early")["PYTHONPATH"], str(late)])}
    add_forked(tmp_path, preload=["first"])
    async with running(tmp_path, env=env) as one:
        looked = await one.says("import missing")  # and looked everywhere for it
        assert "ModuleNotFoundError" in looked
        stamp = early.stat()
        module(tmp_path, "missing", "WHERE = 'early'", "early")
        os.utime(early, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # as if within the clock's tick
        module(tmp_path, "later", "WHERE = 'late'", "late")
        async with running(tmp_path, env=env) as two:
            assert two.parent == one.parent
            assert await two.says("import missing, later; print(missing.WHERE, later.WHERE)") == "early late"


async def test_an_interrupt_stops_code_and_leaves_the_kernel(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        await kernel.says("x = 1")
        running_code = asyncio.ensure_future(kernel.says("import time\nprint('begun', flush=True)\ntime.sleep(60)"))
        child = psutil.Process(kernel.pid)
        await until(lambda: child.status() == psutil.STATUS_SLEEPING)
        while not running_code.done():
            await kernel.manager.interrupt_kernel()
            await asyncio.wait([running_code], timeout=0.2)
        assert "KeyboardInterrupt" in running_code.result()
        assert await kernel.says("print(x)") == "1"


async def test_a_kernel_can_be_debugged(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:

        async def ask(command: str, **arguments: Any) -> dict[str, Any]:
            content = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
            request = kernel.client.session.msg("debug_request", content)
            kernel.client.control_channel.send(request)
            while True:
                reply = await kernel.client.control_channel.get_msg(timeout=30)
                if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                    return dict(reply["content"])

        begun = await ask("initialize", clientID="tests", adapterID="", pathFormat="path", linesStartAt1=True)
        assert begun["success"], begun
        attached = await ask("attach")
        assert attached["success"], attached
        code = "def f():\n    a = 1\n    return a\nprint(f())"
        dumped = await ask("dumpCell", code=code)
        path = dumped["body"]["sourcePath"]
        assert f"ipykernel_{kernel.pid}" in path
        placed = await ask("setBreakpoints", breakpoints=[{"line": 3}], source={"path": path}, sourceModified=False)
        assert placed["success"], placed
        assert (await ask("disconnect", restart=False, terminateDebuggee=True))["success"]


async def test_a_kernel_is_restarted_as_another_fork(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        first, parent = kernel.pid, kernel.parent
        await kernel.says("x = 1")
        await kernel.manager.restart_kernel(now=True)
        await kernel.client.wait_for_ready(timeout=60)
        assert kernel.pid != first and kernel.parent == parent
        assert "NameError" in await kernel.says("x")


@pytest.mark.parametrize("env", [{}, {MARK: "a-session"}], ids=["notebook", "session"])
async def test_forked_kernel_offers_subshells_and_awaits_at_top_level(tmp_path: Path, env: dict[str, str]) -> None:
    add_forked(tmp_path)
    async with running(tmp_path, env=env) as kernel:
        told = await kernel.client.kernel_info(reply=True, timeout=30)
        assert "kernel subshells" in told["content"]["supported_features"]
        # Without the thread for subshells, ipykernel 7.1 to 7.4 fails at this (`ipkernel.py`, `_cancel_on_sigint`).
        assert await kernel.says("import asyncio; await asyncio.sleep(0); print(1)") == "1"
        client = kernel.client
        reply = await client.execute_interactive("await asyncio.sleep(0)", timeout=30, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok"


# --- what kernels do not share ---


async def test_two_kernels_share_nothing_that_was_drawn_by_lot(tmp_path: Path) -> None:
    add_forked(tmp_path, preload=["numpy", "numpy.random"])
    code = (
        "import random, uuid, tempfile, numpy, secrets, os\n"
        "print(random.random(), uuid.uuid4(), uuid.uuid1(node=1).clock_seq, next(tempfile._get_candidate_names()),"
        " numpy.random.random(), numpy.random.default_rng().random(), secrets.token_hex(),"
        " get_ipython().kernel.session.session, get_ipython().kernel.ident)"
    )
    async with running(tmp_path) as one, running(tmp_path) as other:
        drawn = [(await kernel.says(code)).split() for kernel in (one, other)]
    assert len(drawn[0]) == 9
    assert [a for a, b in zip(*drawn, strict=True) if a == b] == []


async def test_two_kernels_have_directories_and_environments_of_their_own(tmp_path: Path) -> None:
    add_forked(tmp_path)
    code = "import os, tempfile; print(tempfile.gettempdir(), os.environ.get('MPLCONFIGDIR'), os.environ.get('ONLY'))"
    told = []
    async with AsyncExitStack() as stack:
        for name in ("one", "other"):
            place = tmp_path / name
            place.mkdir()
            env = {"TMPDIR": str(place), "MPLCONFIGDIR": str(place / "mpl"), "ONLY": name}
            kernel = await stack.enter_async_context(running(tmp_path, env=env))
            told.append((await kernel.says(code), f"{place} {place}/mpl {name}"))
    assert [said for said, _ in told] == [expected for _, expected in told]


async def test_each_kernel_has_a_history_connection_of_its_own(tmp_path: Path) -> None:
    add_forked(tmp_path)
    number = "print(get_ipython().history_manager.session_number)"
    async with running(tmp_path) as one, running(tmp_path) as other:
        assert await one.says(number) != await other.says(number)
        files = [
            [f.fd for f in psutil.Process(kernel.pid).open_files() if f.path.endswith("history.sqlite")]
            for kernel in (one, other)
        ]
        assert all(files)
        assert not [f for f in psutil.Process(one.parent).open_files() if f.path.endswith("history.sqlite")]
        assert await other.says("print(get_ipython().history_manager.db.in_transaction)") == "False"


async def test_a_kernel_can_find_nothing_of_another_ones_in_its_memory(tmp_path: Path) -> None:
    """What kernels are told, their keys among it, never gets into the process that they come from."""
    add_forked(tmp_path)
    find = """\
import re
found = 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:
    for line in maps:
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        if 'rw' in line.split()[1]:
            try:
                memory.seek(start)
                found += len(re.findall(b'canary[-]of-the-first', memory.read(end - start)))
            except (OSError, OverflowError):
                pass
print(found)
"""
    async with running(tmp_path, env={"SECRET": "canary-of-the-first"}) as one:
        assert int(await one.says(find)) > 0, "what looks for it finds nothing"
        async with running(tmp_path, env={"SECRET": "canary-of-another"}) as other:
            assert await other.says(find) == "0"


async def test_no_kernel_has_an_open_file_of_its_parents_or_of_another_kernel(tmp_path: Path) -> None:
    add_forked(tmp_path)
    sockets = (
        "import os; print(*[t for f in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{f}')"
        " and (t := os.readlink(f'/proc/self/fd/{f}')).startswith('socket')])"
    )
    async with running(tmp_path) as one, running(tmp_path) as other:
        theirs = [set((await kernel.says(sockets)).split()) for kernel in (one, other)]
        directory = f"/proc/{one.parent}/fd"
        parents = {os.readlink(f"{directory}/{fd}") for fd in os.listdir(directory)}
    assert not theirs[0] & theirs[1]
    assert not (theirs[0] | theirs[1]) & {target for target in parents if target.startswith("socket")}


async def test_what_a_session_started_is_found_by_its_mark_and_its_parent_is_spared(tmp_path: Path) -> None:
    add_forked(tmp_path)
    session = f"session-of-a-test-{os.getpid()}"
    async with running(tmp_path, env={MARK: session}) as kernel, running(tmp_path, env={MARK: "another"}) as other:
        parent = kernel.parent
        left = int(
            await kernel.says(
                "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid)"
            )
        )
        assert psutil.Process(kernel.pid).environ()[MARK] == session
        assert MARK not in psutil.Process(parent).environ()
        assert set(await asyncio.to_thread(kill_marked, {session})) == {kernel.pid, left}
        assert await asyncio.wrap_future(kernel.process.exited) == -signal.SIGKILL
        assert await other.says("print(2)") == "2"


# --- how it ends ---


@pytest.mark.parametrize(
    ("code", "expected"), [("import os; os._exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
async def test_its_end_is_told_at_once(tmp_path: Path, code: str, expected: int) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        process = kernel.process
        kernel.client.execute(code)
        begun = time.monotonic()
        assert await asyncio.wait_for(asyncio.wrap_future(process.exited), 30) == expected
        assert time.monotonic() - begun < 20
        assert (process.poll(), process.wait()) == (expected, expected)
        assert not psutil.pid_exists(process.pid)


async def test_who_gives_up_waiting_for_its_end_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        waiting = asyncio.ensure_future(kernel.manager.provisioner.wait())  # type: ignore[union-attr]
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        kernel.process.kill()
        assert await asyncio.wait_for(asyncio.wrap_future(kernel.process.exited), 10) == -signal.SIGKILL
        async with running(tmp_path) as other:
            assert await other.says("print(1)") == "1"


async def test_a_kernel_that_is_asked_to_shut_down_ends_by_itself(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        mark = tmp_path / "ran"
        await kernel.says(f"import atexit; atexit.register(lambda: open({str(mark)!r}, 'w'))")
        process = kernel.process
        await kernel.manager.shutdown_kernel()
        assert process.poll() == 0
        assert mark.exists()


async def test_kernels_outlive_their_parent_and_the_next_gets_another(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        parent = kernel.parent
        await kernel.says("x = 5")
        os.kill(parent, signal.SIGKILL)
        await until(lambda: not psutil.pid_exists(parent))
        assert await kernel.says("print(x)") == "5"
        async with running(tmp_path) as other:
            assert other.parent != parent
            assert await other.says("print(6)") == "6"
        assert kernel.process.poll() is None
        os.kill(kernel.pid, signal.SIGKILL)
        code = await asyncio.wait_for(asyncio.wrap_future(kernel.process.exited), 30)
        assert code in (
            -signal.SIGKILL,
            None,
        )  # before Linux 6.15, whoever collects it first may be the only one to know
        assert kernel.process.poll() == (UNKNOWN_EXIT if code is None else code)


@only_in_full
async def test_a_parent_that_does_not_answer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_exec_ext.forkserver.forking_process._FORK_SECONDS", 3)
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        parent = kernel.parent
        os.kill(parent, signal.SIGSTOP)
        async with running(tmp_path) as other:
            assert other.parent != parent
        assert await kernel.says("print(3)") == "3"


async def test_a_parent_that_has_not_answered_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up before it has ended: that takes its time, and there are few tries."""
    monkeypatch.setattr("jupyter_exec_ext.forkserver.forking_process._FORK_SECONDS", 0.1)
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        (entry,) = fork_parents()._entries.values()
        parent = entry.parent.result()
        monkeypatch.setattr(parent._process, "kill", lambda: None)  # as one that takes long to end
        os.kill(kernel.parent, signal.SIGSTOP)
        try:
            with pytest.raises(ParentGoneError):
                await asyncio.to_thread(parent.fork, [0, 1, 2])
            assert parent.is_gone
        finally:
            os.kill(kernel.parent, signal.SIGKILL)


async def test_request_that_cannot_be_sent_leaves_the_parent_usable_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.forkserver.forking_process._FORK_SECONDS", 3)
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        (entry,) = fork_parents()._entries.values()
        parent = entry.parent.result()
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="Bad file descriptor") as unsent:
            parent.fork([0, 2**30, 2])  # no number that a new socket may get
        assert os.listdir("/proc/self/fd") == before, unsent  # whose traceback holds the socket
        async with running(tmp_path) as other:
            assert other.parent == kernel.parent
        parent.retire()
        before = os.listdir("/proc/self/fd")
        with pytest.raises(ParentGoneError) as gone:
            parent.fork([0, 1, 2])
        assert os.listdir("/proc/self/fd") == before, gone


_SERVER = """\
import asyncio, os, sys
from pathlib import Path
from tests.support.forked_kernels import running

async def main():
    async with running(Path(sys.argv[1])) as kernel:
        print(kernel.pid, kernel.parent, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.parametrize("killed", [True, False])
def test_kernels_and_parents_end_with_the_server(tmp_path: Path, killed: bool) -> None:
    add_forked(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        processes = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
        assert len(processes) == 2 and all(process.is_running() for process in processes)
        if killed:
            server.kill()
        server.stdin.close()
        assert server.wait(60) == (-signal.SIGKILL if killed else 0)
    gone, alive = psutil.wait_procs(processes, 5)
    assert not alive and len(gone) == 2


async def test_a_kernel_that_nobody_holds_any_more_ends(tmp_path: Path) -> None:
    add_forked(tmp_path)
    manager = AsyncKernelManager(kernel_name="forked", connection_file=str(tmp_path / "k.json"))
    await manager.start_kernel()
    provisioner: Any = manager.provisioner
    process = psutil.Process(provisioner.process.pid)
    provisioner.process = None
    await until(lambda: not process.is_running())
    manager.cleanup_connection_file()
    manager.context.destroy(linger=0)


async def test_a_start_that_is_cancelled_leaves_no_kernel(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        parent = psutil.Process(kernel.parent)
        for number in range(5):
            manager = AsyncKernelManager(kernel_name="forked", connection_file=str(tmp_path / f"c{number}.json"))
            starting = asyncio.ensure_future(manager.start_kernel())
            await asyncio.sleep(0.005 * number)  # in the middle of it, wherever that is
            starting.cancel()
            await asyncio.wait([starting])
            manager.context.destroy(linger=0)
            del manager, starting
        gc.collect()  # a start that was over is a manager's that nobody has, which refers to itself
        await until(lambda: kernels_of(parent) == [kernel.pid])


async def test_many_starts_at_once_share_a_parent(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with AsyncExitStack() as stack:
        kernels = await asyncio.gather(*(stack.enter_async_context(running(tmp_path)) for _ in range(6)))
        assert len({kernel.parent for kernel in kernels}) == 1
        answers = await asyncio.gather(*(kernel.says(f"print({n})") for n, kernel in enumerate(kernels)))
        assert answers == [str(n) for n in range(6)]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it tells what is shared")
async def test_a_further_kernel_has_little_memory_of_its_own(tmp_path: Path) -> None:
    """A budget, for what is shared is easily lost: 12.8 MiB when this was written, and 17 with numpy and pandas."""
    add_forked(tmp_path)
    async with AsyncExitStack() as stack:
        kernels = [await stack.enter_async_context(running(tmp_path)) for _ in range(3)]
        for kernel in kernels:
            text = Path(f"/proc/{kernel.pid}/smaps_rollup").read_text()
            private = re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)
            assert len(private) >= 2
            assert sum(map(int, private)) < 14 * 1024, text


@pytest.mark.timeout(120 + _FORKS)
@only_in_full
async def test_many_forks_in_a_row_leave_nothing(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        parent, own = psutil.Process(kernel.parent), psutil.Process()

        async def start_and_end(row: int, count: int) -> None:
            for _ in range(count):
                manager = AsyncKernelManager(kernel_name="forked", connection_file=str(tmp_path / f"row{row}.json"))
                manager.transport, manager.ip = "ipc", str(tmp_path / f"row{row}")
                await manager.start_kernel()
                assert isinstance(manager.provisioner.process, ForkedProcess)  # type: ignore[union-attr]
                await manager.shutdown_kernel(now=True)
                manager.context.destroy(linger=0)
                del manager
            gc.collect()

        def held() -> tuple[object, ...]:
            threads = sorted(t.name for t in threading.enumerate() if not t.name.startswith("asyncio_"))  # a pool's
            return parent.num_fds(), own.num_fds(), threads, sorted(os.listdir(tmp_path))

        await asyncio.gather(*(start_and_end(row, 1) for row in range(_ROWS)))
        before = held()
        await asyncio.gather(*(start_and_end(row, _FORKS // _ROWS) for row in range(_ROWS)))
        assert held() == before
        assert [child.pid for child in parent.children()] == [kernel.pid]
        assert await kernel.says("print(1)") == "1"


async def test_a_directory_that_is_not_there_is_said_as_for_any_kernel(tmp_path: Path) -> None:
    add_forked(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        async with running(tmp_path, cwd=str(tmp_path / "nowhere")):
            raise AssertionError("it started all the same")
    gc.collect()


# --- its parent ---


async def test_installed_packages_make_a_new_parent_and_the_old_one_ends_with_its_kernels(tmp_path: Path) -> None:
    env = module(tmp_path, "installed", "VERSION = 1", "site-packages")
    add_forked(tmp_path)
    async with running(tmp_path, env=env) as kernel:
        parent = psutil.Process(kernel.parent)
        async with running(tmp_path, env=env) as same:
            assert same.parent == parent.pid
        module(tmp_path, "another", "VERSION = 2", "site-packages")
        async with running(tmp_path, env=env) as later:
            assert later.parent != parent.pid
            assert await later.says("import another; print(another.VERSION)") == "2"
            assert await kernel.says("import another; print(another.VERSION)") == "2"
            assert parent.is_running()
    assert await asyncio.to_thread(parent.wait, 10) is None or not parent.is_running()


async def test_a_changed_configuration_holds_for_the_next_kernel(tmp_path: Path) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        assert await kernel.says("print(get_ipython().ast_node_interactivity)") == "last_expr"
        profile = Path(os.environ["IPYTHONDIR"]) / "profile_default"
        (profile / "ipython_kernel_config.py").write_text(
            "c.InteractiveShell.ast_node_interactivity = 'all'\nc.HistoryManager.enabled = False\n"
            "c.InteractiveShellApp.exec_lines = ['begun = 1']\n"
        )
        async with running(tmp_path) as later:
            assert await later.says("print(get_ipython().ast_node_interactivity, begun)") == "all 1"
            assert await later.says("print(get_ipython().history_manager.enabled)") == "False"


async def test_where_no_shell_can_be_made_ahead_each_kernel_makes_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As with versions of IPython that are still to come."""
    once = """\
from ipykernel.zmqshell import ZMQInteractiveShell as Shell
usual = Shell.init_prompts
def init_prompts(self):
    Shell.init_prompts = usual
    raise RuntimeError("not ahead")
Shell.init_prompts = init_prompts
"""
    add_forked(tmp_path, preload=["once"])
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, env=module(tmp_path, "once", once)) as kernel:
            assert isinstance(kernel.process, ForkedProcess)
            assert await kernel.says("print(get_ipython().parent is get_ipython().kernel, In[0] == '')") == "True True"
    assert "each makes its own shell: RuntimeError: not ahead" in caplog.text


async def test_a_module_that_starts_threads_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = module(tmp_path, "busy", "import threading, time; threading.Thread(target=time.sleep, args=[60]).start()")
    add_forked(tmp_path, preload=["busy", "numpy"])
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, env=env) as kernel:
            assert await kernel.says("import sys; print('busy' in sys.modules, 'numpy' in sys.modules)") == "False True"
    assert "busy starts threads when it is imported" in caplog.text


async def test_what_cannot_be_forked_is_started_as_usual_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_forked(tmp_path, argv=["/bin/sh", "-c", 'exec "$@"', "sh", *ARGV])
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path) as kernel:
            assert await kernel.says("print(1)") == "1"
            assert not isinstance(kernel.manager.provisioner.process, ForkedProcess)  # type: ignore[union-attr]
    assert "is not forked, but started as usual" in caplog.text and "can be forked, and this is" in caplog.text


async def test_what_the_command_says_holds_for_forked_kernels(tmp_path: Path) -> None:
    add_forked(tmp_path, argv=[ARGV[0], "-Xutf8", *ARGV[1:], "--ZMQInteractiveShell.ast_node_interactivity=all"])
    async with running(tmp_path) as kernel:
        code = "import sys; print(sys.flags.utf8_mode, get_ipython().ast_node_interactivity)"
        assert await kernel.says(code) == "1 all"
        assert await kernel.says("print(type(get_ipython().kernel.session.key).__name__)") == "bytes"


async def test_where_there_is_no_fork_kernels_are_started_as_usual(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForkServerProvisioner, "unavailable", classmethod(lambda _: "this system has no fork"))
    add_forked(tmp_path)
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path) as kernel:
            assert await kernel.says("print(1)") == "1"
            assert not isinstance(kernel.manager.provisioner.process, ForkedProcess)  # type: ignore[union-attr]
    assert "this system has no fork" in caplog.text


async def test_a_parent_that_breaks_is_told_and_kernels_start_as_usual(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = module(tmp_path, "broken", "raise RuntimeError('not today')")
    add_forked(tmp_path, preload=["broken"])
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, env=env) as kernel:
            assert await kernel.says("print(1)") == "1"
    assert "RuntimeError: not today" in caplog.text


def test_a_parent_can_be_begun_ahead(tmp_path: Path) -> None:
    command = [argument.format(connection_file=tmp_path / "k.json") for argument in ARGV]
    provisioner = ForkServerProvisioner(preload=["json"])
    threads = [threading.Thread(target=provisioner.begin, args=[command, os.environ]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fork_parents()._entries) == 1
