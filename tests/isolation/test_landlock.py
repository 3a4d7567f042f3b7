"""Kernels that Landlock holds: how they live, what each way out is answered, and that there are none without."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_exec_ext.isolation.common import isolation_support
from jupyter_exec_ext.isolation.common.isolated_process import cap_limits
from jupyter_exec_ext.isolation.common.launch_request import View
from jupyter_exec_ext.isolation.common.leftovers import MARK
from jupyter_exec_ext.isolation.common.visible_files import VisibleFilesError
from jupyter_exec_ext.isolation.landlock import LandlockProvisioner, enter, landlock_process, ruleset
from jupyter_exec_ext.isolation.landlock.landlock_provisioner import rules_of
from jupyter_exec_ext.isolation.sandbox import IsolationUnavailableError
from tests.support.session_processes import runs

held = pytest.mark.needs("Landlock")
NAME = "landlock-provisioner"
END_SECONDS = 10.0


class Kernel:
    """A running kernel, to ask."""

    def __init__(self, manager: AsyncKernelManager) -> None:
        self.manager = manager
        self.client: AsyncKernelClient | None = None

    @property
    def provisioner(self) -> LandlockProvisioner:
        assert isinstance(self.manager.provisioner, LandlockProvisioner)
        return self.manager.provisioner

    async def connect(self) -> None:
        if self.client is not None:
            self.client.stop_channels()
        self.client = self.manager.client()
        assert self.client is not None
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=60)

    async def run(self, code: str) -> str:
        """Return what code prints, and the name of the error that it ends with."""
        assert self.client is not None
        said: list[str] = []

        def note(message: dict[str, Any]) -> None:
            content = message["content"]
            said.append(content["text"] if message["msg_type"] == "stream" else content.get("ename", ""))

        await self.client._async_execute_interactive(textwrap.dedent(code), output_hook=note, timeout=60)
        return "".join(said).strip()

    async def expect_end(self, code: str) -> int:
        """Run code that ends the kernel, and return how it did."""
        assert self.client is not None
        self.client.execute(textwrap.dedent(code))
        ended = await asyncio.wait_for(self.provisioner.wait(), END_SECONDS)
        assert ended is not None
        return ended


Start = Callable[..., Awaitable[Kernel]]


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Return a function that starts kernels, in a directory of their own."""
    entry_point: Any = SimpleNamespace(name=NAME, load=lambda: LandlockProvisioner)
    monkeypatch.setitem(KernelProvisionerFactory.instance().provisioners, NAME, entry_point)
    kernels: list[Kernel] = []
    (tmp_path / "work").mkdir()

    async def start(config: dict[str, Any] | None = None, **settings: Any) -> Kernel:
        manager = AsyncKernelManager(connection_file=str(tmp_path / f"kernel-{len(kernels)}.json"))
        for name, value in settings.items():
            manager.config.LandlockProvisioner[name] = value
        assert manager.kernel_spec is not None
        manager.kernel_spec.metadata = {"kernel_provisioner": {"provisioner_name": NAME, "config": config or {}}}
        kernel = Kernel(manager)
        await manager.start_kernel(cwd=str(tmp_path / "work"))
        kernels.append(kernel)
        await kernel.connect()
        return kernel

    yield start
    for kernel in kernels:
        if kernel.client is not None:
            kernel.client.stop_channels()
        if kernel.manager.has_kernel:
            await kernel.manager.shutdown_kernel(now=True)
        else:
            await kernel.manager.cleanup_resources()


def is_there(mark: str) -> bool:
    """Whether there is a process with a mark on its command line."""
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if mark in one.cmdline():
                return True
    return False


async def comes(mark: str) -> bool:
    return await _until(lambda: is_there(mark), END_SECONDS)


async def goes(mark: str, seconds: float) -> bool:
    return await _until(lambda: not is_there(mark), seconds)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True


# Leaves the kernel in every way that there is, and drops what it could be known by.
DAEMON = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", {mark!r}], {{}})
    os._exit(0)
