"""Launcher of a kernel under Landlock and a filter of system calls. Run as a file: ``python -I -S enter.py FD``.

It runs without this package on its path and imports only the standard library. Its orders come as JSON through the
socket that it inherits, since other users can read command lines and environments. It consists of two processes:

- The keeper stays outside. All processes that the kernel starts stay below the keeper, even if they leave the kernel
  (``PR_SET_CHILD_SUBREAPER``). So the keeper can end all of them with the kernel, or when the server has ended.
- The keeper's child isolates itself and then becomes the kernel.

On the socket the keeper reports the kernel's process id and waits for an answer. The child reports "ready", or the
step that failed. The end of the stream after "ready" is the start of the kernel itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # imports as little as possible: every kernel waits for it
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, NoReturn

#: Exit status of the child for each step that can fail.
STATUS = {"launcher": 119, "capabilities": 120, "limits": 121, "landlock": 122, "seccomp": 123, "command": 124}

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 23, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}
_ROUND_SECONDS = 0.005
# Files in /proc that the kernel's process can read of itself. Its whole directory would also show the connections and
# the mounts of the machine, and those of other processes would show their command lines.
_OF_ITSELF = (
    *("auxv", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps", "oom_score", "oom_score_adj"),
    *("smaps", "smaps_rollup", "stat", "statm", "status"),
)


# --- The keeper


def keep(control: int) -> NoReturn:
    """Start the kernel, wait for its end, and end everything that it has left."""
    # The kernel must not inherit it: its end of file tells the server that the program runs.
    os.set_inheritable(control, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # `_wait` receives them
    try:
        # Not SIGKILL: the keeper must still end the kernel's processes.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        orders = json.loads(_read_line(control))
        if os.getppid() != orders["server"]:  # the server ended before PR_SET_PDEATHSIG was set
            os._exit(STATUS["launcher"])
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        rules, keeper = _open_rules(orders["rules"]), os.getpid()
        kernel = os.fork()
    except (OSError, ValueError, LookupError) as error:
        _fail(control, "launcher", error)
    if kernel == 0:
        _become_kernel(control, orders, rules, keeper)
    # A rule holds for an inode in memory. The system may drop inodes of /proc, and a new inode has no rule. It does not
    # drop open ones, so they stay open here.
    for (path, _), (descriptor, _) in zip(orders["rules"], rules, strict=True):
        if not path.startswith("/proc/"):
            os.close(descriptor)
    _open_rules(_own_files(kernel))
    os.write(control, json.dumps({"kernel": kernel}).encode() + b"\n")
    os.close(control)
    _close_output()
    _exit_like(_wait(kernel))


def _wait(kernel: int) -> int:
    """Return the kernel's wait status, once it and all that it has started have ended."""
    status = 0
    while True:
        ended = signal.sigwait(_SIGNALS) == signal.SIGTERM
        with suppress(ChildProcessError):
            # One SIGCHLD may stand for several children.
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == kernel:
                    status, ended = found[1], True
        if ended:
            return _end_all(kernel, status)


def _end_all(kernel: int, status: int) -> int:
    """Kill all descendants until none is left; orphans become children of this process."""
    while True:
        try:
            # This has no time limit of its own. `IsolatedProcess.end` kills a keeper that takes too long.
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == kernel:
                    status = found[1]
        except ChildProcessError:
            return status
        for pid in _list_descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _list_descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def _exit_like(status: int) -> NoReturn:
    """Exit with the status or the signal of the kernel."""
    if os.WIFSIGNALED(status):
        # The signal was the kernel's; the keeper must leave no core file for it.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _close_output() -> None:
    """Leave the pipe to the server's log to the kernel only."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


# --- The child, before it is the kernel


def _become_kernel(control: int, orders: dict[str, Any], rules: list[tuple[int, str]], keeper: int) -> NoReturn:
    """Isolate this process, and execute the kernel."""
    step = "launcher"
    try:
        # The server sends interrupts to the process group of the kernel.
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it ended before PR_SET_PDEATHSIG was set
            os._exit(STATUS["launcher"])
        # By then the server has put this process in its control group.
        if _read_line(control) != b"go":
            os._exit(STATUS["launcher"])
        os.chdir(orders["directory"])
        # Read now, since Landlock may forbid it: this package can lie outside of the kernel's view.
        landlock, seccomp = (_import_file(orders[name]) for name in ("landlock", "seccomp"))
        with open(orders["filter"], "rb") as file:
            allowed_calls = file.read()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        # The keeper has blocked signals, and a mask outlasts both the fork and the execution of a program.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = "capabilities"
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        step = "limits"
        for name, (soft, hard) in orders["limits"].items():  # the server has capped them at its own
            resource.setrlimit(getattr(resource, name), (soft, hard))
        step = "landlock"
        landlock.restrict([*rules, *_open_rules(_own_files(os.getpid()))])
        step = "launcher"
        _close_all_but(control)
        step = "seccomp"
        seccomp.apply(allowed_calls)
        step = "command"
        os.write(control, b'{"ready": true}\n')
        os.execve(orders["program"], orders["command"], orders["environment"])  # noqa: S606
    except BaseException as error:  # whatever it is, the child must not go on as a second keeper
        _fail(control, step, error)


def _fail(control: int, step: str, error: BaseException) -> NoReturn:
    """Report to the server and its log why there is no kernel."""
    report = {"step": step, "errno": getattr(error, "errno", None), "message": str(error)}
    with suppress(OSError):
        print(f"the kernel was not started ({step}): {error}", file=sys.stderr, flush=True)
    with suppress(OSError):
        os.write(control, json.dumps(report).encode() + b"\n")
    os._exit(STATUS[step])


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def _drop_capabilities() -> None:
    """Drop all capabilities for good."""
    capability = 0
    # Before `capset`, since this takes the capability CAP_SETPCAP.
    while _libc().prctl(_PR_CAPBSET_READ, ctypes.c_ulong(capability), _0, _0, _0) >= 0:
        _libc().prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), _0, _0, _0)  # only root can, and only root has to
        capability += 1
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for 64 bits
    if _libc().capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), nothing):
        raise _error()


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


# --- Helpers of both


# As wide as prctl reads its arguments. Some options refuse unused ones that are not zero.
_0 = ctypes.c_ulong(0)


def _open_rules(rules: Iterable[tuple[str, str]]) -> list[tuple[int, str]]:
    return [(os.open(path, os.O_PATH | os.O_CLOEXEC), right) for path, right in rules]


def _own_files(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the rules for the files that a process can read of itself, if this system has them."""
    for path in (f"/proc/{pid}/{name}" for name in _OF_ITSELF):
        if os.path.exists(path):
            yield path, "read"


def _import_file(path: str) -> Any:
    """Import a file as a module."""
    name = os.path.basename(path).partition(".")[0]
    module = type(sys)(name)
    module.__file__ = path
    SourceFileLoader(name, path).exec_module(module)
    return module


def _read_line(control: int) -> bytes:
    """Return the next line; the server sends no more before it has an answer."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(control, 65536)
        if not part:
            os._exit(STATUS["launcher"])
        line += part
    return line[:-1]


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(argument), _0, _0, _0) < 0:
        raise _error()


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


if __name__ == "__main__":
    keep(int(sys.argv[1]))
