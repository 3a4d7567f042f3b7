"""Sandboxed kernels that take all they can get, while others work; see `test_faults` for the scale."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.isolation.common.launch_request import HOME
from jupyter_exec_ext.models import Execution, ExecutionState
from tests.support.full import IS_FULL, SCALE
from tests.support.hosts import Host, running_host
from tests.support.machine_speed import other_sessions_p99_seconds
from tests.support.sandbox_leftovers import kinds_of_sandbox

pytestmark = pytest.mark.needs("sandbox")
SECONDS = 2.0 * SCALE
OTHERS = 2
GIB = 1024**3
LIMITS = {
    "max_processes": 64,
    "max_memory_bytes": 2 * GIB,
    "max_file_bytes": 64 * 1024**2,
    "max_open_files": 1024,
    "max_tmp_bytes": 64 * 1024**2,
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = ["--ExecEngine.default_isolation=sandbox"]
    options += [f"--SandboxProvisioner.{name}={value}" for name, value in LIMITS.items()]
    with running_host("server", tmp_path_factory.mktemp("resources"), *options) as host:
        yield host


@dataclass(frozen=True)
class Attack:
    """Code that takes too much.

    Parameters
    ----------
    state : ExecutionState
        How it ends.
    says : str
        What is found in its output or its error.
    """

    code: str
    state: ExecutionState
    says: str
    timeout_seconds: float | None = None


FORK_BOMB = """
import os
print("now", flush=True)
while True:
    try:
        if os.fork() == 0 and {leads}:
            os.setsid()
    except OSError:
        pass
"""
MANY_PROCESSES = """
import os
children = []
for number in range(8):
    pid = os.fork()
    if pid == 0:
        kept = bytearray(512 * 1024**2)
        os.kill(os.getpid(), 19)
        os._exit(0)
    children.append(pid)
ends = []
while len(ends) < 8:
    pid, how = os.waitpid(-1, os.WUNTRACED)
    if os.WIFSTOPPED(how):
        continue
    ends.append(os.WTERMSIG(how))
    if 9 in ends:
        for child in set(children):
            try:
                os.kill(child, 9)
            except ProcessLookupError:
                pass
print("killed" if 9 in ends else ends)
"""
KERNEL_TOO_LARGE = """
import subprocess, sys, time
kept = bytearray(900 * 1024**2)
more = "kept = bytearray(300 * 1024**2); import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-S", "-c", more]) for _ in range(5)]
time.sleep(30)
"""
FILL = """
import errno, os
written = 0
try:
    for number in range({files}):
        file = os.open({path!r} + str(number), os.O_CREAT | os.O_WRONLY)
        for _ in range({mib}):
            written += os.write(file, bytes(1024 * 1024))
        os.close(file)
