"""Becomes a kernel that is held by Landlock and a filter of system calls. Run as a file: ``python -I -S enter.py FD``.

It runs without this package on its path and imports the standard library only. What it is to do comes as JSON through
the socket that it inherits: command lines and environments can be read by others. It takes two processes:

- the keeper stays outside. Whatever the kernel starts, and whatever leaves the kernel, stays below the keeper
  (``PR_SET_CHILD_SUBREAPER``), so that all of it can be ended with the kernel, or when the server has ended;
- its child closes every way out and then becomes the kernel.

On the socket the keeper says which process the kernel will be and waits for an answer; the child says that all is done
("ready"), or in which step it failed. The end of the stream after "ready" is the start of the kernel itself.
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

TYPE_CHECKING = False  # to import as little as possible: every kernel waits for it
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, NoReturn

#: With which status the child ends if it failed in a step.
STATUS = {"launcher": 119, "capabilities": 120, "limits": 121, "landlock": 122, "seccomp": 123, "command": 124}

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 23, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_LIMITS = {
    "memory_bytes": resource.RLIMIT_AS,
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core_bytes": resource.RLIMIT_CORE,
}
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}
_ROUND_SECONDS = 0.005
# What the kernel's process can read of itself in /proc. Its directory as a whole would also show the connections and
# the mounts of the machine; and those of others would show their command lines.
_OF_ITSELF = (
    *("auxv", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps", "oom_score", "oom_score_adj"),
    *("smaps", "smaps_rollup", "stat", "statm", "status"),
)


# --- The keeper


def keep(control: int) -> NoReturn:
    """Start the kernel, stay until it ends, and end what it has left."""
    os.set_inheritable(control, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # they are waited for
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        orders = json.loads(_read_line(control))
        if os.getppid() != orders["server"]:  # which ended before it could be noticed
            os._exit(STATUS["launcher"])
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        rules, keeper = _opened(orders["rules"]), os.getpid()
        kernel = os.fork()
    except (OSError, ValueError, LookupError) as error:
        _fail(control, "launcher", error)
    if kernel == 0:
        _become_kernel(control, orders, rules, keeper)
    # A rule is for a file as it is in memory. Files in /proc are made anew once they have been forgotten there, and are
    # then without a rule. They are not forgotten as long as they are open, so they stay open here.
    for (path, _), (descriptor, _) in zip(orders["rules"], rules, strict=True):
        if not path.startswith("/proc/"):
            os.close(descriptor)
    _opened(_own_files(kernel))
    os.write(control, json.dumps({"kernel": kernel}).encode() + b"\n")
    os.close(control)
    _be_silent()
    _end_as(_wait(kernel))


def _wait(kernel: int) -> int:
    """Return how the kernel ended, when it and all it has started have ended."""
    status = 0
    while True:
        ended = signal.sigwait(_SIGNALS) == signal.SIGTERM
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == kernel:
                    status, ended = found[1], True
        if ended:
            return _end_all(kernel, status)


def _end_all(kernel: int, status: int) -> int:
    """End all that is below this process: what has lost its parent is a child of this one."""
    while True:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == kernel:
                    status = found[1]
        except ChildProcessError:
            return status
        for pid in _below(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _below(pid: int) -> list[int]:
    """Return the descendants of a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found = list(children.get(pid, ()))
    for one in found:
        found += children.get(one, ())
    return found


def _end_as(status: int) -> NoReturn:
    """End as the kernel did."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with suppress(OSError):  # it cannot be set for those that always end a process
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _be_silent() -> None:
    """Let the kernel be the only one that holds the way to the server's log."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


# --- The kernel, before it is one


def _become_kernel(control: int, orders: dict[str, Any], rules: list[tuple[int, str]], keeper: int) -> NoReturn:
    """Close every way out, and execute the kernel."""
    step = "launcher"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(STATUS["launcher"])
        if _read_line(control) != b"go":
            os._exit(STATUS["launcher"])
        os.chdir(orders["directory"])
        landlock, seccomp = (_load(orders[name]) for name in ("landlock", "seccomp"))
        with open(orders["filter"], "rb") as file:
            allowed_calls = file.read()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = "capabilities"
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _drop_capabilities()
        step = "limits"
        _limit(orders["limits"])
        step = "landlock"
        landlock.restrict([*rules, *_opened(_own_files(os.getpid()))])
        step = "launcher"
        _close_all_but(control)
        step = "seccomp"
        seccomp.apply(allowed_calls)
        step = "command"
        os.write(control, b'{"ready": true}\n')
        os.execve(orders["program"], orders["command"], orders["environment"])  # noqa: S606
    except BaseException as error:
        _fail(control, step, error)


def _fail(control: int, step: str, error: BaseException) -> NoReturn:
    """Say why there is no kernel, to the server and in its log."""
    said = {"step": step, "errno": getattr(error, "errno", None), "message": str(error)}
    with suppress(OSError):
        print(f"the kernel was not started ({step}): {error}", file=sys.stderr, flush=True)
    with suppress(OSError):
        os.write(control, json.dumps(said).encode() + b"\n")
    os._exit(STATUS[step])


def _limit(limits: dict[str, int | None]) -> None:
    """Set limits that cannot be raised again; where there is a lower one already, it stays."""
    for name, kind in _LIMITS.items():
        if (value := limits[name]) is not None:
            _lower(kind, value, value)
    if (seconds := limits["cpu_seconds"]) is not None:
        # The second number is when a process is killed that has made itself deaf to SIGXCPU.
        _lower(resource.RLIMIT_CPU, seconds, seconds + 1)


def _lower(kind: int, soft: int, hard: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def _drop_capabilities() -> None:
    """Give up what makes root more than a user, for good."""
    capability = 0
    while _libc().prctl(_PR_CAPBSET_READ, ctypes.c_ulong(capability), _0, _0, _0) >= 0:
        _libc().prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), _0, _0, _0)  # only root can, and only it has to
        capability += 1
    _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice, for 64 bits
    if _libc().capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), nothing):
        raise _error()


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # that of the listing itself
                os.close(int(name))


# --- Both


_0 = ctypes.c_ulong(0)


def _opened(rules: Iterable[tuple[str, str]]) -> list[tuple[int, str]]:
    return [(os.open(path, os.O_PATH | os.O_CLOEXEC), right) for path, right in rules]


def _own_files(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the rules for what a process can read of itself, as far as this system has it."""
    for path in (f"/proc/{pid}/{name}" for name in _OF_ITSELF):
        if os.path.exists(path):
            yield path, "read"


def _load(path: str) -> Any:
    """Return a module that is a file."""
    name = os.path.basename(path).partition(".")[0]
    module = type(sys)(name)
    module.__file__ = path
    SourceFileLoader(name, path).exec_module(module)
    return module


def _read_line(control: int) -> bytes:
    """Return the next line; the other side sends no more before it has an answer."""
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
