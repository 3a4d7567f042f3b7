"""What a network, a kill and a restart do to executions that were accepted. Figures as in `test_faults`."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.client.sync.session import ExecSession
from jupyter_exec_ext.errors import ExecError, OutOfResources, StorageFull, TooManySessions
from jupyter_exec_ext.models import EndEvent, ExecutionState, StreamEvent
from jupyter_exec_ext.protocol.output_joining import OutputFold
from tests.support.full import IS_FULL, SCALE, only_in_full, scaled
from tests.support.hosts import FORKED, Host, free_port, running_host
from tests.support.tcp_proxies import CuttingProxy, DroppingProxy

PATIENT = 50


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


# --- F7 ---


@pytest.mark.timeout(120 * SCALE)
@only_in_full
def test_streams_that_are_cut_again_and_again_are_read_without_a_gap(host: Host) -> None:
    """500 (20) cuts over 100 (4) runs: what the client saw is byte for byte what the record holds, each number once."""
    runs, cuts_each = scaled(100, per_commit=4), 5
    code = "import sys\nfor i in range(3000):\n    print(i, 'x' * 50, file=sys.stdout if i % 3 else sys.stderr)"
    rng = random.Random(3)
    cuts = 0
    for _ in range(runs):
        with (
            CuttingProxy(host.info, cut_after_bytes=rng.randrange(500, 40_000), max_cuts=cuts_each) as proxy,
            ExecClient(host.info) as direct,
            direct.session() as session,
            ExecClient(proxy.info, max_retries=PATIENT) as client,
        ):
            events = list(ExecSession(client._driver, client._api, session.record).stream(code))
        cuts += proxy.cuts
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        fold = OutputFold()
        for event in events:
            fold.add(event)
        end = events[-1]
        assert isinstance(end, EndEvent)
        record = end.execution
        assert (fold.outputs(), fold.text("stdout")) == (list(record.outputs), record.stdout)
        assert record.stdout == "".join(f"{i} {'x' * 50}\n" for i in range(3000) if i % 3)
    print(f"F7: {cuts} cuts in {runs} runs, 0 gaps")
    assert cuts == runs * cuts_each


# --- F8 ---


@pytest.mark.timeout(120 * SCALE)
@only_in_full
def test_code_runs_once_however_many_answers_are_lost(host: Host) -> None:
    """100 runs while 30 % of the answers are lost: the kernel counted each of them once."""
    runs = 100 * SCALE
    counter = host.home / "runs"
    counter.write_text("")
    code = "with open({path!r}, 'a') as f: f.write('{n}\\n')\nprint({n})"
    with (
        ExecClient(host.info) as direct,
        direct.session() as session,
        DroppingProxy(host.info, random.Random(5), 0.3) as proxy,
        ExecClient(proxy.info, max_retries=PATIENT) as client,
    ):
        through = client.get_session(session.id)
        outputs = [through.run(code.format(path=str(counter), n=n)).stdout for n in range(runs)]
    assert outputs == [f"{n}\n" for n in range(runs)]
    assert counter.read_text().split() == [str(n) for n in range(runs)]
    print(f"F8: {proxy.drops} answers lost in {runs} runs, each ran once")
    assert proxy.drops > runs / 5


# --- F9 ---


def kernels_of(home: Path) -> list[int]:
    """Return the processes that run below `home` as kernels."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(home) in " ".join(process.cmdline()) and "ipykernel" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@pytest.mark.timeout(200 * SCALE)
def test_a_killed_server_leaves_nothing_without_an_end(tmp_path: Path) -> None:
    """100 (4) kills at random points while four clients submit: what was acknowledged has an end and can be read."""
    rng = random.Random(11)
    kills, port, token = scaled(100, per_commit=4), free_port(), "a" * 32
    acknowledged: dict[str, str] = {}
    checked = cut = 0
    slowest_recovery = 0.0
    for number in range(kills + 1):
        began = time.monotonic()
        with (
            running_host("server", tmp_path, token=token, port=port) as host,
            ExecClient(host.info, outage_seconds=0.0) as client,
        ):
            for execution_id, stdout in list(acknowledged.items()):
                record = client.get_execution(execution_id).refresh()
                if number:
                    slowest_recovery = max(slowest_recovery, time.monotonic() - began)
                assert record.state in (ExecutionState.OK, ExecutionState.SERVER_RESTARTED)
                if record.state is ExecutionState.OK:
                    assert record.stdout == stdout
                else:
                    cut += 1
                    assert stdout.startswith(record.stdout)
                    assert record.session_state_preserved is False
                events = list(client.get_execution(execution_id).events())
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                streamed = "".join(event.text for event in events if isinstance(event, StreamEvent))
                assert streamed == record.stdout
                checked += 1
            acknowledged.clear()
            assert [session.state for session in client.list_sessions()] == []
            assert kernels_of(tmp_path) == []
            left = [p for p in (tmp_path / "run").iterdir() if p.name.startswith("kernel-")]
            assert left == []
            if number == kills:
                break
            _submit_until_killed(host, client, acknowledged, rng.uniform(0.2, 1.5))
    print(f"F9: {kills} kills, {checked} acknowledged runs with an end, {cut} of them cut")
    assert checked > kills
    assert cut > 0