except OSError as error:
    print(errno.errorcode[error.errno], "after", written // 1024**2)
os.close(file)
for before in range(number + 1):
    os.unlink({path!r} + str(before))
"""
FILES = """
kept = []
try:
    for number in range(10_000):
        kept.append(open("/dev/null"))
except OSError as error:
    print(error)
kept.clear()
"""

ATTACKS = {
    "fork bomb": Attack(FORK_BOMB.format(leads=False), ExecutionState.TIMEOUT, "now", timeout_seconds=SECONDS / 2),
    # A system that shares its processors out by sessions gives each of these as much as the server.
    "fork bomb of session leaders": Attack(
        FORK_BOMB.format(leads=True), ExecutionState.TIMEOUT, "now", timeout_seconds=SECONDS / 2
    ),
    "4 GiB": Attack("kept = bytearray(4 * 1024**3)", ExecutionState.ERROR, "MemoryError"),
    "4 GiB, little by little": Attack(
        "kept = []\nwhile True: kept.append(bytearray(16 * 1024**2))", ExecutionState.ERROR, "MemoryError"
    ),
    "4 GiB in 8 processes": Attack(MANY_PROCESSES, ExecutionState.OK, "killed"),
    "4 GiB, most of it the kernel's": Attack(KERNEL_TOO_LARGE, ExecutionState.OOM_KILLED, "memory limit"),
    "1 GiB file": Attack(FILL.format(path="large", files=1, mib=1024), ExecutionState.OK, "EFBIG after 64"),
    "1 GiB in /tmp": Attack(FILL.format(path="/tmp/f", files=32, mib=32), ExecutionState.OK, "ENOSPC after 6"),
    "1 GiB in /dev/shm": Attack(FILL.format(path="/dev/shm/f", files=32, mib=32), ExecutionState.OK, "ENOSPC after 6"),
    "1 GiB at home": Attack(FILL.format(path=f"{HOME}/f", files=32, mib=32), ExecutionState.OK, "ENOSPC after 6"),
    "10,000 open files": Attack(FILES, ExecutionState.OK, "Too many open files"),
}


class Others:
    """Sessions that run `1` again and again until it is over."""

    def __init__(self, client: ExecClient, stack: ExitStack) -> None:
        self.waits: list[float] = []
        self._over = threading.Event()
        self._failures: list[Exception] = []
        self._sessions = [stack.enter_context(client.session()) for _ in range(OTHERS)]
        for session in self._sessions:
            assert session.run("1").ok
        self._threads = [threading.Thread(target=self._work, args=(session,)) for session in self._sessions]
        for thread in self._threads:
            thread.start()

    def _work(self, session: object) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                assert session.run("1").ok  # type: ignore[attr-defined]
                self.waits.append(time.monotonic() - began)
        except Exception as error:
            self._failures.append(error)

    def end(self) -> list[float]:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        assert self._failures == []
        return sorted(self.waits)


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")


def text_of(record: Execution) -> str:
    error = record.error
    return record.stdout + ("" if error is None else f"{error.name} {error.value}") + str(record.reason or "")


# What takes more than each process may have needs limits on all of them together: control groups.
OF_ALL_PROCESSES = ("fork bomb of session leaders", "4 GiB in 8 processes", "4 GiB, most of it the kernel's")
HAVE_GROUPS = "control groups" in kinds_of_sandbox()
# A commit tries another one of the same kind.
ONLY_IN_FULL = {
    *("fork bomb of session leaders", "4 GiB, little by little"),
    *("1 GiB in /tmp", "1 GiB in /dev/shm", "1 GiB at home"),
}
NAMES = [name for name in ATTACKS if HAVE_GROUPS or name not in OF_ALL_PROCESSES]
CHOSEN = NAMES if IS_FULL else [name for name in NAMES if name not in ONLY_IN_FULL]


@pytest.mark.timeout(60 + 30 * SCALE)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_kernel_that_takes_too_much_is_stopped_and_others_work_on(
    host: Host, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    attack = ATTACKS[name]
    with ExecClient(host.info) as client, ExitStack() as stack:
        hostile = stack.enter_context(client.session())
        assert hostile.run("1").ok
        others = Others(client, stack)
        records: list[Execution] = []
        over_at = time.monotonic() + SECONDS
        while not records or time.monotonic() < over_at:
            records.append(hostile.run(attack.code, timeout_seconds=attack.timeout_seconds))
        waits = others.end()
        began = time.monotonic()
        afterwards = hostile.run("print(6 * 7)").stdout
        usable_after = time.monotonic() - began
    p99 = waits[int(len(waits) * 0.99)]
    report(
        capsys,
        f"resources: {name}: {len(records)} times {records[-1].state.value}; others' round trips {len(waits)}, "
        f"median {waits[len(waits) // 2] * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {waits[-1] * 1000:.0f} ms; "
        f"usable after {usable_after:.2f} s",
    )
    for record in records:
        assert record.state is attack.state, record
        assert attack.says in text_of(record)
    assert afterwards == "42\n"
    if IS_FULL:  # a slow moment of a shared machine is no defect of a commit
        assert p99 <= other_sessions_p99_seconds()
