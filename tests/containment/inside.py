"""What the probes use inside the kernel, which knows nothing of this package: the standard library only.

The text of this module and of those with the probes is sent to the kernel. A probe is a plain function that is given
the facts about the world outside (`World.facts`). It returns True only if it holds a secret from there. Where the
attack is to change something, it returns False, and leaves the verdict to the world: what a process sees of its own
files says nothing about those of others.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import select
import signal
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Facts = dict[str, Any]
Attack = Callable[[Facts], bool]
T = TypeVar("T")

GROUPS = ("theft", "walls", "escape", "bypass")
SECRET = re.compile(rb"canary-([a-z]+)-[0-9a-f]{32}")
_CHILD_SECONDS = 8.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Probe:
    """An attack."""

    name: str
    group: str
    gain: str
    attack: Attack
    # Its effect is what is still there when the kernel is gone.
    outlives: bool = False


PROBES: dict[str, Probe] = {}


def probe(group: str, *, outlives: bool = False) -> Callable[[Attack], Attack]:
    """Note a function as a probe; the first line of its docstring says what an attacker would gain."""
    assert group in GROUPS

    def note(attack: Attack) -> Attack:
        assert attack.__name__ not in PROBES, f"two probes are called {attack.__name__}"
        assert attack.__doc__, f"{attack.__name__} does not say what would be gained"
        PROBES[attack.__name__] = Probe(
            attack.__name__, group, attack.__doc__.splitlines()[0].strip(), attack, outlives
        )
        return attack

    return note


def attempt(name: str, facts: Facts) -> str:
    """Carry out an attack, and return as JSON what came of it.

    Only what the system or a program refuses counts as blocked. Any other error is a mistake in the probe.
    """
    said: dict[str, Any] = {"open": False, "note": "", "error": None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on forking beside threads
            said["open"] = bool(PROBES[name].attack(facts))
    except (OSError, subprocess.SubprocessError) as error:
        said["note"] = f"{type(error).__name__}: {error}"
    except BaseException:
        said["error"] = traceback.format_exc(limit=-6)
    return json.dumps(said)


# --- Secrets


def found(facts: Facts, data: bytes | str, kind: str | None = None) -> bool:
    """Whether there is a secret of the world's in this; the kernel is told their digests, not the secrets."""
    raw = data.encode(errors="surrogateescape") if isinstance(data, str) else bytes(data)
    return any(
        facts["digests"].get(match[1].decode()) == hashlib.sha256(match[0]).hexdigest()
        and (kind is None or match[1].decode() == kind)
        for match in SECRET.finditer(raw)
    )


def read(path: str | int) -> bytes:
    """Return the beginning of a file, without waiting for a writer if it is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if isinstance(path, str) else os.dup(path)
    data = b""
    try:
        # Files that the system makes as they are read come in pieces.
        while len(data) < _MOST_BYTES and (piece := _piece(descriptor, data)):
            data += piece
    finally:
        os.close(descriptor)
    return data


def _piece(descriptor: int, before: bytes) -> bytes:
    try:
        return os.read(descriptor, _MOST_BYTES)
    except OSError:
        if before:
            return b""
        raise


def steals(facts: Facts, path: str, kind: str | None = None) -> bool:
    """Whether this file can be read, and has a secret."""
    return found(facts, read(path), kind)


def any_steals(facts: Facts, paths: list[str], kind: str | None = None) -> bool:
    """Whether one of these files can be read, and has a secret."""
    return any_of(lambda path: steals(facts, path, kind), paths)


def any_of(attack: Callable[[T], bool], subjects: Iterable[T]) -> bool:
    """Whether an attack succeeds on one of these; if it does on none, the last refusal is raised, as a note."""
    refusal: OSError | None = None
    for subject in subjects:
        try:
            if attack(subject):
                return True
        except OSError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    return False


def any_way(*attacks: Callable[[], bool]) -> bool:
    """Whether one of these attacks succeeds."""
    return any_of(lambda attack: attack(), attacks)


# --- Processes


def processes() -> list[int]:
    """Return the processes that can be seen, but for this one."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def servers(facts: Facts) -> Iterator[int]:
    """Yield where the server may be: where we are told it is, whoever looks like it, and who started this process."""
    seen = {os.getpid()}
    for pid in (facts["server"], *_look_like_the_server(facts), *_ancestors(), 1):
        if pid not in seen:
            seen.add(pid)
            yield pid