def _submit_until_killed(host: Host, client: ExecClient, acknowledged: dict[str, str], seconds: float) -> None:
    sessions = [client.session() for _ in range(2)]

    def submit(session: Any, first: int) -> None:
        with contextlib.suppress(ExecError, OSError):
            for n in range(first, first + 1000):
                code = f"import time\nprint('a{n}', flush=True)\ntime.sleep(0.03)\nprint('b{n}')"
                handle = session.submit(code)
                acknowledged[handle.id] = f"a{n}\nb{n}\n"
                if n % 3 == 0:
                    handle.result()

    threads = [threading.Thread(target=submit, args=(s, i * 10_000)) for i, s in enumerate(sessions * 2)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait()
    for thread in threads:
        thread.join()


# --- F15 ---

MOUNT = 'mount -t tmpfs -o size=8m tmpfs {path} && exec "$@"'


def run_again_and_again(session: Any) -> None:
    for _ in range(50):
        session.run("print('x' * 100_000)")


@pytest.mark.needs("mounts")
@pytest.mark.timeout(180)
def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    """The store on a disk of 8 MiB that is filled: reading and cancelling work, new code is refused, none is torn."""
    disk = tmp_path / "disk"
    disk.mkdir()
    prefix = ["unshare", "--mount", "sh", "-c", MOUNT.format(path=disk), "sh"]
    options = [f"--ExecStore.path={disk}/store", "--ExecStore.reserve_bytes=1000000"]
    with running_host("server", tmp_path, *options, prefix=prefix) as host, ExecClient(host.info) as client:
        session, other = client.session(), client.session()
        before = session.run("print('before')")
        running = other.submit("import time\nfor i in range(600): print(i, flush=True); time.sleep(0.1)")
        fill = f"with open({str(disk / 'filler')!r}, 'wb', 0) as f:\n    while f.write(b'x' * 4096): pass"
        record = session.run(fill)
        assert record.error is not None
        assert "No space left" in record.error.value
        with pytest.raises(StorageFull):
            run_again_and_again(session)
        assert client.get_execution(before.id).refresh().stdout == "before\n"
        cancelled = running.cancel()
        assert cancelled.state is ExecutionState.CANCELLED
        assert cancelled.stdout.startswith("0\n")
        # Somebody makes room; the host's own API still runs code in the same namespace.
        with client.standard_session() as way_around:
            way_around.run(f"import os; os.unlink({str(disk / 'filler')!r})")
        give_up_at = time.monotonic() + 10
        while True:
            try:
                assert session.run("print('after')").stdout == "after\n"
                break
            except StorageFull:
                assert time.monotonic() < give_up_at
        assert client.get_execution(running.id).refresh() == cancelled
        for execution in session.list_executions():
            events = list(client.get_execution(execution.id).events())
            assert [event.seq for event in events] == list(range(1, len(events) + 1))


# --- F13 ---


@pytest.mark.timeout(300)
@only_in_full
def test_no_kernel_is_culled_while_it_runs_or_right_after(tmp_path: Path) -> None:
    """10 long runs under a cull timeout of 2 s: none is culled, and each kernel keeps its idle time after the end."""
    runs = 10 * SCALE
    options = [f"--MappingKernelManager.cull_{name}" for name in ("idle_timeout=2", "interval=1", "busy=True")]
    with running_host("server", tmp_path, *options) as host, ExecClient(host.info) as client:

        def long_run(number: int) -> bool:
            with client.session() as session:
                long = session.run(f"import time; time.sleep(4); kept = {number}; print(kept)")
                time.sleep(1.5)  # less than the timeout
                again = session.run("print(kept)")
                return (long.stdout, again.stdout, again.kernel_starts) == (f"{number}\n", f"{number}\n", 1)

        with ThreadPoolExecutor(5) as pool:
            kept = list(pool.map(long_run, range(runs)))
    assert all(kept)
    print(f"F13: {runs} runs of 4 s, 0 culled")


# --- F14 ---


def descriptors_of(host: Host) -> int:
    return psutil.Process(host.process.pid).num_fds()


def limited(soft: int, hard: int) -> list[str]:
    """Return how to start a host with limits of descriptors."""
    return ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]