os.wait()
print("left")
"""


# --- how they live


@held
async def test_a_kernel_is_started_asked_interrupted_restarted_and_ended(start: Start, tmp_path: Path) -> None:
    kernel = await start()
    provisioner = kernel.provisioner
    assert provisioner.level == "landlock" and provisioner.limits_processes
    assert await kernel.run("import os; print(1 + 1, os.getcwd())") == f"2 {tmp_path / 'work'}"
    assert await kernel.run("print(os.getpid())") == str(provisioner.kernel_pid)
    assert provisioner.shared_directory is not None and provisioner.shared_directory[0].is_dir()
    sleeps = asyncio.create_task(kernel.run("import time; print('sleeps'); time.sleep(60)"))
    await asyncio.sleep(0.5)
    await kernel.manager.interrupt_kernel()
    assert await sleeps == "sleeps\nKeyboardInterrupt"
    assert await kernel.run("open(os.path.expanduser('~/there'), 'w').write('x'); print('goes on')") == "goes on"
    first = provisioner.kernel_pid
    await kernel.manager.restart_kernel(now=True)
    await kernel.connect()
    assert await kernel.run("import os; print(os.path.exists(os.path.expanduser('~/there')))") == "False"
    assert kernel.provisioner.kernel_pid != first
    home = Path(provisioner.home)
    await kernel.manager.shutdown_kernel()
    assert not home.exists() and not home.parent.exists()
    assert provisioner.shared_directory is None


@held
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os; os._exit(7)", 7),
        ("import os; os._exit(137)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
async def test_how_a_kernel_ended_is_told(start: Start, code: str, status: int) -> None:
    kernel = await start()
    assert await kernel.expect_end(code) == status


@held
@pytest.mark.parametrize("end", ["shutdown", "itself", "keeper"])
async def test_nothing_outlives_a_kernel(start: Start, end: str) -> None:
    kernel, mark = await start(), f"mark-{os.urandom(8).hex()}"
    daemon = DAEMON.format(mark=mark)
    if end == "keeper":  # then only what it has not hidden is found
        daemon = daemon.replace("execve", "execv").replace(", {})", ")")
    assert await kernel.run(daemon) == "left"
    assert await comes(mark)
    if end == "shutdown":
        await kernel.manager.shutdown_kernel(now=True)
    elif end == "itself":
        await kernel.expect_end("os._exit(0)")
    else:
        pid = kernel.provisioner.kernel_pid
        assert pid is not None and kernel.provisioner.pid is not None
        os.kill(kernel.provisioner.pid, signal.SIGKILL)
        await kernel.provisioner.wait()
        assert not runs(pid)
    assert not is_there(mark)


SERVER = """
import asyncio, sys
from pathlib import Path
from jupyter_exec_ext.isolation.landlock import landlock_process as process
from jupyter_exec_ext.isolation.landlock import landlock_process as support
print(*[process.LandlockProcess(process.Orders(
    program=sys.executable, command=[sys.executable, "-c", sys.argv[2], sys.argv[1]], environment={}, directory="/",
    rules=[("/", "read")], limits={}, filter=support.ready_filter(),
), environment={}, group=None, output=2).pid for _ in range(5)], flush=True)
sys.stdin.read()
"""


@held
async def test_nothing_outlives_a_server_that_is_killed() -> None:
    mark = f"mark-{os.urandom(8).hex()}"
    busy = DAEMON.format(mark=mark) + "\nimport time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, mark, busy, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    keepers = [int(pid) for pid in (await server.stdout.readline()).split()]
    assert await comes(mark)
    server.kill()
    await server.communicate()
    assert len(keepers) == 5
    assert await goes(mark, 3)
    assert await _until(lambda: not any(runs(pid) for pid in keepers), 3)


@held
async def test_a_kernel_that_is_asked_to_end_does_so_in_silence(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    kernel = await start()
    assert await kernel.run("import subprocess; child = subprocess.Popen(['sleep', '60'])") == ""
    with caplog.at_level("INFO"):
        await kernel.manager.shutdown_kernel()
    assert "Traceback" not in caplog.text and "Exception" not in caplog.text


@held
async def test_a_kernel_says_what_it_uses(start: Start) -> None:
    kernel = await start()
    assert kernel.client is not None
    asked = kernel.client.session.msg("usage_request", {})
    kernel.client.control_channel.send(asked)
    reply = await kernel.client.get_control_msg(timeout=10)
    assert reply["content"]["kernel_memory"] > 10_000_000


@held
async def test_commands_run_without_a_terminal(start: Start) -> None:
    kernel = await start()
    assert await kernel.run("x = 'said'\n!echo {x}; false\nprint(_exit_code)") == "said\n1"
    assert await kernel.run("y = !echo $x; echo twice\nprint(y, y.n)") == "['said', 'twice'] said\ntwice"
    assert await kernel.run("!kill -9 $$\nprint(_exit_code)") == "-9"
    assert await kernel.run("import os; os.openpty()") == "PermissionError"


@held
async def test_ordinary_work_is_possible(start: Start) -> None:
    kernel = await start()
    work = """
    import asyncio, os, pathlib, psutil, shutil, sqlite3, subprocess, sys, tempfile, threading
    pathlib.Path("a").write_text("x")
    shutil.copy2("a", "b")
    os.rename("b", tempfile.gettempdir() + "/b")
    with sqlite3.connect("db") as db:
        db.execute("CREATE TABLE t (x)")
    print(subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True, text=True).stdout.strip())
    print(await asyncio.to_thread(os.cpu_count) > 0, psutil.virtual_memory().total > 0)
    print(psutil.Process().memory_info().rss > 0, os.listdir("/proc/self/fd") != [])
    """
    assert await kernel.run(work) == "3\nTrue True\nTrue True"


# --- what each way out is answered

PROBES: dict[str, str] = {
    "a file outside": "open(facts['secret'])",
    "its directory": "os.listdir(os.path.dirname(facts['secret']))",
    "a file outside, through a link": "os.symlink(facts['secret'], 'link'); open('link')",
    "a file outside, by another name": "os.link(facts['secret'], 'name')",
    "a file outside, written": "open(facts['secret'], 'a')",
    "a file outside, cut short": "os.truncate(facts['secret'], 0)",
    "a file outside, removed": "os.unlink(facts['secret'])",
    "a file beside the work directory": "open('../made', 'w')",
    "the directory for everybody's files": "open('/tmp/made-by-kernel', 'w')",
    "shared memory": "open('/dev/shm/made-by-kernel', 'w')",
    "a list of processes": "os.listdir('/proc')",
    "the environment of the server": "open(f'/proc/{facts[\"server\"]}/environ')",
    "the command line of the server": "open(f'/proc/{facts[\"server\"]}/cmdline')",
    "the memory of the server": "open(f'/proc/{facts[\"server\"]}/mem', 'rb')",
    "the files of the server": "os.listdir(f'/proc/{facts[\"server\"]}/fd')",
    "the memory of the server, copied": "call('process_vm_readv', facts['server'], None, 0, None, 0, 0)",
    "the server, debugged": "call('ptrace', 16, facts['server'], None, None)",
    "a signal to the server": "os.kill(facts['server'], 0)",
    "a signal to the keeper": "os.kill(os.getppid(), 9)",
    "the limits of the server": "resource.prlimit(facts['server'], resource.RLIMIT_CORE, (0, 0))",
    "the priority of the server": "os.setpriority(os.PRIO_PROCESS, facts['server'], 19)",
    "the priority of all of the user's": "os.setpriority(os.PRIO_USER, 0, 19)",
    "the processors of the server": "os.sched_setaffinity(facts['server'], {0})",
    "the policy of the server": "os.sched_setscheduler(facts['server'], os.SCHED_IDLE, os.sched_param(0))",
    "TCP": "socket.socket().connect(('127.0.0.1', facts['port']))",
    "TCP, by IPv6": "socket.socket(socket.AF_INET6).connect(('::1', facts['port']))",
    "a port": "socket.socket().bind(('127.0.0.1', 0))",
    "a port, by IPv6": "socket.socket(socket.AF_INET6).bind(('::1', 0))",
    "UDP": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', facts['port']))",
    "an abstract socket": "socket.socket(socket.AF_UNIX).connect(facts['abstract'])",
    "a socket with a file": "socket.socket(socket.AF_UNIX).connect(facts['socket'])",
    "a socket for letters": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "the kernel's environment": "open(os.path.join(os.path.dirname(os.__file__), 'made'), 'w')",
    "the settings of Jupyter": "os.listdir(sys.prefix + '/etc/jupyter')",
    "the connections of the machine": "open('/proc/self/net/tcp')",
    "the mounts of the machine": "open('/proc/self/mountinfo')",
    "a terminal": "os.openpty()",
    "the names in a directory": "watch(os.path.dirname(facts['secret']))",
    "an attribute of a file outside": "os.setxattr(facts['secret'], 'user.x', b'x')",
    "access to a file outside for others": "os.setxattr(facts['secret'], 'system.posix_acl_access', b'')",
    "a mount": "call('mount', b'none', b'.', b'tmpfs', 0, None)",
    "namespaces": "call('unshare', 0x10000000)",
    "another user": "os.setuid(1)",
    "a device": "os.mknod('device', 0o20600, os.makedev(1, 3))",
}
PREPARE = """
import ctypes, json, os, resource, socket, sys
facts = json.loads({facts!r})
def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def watch(path):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(libc.inotify_init(), path.encode(), 0x100) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def attempt(code):
    try:
        exec(code)
    except OSError as error:
        return error.errno