def _look_like_the_server(facts: Facts) -> Iterator[int]:
    for pid in processes():
        try:
            if found(facts, read(f"/proc/{pid}/cmdline"), "process"):
                yield pid
        except OSError:
            pass


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 1:
        yield pid
        try:
            pid = int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
        except OSError:
            return


def the_server(facts: Facts) -> int:
    """Return the process that is known by its command line, told or found, so that no other is ever disturbed."""
    for pid in _look_like_the_server(facts):
        return pid
    raise ProcessLookupError(errno.ESRCH, "no process looks like the server")


def the_server_by_number(facts: Facts) -> int:
    """Return the number that the server has outside, unless it is somebody else's here."""
    pid = int(facts["server"])
    try:
        line = read(f"/proc/{pid}/cmdline")
    except OSError:  # not to be seen: then it is tried blindly, since a filter on /proc hides only the sight
        return pid
    if not found(facts, line, "process"):
        raise ProcessLookupError(errno.ESRCH, "the number is another process here")
    return pid


def in_child(attack: Callable[[], bool], seconds: float = _CHILD_SECONDS) -> bool:
    """Whether an attack succeeds in a child, for those that would change the kernel's own process, or end it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _answer(writing, attack)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], seconds)
        said = os.read(reading, 8192) if ready else b""
    finally:
        os.close(reading)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            if not said:
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
    if said[:1] == b"!":
        raise RuntimeError(said[1:].decode(errors="replace"))
    if said[:1] != b"1" and said[:1] != b"0":
        raise OSError(errno.ECANCELED, said[1:].decode(errors="replace") or f"the child ended with status {status}")
    return said[:1] == b"1"


def _answer(writing: int, attack: Callable[[], bool]) -> None:
    try:
        said = b"1" if attack() else b"0"
    except (OSError, subprocess.SubprocessError) as error:
        said = f"-{type(error).__name__}: {error}".encode()
    except BaseException:
        said = b"!" + traceback.format_exc(limit=-6).encode()
    os.write(writing, said[:8192])


def output(*command: str, env: dict[str, str] | None = None, given: bytes = b"", fds: tuple[int, ...] = ()) -> bytes:
    """Return what a program says."""
    done = subprocess.run(
        command, env=env, input=given, pass_fds=fds, capture_output=True, timeout=_CHILD_SECONDS, check=False
    )
    if not done.stdout and done.returncode:
        raise OSError(errno.ECANCELED, f"{command[0]} ended with {done.returncode}: {done.stderr[-300:]!r}")
    return done.stdout


def status_of(pid: int | str, field: str) -> str:
    """Return a line of /proc/…/status."""
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(f"{field}:"):
            return line.partition(":")[2].strip()
    return ""


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Look until something is so."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# --- System calls by number, past the C library

_NUMBERS = {
    "socket": (41, 198),
    "clone": (56, 220),
    "ioctl": (16, 29),
    "pivot_root": (155, 41),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "clone3": (435, 435),
    "openat2": (437, 437),
}


_LONG = ("syscall", "ptrace", "process_vm_readv", "process_vm_writev", "mq_receive", "shmat")


def is_x86_64() -> bool:
    """Whether machine code of ours runs here."""
    return platform.machine().lower() in ("x86_64", "amd64") and ctypes.sizeof(ctypes.c_void_p) == 8


def libc() -> Any:
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: Any) -> int:
    """Call a function of the C library that returns -1 if it is refused."""
    entry = getattr(libc(), function)
    entry.restype = ctypes.c_long if function in _LONG else ctypes.c_int
    result = int(entry(*[_wide(argument) for argument in arguments]))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
    return result


def syscall(name: str, *arguments: Any) -> int:
    """Make a system call by its number."""
    return call("syscall", _NUMBERS[name][0 if is_x86_64() else 1], *arguments)


def _wide(argument: Any) -> Any:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def is_descriptor(number: int) -> bool:
    """Whether a call has given us an open descriptor; it is closed."""
    os.fstat(number)
    os.close(number)
    return True