@contextmanager
def connections(host: Host, count: int) -> Iterator[None]:
    """Take descriptors of a host's by connections that send nothing."""
    with ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection((host.info.host, host.info.port or 0)))
        yield


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["server", "gateway"])
def test_a_host_without_descriptors_refuses_and_recovers(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path, prefix=limited(256, 256)) as host, ExecClient(host.info) as client:
        with connections(host, 160):
            with pytest.raises(OutOfResources) as refused:
                _ = [client.session() for _ in range(100)]
            assert refused.value.retry_after_seconds is not None
            if name == "gateway":
                answer = requests.post(f"{host.info.url}api/kernels", headers=host.info.auth_headers, timeout=30)
                assert (answer.status_code, "too many open files" in answer.text) in {(503, True), (201, False)}
        opened = client.list_sessions()
        assert len(opened) > 2
        for record in opened:
            client.get_session(record.id).close()
        began = time.monotonic()
        with client.session() as session:
            assert session.run("print('fine')").stdout == "fine\n"
        print(f"F14: refused after {len(opened)} sessions, works again {time.monotonic() - began:.1f} s later")
        assert time.monotonic() - began < 5


@pytest.mark.timeout(120)
def test_kernels_that_start_at_once_without_descriptors_are_refused(tmp_path: Path) -> None:
    with running_host("server", tmp_path, prefix=limited(256, 256)) as host, ExecClient(host.info) as client:

        def opened(_: int) -> bool:
            try:
                client.session()
            except (OutOfResources, TooManySessions):
                return False
            return True

        began = time.monotonic()
        with connections(host, 160), ThreadPoolExecutor(10) as pool:
            outcomes = list(pool.map(opened, range(80)))
        assert 0 < sum(outcomes) < 80
        assert time.monotonic() - began < 45  # nothing waits for a kernel that it cannot reach


@pytest.mark.timeout(120)
def test_max_sessions_is_lowered_to_what_the_descriptors_suffice_for(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path, prefix=limited(128, 128)) as host, ExecClient(host.info) as client:
        most = client.info()["limits"]["max_sessions"]
        assert 0 < most < 128 / 12
        assert f"max_sessions is lowered from 100 to {most}: the server can open 128 descriptors" in host.log_text()
        sessions = [client.session() for _ in range(most)]
        with pytest.raises(TooManySessions, match=f"at most {most} sessions"):
            client.session()
        assert [session.run("print(1)").stdout for session in sessions] == ["1\n"] * most


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["server", "gateway"])
def test_a_host_raises_its_soft_limit_and_its_kernels_keep_theirs(tmp_path: Path, name: str) -> None:
    soft = 5000  # more than Jupyter Server sets by itself
    with running_host(name, tmp_path, prefix=limited(soft, soft + 1000)) as host, ExecClient(host.info) as client:
        assert resource.prlimit(host.pid, resource.RLIMIT_NOFILE) == (soft + 1000, soft + 1000)
        assert client.info()["limits"]["max_sessions"] == 100
        code = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
        with client.session() as session:
            assert session.run(code).stdout == f"{soft} {soft + 1000}\n"
            session.restart()
            assert session.run(code).stdout == f"{soft} {soft + 1000}\n"
        with client.standard_session() as of_the_host:
            assert of_the_host.run(code).stdout == f"{soft} {soft + 1000}\n"


def settled_descriptors_of(host: Host, pooled: int) -> int:
    """Return how many there are while the pool has what it is to have, and nothing is being started or ended.

    ZeroMQ closes what it has in a thread of its own, some time after a kernel has ended: they are counted when their
    number stays.
    """
    give_up_at = time.monotonic() + 20
    counted: list[int] = []
    with requests.Session() as http:  # one connection for all questions: the server may still have that of the last one
        while time.monotonic() < give_up_at:
            metrics = http.get(f"{host.info.url}metrics", headers=host.info.auth_headers, timeout=10).text
            settled = (
                f"jupyter_exec_pooled_kernels {float(pooled)}\n" in metrics
                and len(children_of(host)) == pooled + FORKED
            )
            counted = [*counted, descriptors_of(host)] if settled else []
            if len(counted) >= 10 and len(set(counted[-10:])) == 1:
                return counted[-1]
            time.sleep(0.1)
    raise AssertionError(f"the pool does not come to {pooled}: {children_of(host)}, descriptors {counted[-10:]}")


def children_of(host: Host) -> list[psutil.Process]:
    """Return the kernels of a server and the fork server, if it has one."""
    return psutil.Process(host.process.pid).children(recursive=True)


@pytest.mark.timeout(120 * SCALE)
@pytest.mark.parametrize("pooled", [0, 1] if IS_FULL else [1])
def test_kernels_that_come_and_go_leave_no_descriptor(tmp_path: Path, pooled: int) -> None:
    cycles = 500 if IS_FULL else 20
    options = (f"--ExecEngine.pool_size={pooled}", "--ExecEngine.pool_max=1")
    with running_host("server", tmp_path, *options) as host, ExecClient(host.info) as client:
        for _ in range(5):  # what is opened once, with the first run, is no leak
            with client.session() as session:
                session.run("1")
        before = settled_descriptors_of(host, pooled)
        for _ in range(cycles):
            with client.session() as session:
                session.run("1")
        after = settled_descriptors_of(host, pooled)
    print(f"F14: {before} descriptors before {cycles} kernels, {after} after")
    assert abs(after - before) <= 2