"""
REFUSED = {errno.EACCES, errno.EPERM, errno.EAFNOSUPPORT, errno.EXDEV, errno.EOPNOTSUPP}


@held
async def test_every_way_out_is_refused(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "outside" / "secret"
    secret.parent.mkdir()
    secret.write_text("x")
    abstract = f"\0{os.urandom(8).hex()}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as unnamed:
        os.chdir(secret.parent)  # the path may be too long for a socket
        named.bind("socket")
        unnamed.bind(abstract)
        tcp.bind(("127.0.0.1", 0))
        for one in (tcp, named, unnamed):
            one.listen()
        kernel = await start()
        facts = {
            "secret": str(secret),
            "server": os.getpid(),
            "port": tcp.getsockname()[1],
            "abstract": abstract,
            "socket": os.path.relpath(secret.parent / "socket", tmp_path / "work"),
        }
        await kernel.run(PREPARE.format(facts=json.dumps(facts)))
        said = await kernel.run(f"print(json.dumps([attempt(code) for code in {list(PROBES.values())!r}]))")
    answers = dict(zip(PROBES, json.loads(said), strict=True))
    open_ways = {name: number for name, number in answers.items() if number not in REFUSED}
    if not os.path.isdir(f"{sys.prefix}/etc/jupyter"):
        open_ways.pop("the settings of Jupyter")
    assert open_ways == {}
    assert secret.read_text() == "x"
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


# What this level does not hold, beside what the machine tells about itself. Whoever changes that says so in the docs.
NOT_HELD = {
    "the mode of a file outside": "os.chmod(facts['secret'], 0o644)",
    "the times of a file outside": "os.utime(facts['secret'], (1, 1))",
    "whether there is a file outside": "os.stat(facts['secret'])",
    "whether there is a process": "os.stat(f'/proc/{facts[\"server\"]}')",
    "the limits of the server, to be read": "resource.prlimit(facts['server'], resource.RLIMIT_NOFILE)",
    "an abstract name that is free": "socket.socket(socket.AF_UNIX).bind(chr(0) + os.urandom(9).hex())",
}


@held
async def test_what_is_not_held_is_known(start: Start, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    kernel = await start()
    facts = {"secret": str(tmp_path / "secret"), "server": os.getpid()}
    await kernel.run(PREPARE.format(facts=json.dumps(facts)))
    said = await kernel.run(f"print(json.dumps([attempt(code) for code in {list(NOT_HELD.values())!r}]))")
    assert dict(zip(NOT_HELD, json.loads(said), strict=True)) == dict.fromkeys(NOT_HELD)


@held
async def test_the_environment_has_no_secret_of_the_server(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    monkeypatch.setenv("SOME_SERVICE_KEY", "secret")
    kernel = await start()
    environment = await kernel.run("import os; print(sorted(os.environ.values()))")
    assert "secret" not in environment
    assert (await kernel.run(f"print(os.environ[{MARK!r}].count('-'))")) == "2"


@held
async def test_nothing_is_handed_down(start: Start, tmp_path: Path) -> None:
    (tmp_path / "open-file").write_text("x")
    descriptor = os.open(tmp_path / "open-file", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    kernel = await start()
    await kernel.run(
        "import glob, os; paths = [path for path in glob.glob('/proc/self/fd/*') if os.path.lexists(path)]"
    )
    opened = await kernel.run("print([os.readlink(path) for path in paths if os.path.lexists(path)])")
    os.close(descriptor)
    assert "pipe:" in opened and "open-file" not in opened


def orders(**changed: Any) -> landlock_process.Orders:
    plain: dict[str, Any] = {
        "program": sys.executable,
        "command": [sys.executable, "-c", "open('started', 'w')"],
        "environment": {},
        "directory": "/",
        "rules": [("/", "read")],
        "limits": {},
        "filter": isolation_support.filter_path("landlock"),
    }
    return landlock_process.Orders(**(plain | changed))


@held
def test_a_program_begins_as_if_started_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forgotten, plain = os.open(tmp_path, os.O_RDONLY), subprocess.Popen.__init__

    def careless(self: Any, *arguments: Any, pass_fds: list[int], **options: Any) -> None:
        plain(self, *arguments, pass_fds=[*pass_fds, forgotten], **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", careless)
    for command in (["ls", "-l", "/proc/self/fd"], ["grep", "^Sig", "/proc/self/status"]):
        started = landlock_process.LandlockProcess(
            orders(program=f"/bin/{command[0]}", command=command), environment={}, group=None, output=1
        )
        assert started.wait() == 0
        started.close()
    os.close(forgotten)
    said = capfd.readouterr().out
    assert "/dev/null" in said and str(tmp_path) not in said
    signals = dict(line.split() for line in said.splitlines() if line.startswith("Sig"))
    assert {signals["SigIgn:"], signals["SigBlk:"]} == {"0" * 16}


@held
async def test_limits_hold(start: Start) -> None:
    kernel = await start(max_memory_bytes=2 * 1024**3, max_open_files=100, max_file_bytes=1024**2, max_cpu_seconds=30)
    limits = {
        "bytearray(4 * 1024**3)": "MemoryError",
        "files = [open('/dev/null') for _ in range(200)]": "OSError",
        "open('big', 'wb').write(bytes(2 * 1024**2))": "OSError",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))": "ValueError",
    }
    # Without a free descriptor IPython's history may say so as well, before the error.
    assert {code: (await kernel.run(code)).splitlines()[-1] for code in limits} == limits
    assert await kernel.run("print(resource.getrlimit(resource.RLIMIT_CPU))") == "(30, 31)"
    assert await kernel.run("print(resource.getrlimit(resource.RLIMIT_CORE))") == "(0, 0)"


@held
@pytest.mark.needs("control groups")
async def test_a_kernel_that_starts_without_end_is_stopped_and_ended(start: Start) -> None:
    kernel = await start(max_processes=64)
    bomb = """
    import os
    children = 0
    try:
        while children < 1000:
            if os.fork() == 0:
                os.execv("/bin/sleep", ["sleep", "60"])
            children += 1
    except BlockingIOError:
        print("stopped", children < 64)
    """
    assert await kernel.run(bomb) == "stopped True"
    await kernel.manager.shutdown_kernel(now=True)


# --- nothing is started where it cannot be held


@pytest.fixture
def untried() -> Iterator[None]:
    """Forget that it was tried already."""
    landlock_process._try.cache_clear()
    yield
    landlock_process._try.cache_clear()


async def refused(start: Start, reason: str, *words: str) -> None:
    message = LandlockProvisioner.unavailable()
    with pytest.raises(IsolationUnavailableError) as caught:
        await start()
    assert caught.value.reason == reason
    assert str(caught.value) == message
    for word in words:
        assert word in str(message)


@pytest.mark.usefixtures("untried")
async def test_it_is_refused_elsewhere_than_on_linux(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_support, "sys", SimpleNamespace(platform="darwin"))
    await refused(start, "not_linux", "Linux", "remote")


@pytest.mark.usefixtures("untried")
async def test_it_is_refused_on_an_unknown_machine(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    await refused(start, "unknown_architecture", "riscv64", "remote")


@pytest.mark.usefixtures("untried")
async def test_it_is_refused_without_filters_of_calls(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_support, "supported", lambda: False)
    await refused(start, "no_seccomp", "seccomp")


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
async def test_it_is_refused_without_landlock(start: Start, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def absent() -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ruleset, "abi", absent)
    await refused(start, "no_landlock", "lsm=", "sandbox", os.strerror(number))


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("abi", range(1, ruleset.MIN_ABI))
async def test_it_is_refused_with_an_old_landlock(start: Start, monkeypatch: pytest.MonkeyPatch, abi: int) -> None:
    monkeypatch.setattr(ruleset, "abi", lambda: abi)
    await refused(start, "old_landlock", f"version {abi}", "Linux 6.12")


def without_call(number: int) -> bytes:
    """Return a filter under which one call is not there, as in a container that does not know it."""
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


@held
@pytest.mark.parametrize(
    ("number", "reason"), [(444, "no_landlock"), (445, "landlock_failed"), (446, "landlock_failed")]
)
def test_it_is_refused_where_calls_are_not_to_be_had(number: int, reason: str) -> None:
    asks = """
    import json, sys
    from jupyter_exec_ext.isolation.landlock import landlock_process as support
    from jupyter_exec_ext.isolation.common import seccomp
    seccomp.apply(bytes.fromhex(sys.argv[1]))
    try:
        support.ready_filter()
    except support.IsolationUnavailableError as error:
        print(json.dumps([error.reason, str(error)]))
    """
    command = [sys.executable, "-c", textwrap.dedent(asks), without_call(number).hex()]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said[0] == reason
    assert "sandbox" in said[1]


@held
@pytest.mark.parametrize(
    ("changed", "step", "reason"),
    [
        ({"rules": [("/nowhere", "read")]}, "launcher", "launcher_failed"),
        ({"rules": [("/", "everything")]}, "landlock", "landlock_failed"),
        ({"directory": "/nowhere"}, "launcher", "launcher_failed"),
        ({"filter": Path("/nowhere")}, "launcher", "launcher_failed"),
        ({"filter": Path(os.devnull)}, "seccomp", "no_seccomp"),
        ({"limits": {"RLIMIT_UNKNOWN": (1, 1)}}, "limits", "limits_failed"),
    ],
)
def test_a_step_that_fails_ends_it(
    changed: dict[str, Any], step: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(landlock_process.NotStartedError) as caught:
        landlock_process.LandlockProcess(
            orders(**({"directory": str(tmp_path)} | changed)), environment={}, group=None, output=2
        )
    assert caught.value.report is not None and caught.value.report["step"] == step
    error = landlock_process.failure(caught.value.report, sys.executable)
    assert isinstance(error, IsolationUnavailableError) and error.reason == reason
    assert f"the kernel was not started ({step})" in capfd.readouterr().err
    assert os.listdir(tmp_path) == []


@held
def test_a_program_that_cannot_be_executed_is_named() -> None:
    with pytest.raises(landlock_process.NotStartedError) as caught:
        landlock_process.LandlockProcess(
            orders(program="/nowhere"), environment={}, group=None, output=subprocess.DEVNULL
        )
    error = landlock_process.failure(caught.value.report, "/nowhere")
    assert isinstance(error, FileNotFoundError) and error.filename == "/nowhere"


@held
def test_a_launcher_that_says_nothing_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    with pytest.raises(landlock_process.NotStartedError) as caught:
        landlock_process.LandlockProcess(orders(), environment={}, group=None, output=subprocess.DEVNULL)
    error = landlock_process.failure(caught.value.report, "")
    assert isinstance(error, IsolationUnavailableError) and error.reason == "launcher_failed"


def test_each_step_has_a_status_of_its_own() -> None:
    assert len(set(enter.STATUS.values())) == len(enter.STATUS)


# --- rules


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """Return a directory as an environment of Python, with settings of Jupyter."""
    for name in ("bin", "etc/jupyter/jupyter_server_config.d", "etc/ssl", "lib/python"):
        (tmp_path / "env" / name).mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "env" / "other").symlink_to("etc/jupyter")
    (tmp_path / "work").mkdir()
    return tmp_path / "env"


def view(read_only: list[Path], hidden: list[Path], work: Path, **more: Any) -> View:
    return View([str(path) for path in read_only], {}, [str(path) for path in hidden], str(work), **more)


def test_what_is_hidden_is_below_no_rule(installation: Path, tmp_path: Path) -> None:
    seen = view([installation], [installation / "etc" / "jupyter"], tmp_path / "work")
    rules = rules_of(seen, str(tmp_path / "c.json"), own=[], sockets="/nowhere")
    readable = {os.path.relpath(path, installation) for path, right in rules if path.startswith(str(installation))}
    assert readable == {"bin", "lib", "pyvenv.cfg", "etc/ssl"}


def test_what_is_hidden_behind_a_link_is_below_no_rule(installation: Path, tmp_path: Path) -> None:
    (installation / "etc").rename(installation / "real")
    (installation / "etc").symlink_to("real")
    seen = view([installation], [installation / "etc" / "jupyter"], tmp_path / "work")
    rules = rules_of(seen, str(tmp_path / "c.json"), own=[], sockets="/nowhere")
    readable = {os.path.relpath(path, installation) for path, right in rules if path.startswith(str(installation))}
    assert readable == {"bin", "lib", "pyvenv.cfg", "real/ssl"}


def test_an_environment_in_the_working_directory_is_refused(installation: Path, tmp_path: Path) -> None:
    seen = view([installation], [], tmp_path, read_only_inside_work=["env"])
    with pytest.raises(VisibleFilesError, match="another directory"):
        rules_of(seen, str(tmp_path / "c.json"), own=[], sockets="/nowhere")


def test_the_whole_of_proc_is_never_allowed(tmp_path: Path) -> None:
    rules = rules_of(view([Path("/usr")], [], tmp_path), str(tmp_path / "c.json"), own=[], sockets="/nowhere")
    assert not {"/", "/proc", "/proc/sys", "/proc/self", "/dev", "/dev/shm", "/dev/pts", "/tmp"} & {p for p, _ in rules}


FORGETS = """
import os, subprocess, sys, time
from jupyter_exec_ext.isolation.landlock import landlock_process as process
from jupyter_exec_ext.isolation.landlock import landlock_process as support
from jupyter_exec_ext.isolation.landlock.landlock_provisioner import rules_of
from jupyter_exec_ext.isolation.common.launch_request import View
view = View(["/usr", sys.prefix, sys.base_prefix], {}, [], os.getcwd())
one = process.LandlockProcess(process.Orders(
    program=sys.executable, command=[sys.executable, "-I", "-c", sys.argv[1]], environment={}, directory="/",
    rules=rules_of(view, sys.argv[2], own=[], sockets="."), limits={}, filter=support.ready_filter(),
), environment={}, group=None, output=1)
time.sleep(1)
subprocess.run(["mount", "-o", "remount", "/proc"], check=True)
print("forgotten", flush=True)
one.wait()
"""
READS = """
import time
until = time.monotonic() + 2.5
while time.monotonic() < until:
    open("/proc/self/status").close(), open("/proc/meminfo").close()
    time.sleep(0.1)
print("read", flush=True)
"""


@held
@pytest.mark.needs("mounts")
def test_what_is_allowed_in_proc_stays_so_when_the_system_forgets_it(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("")
    command = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", sys.executable, "-c", FORGETS]
    done = subprocess.run(
        [*command, READS, str(tmp_path / "c.json")], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "forgotten\nread\n", done.stderr


def test_limits_are_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 10))
    wanted = {"RLIMIT_NOFILE": (4096, 4096), "RLIMIT_CPU": (5, 6)}
    assert cap_limits(wanted) == {"RLIMIT_NOFILE": (10, 10), "RLIMIT_CPU": (5, 6)}
