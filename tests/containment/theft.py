"""Probes of what a process of the server's own user could do to it: its credentials, its memory, its life."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import pwd
import resource
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Iterator

from tests.containment import inside
from tests.containment.inside import Facts, found, probe

_PTRACE_PEEKDATA, _PTRACE_ATTACH, _PTRACE_DETACH = 2, 16, 17
_MOST_OF_A_REGION = 16 << 20
_MOST_OF_A_PROCESS = 128 << 20


# --- Credentials


@probe("theft")
def token_in_the_own_environment(facts: Facts) -> bool:
    """The server's token, which is full access to it."""
    return found(facts, "\n".join(os.environ.values()), "environ")


@probe("theft")
def token_in_the_environment_of_the_server(facts: Facts) -> bool:
    """The server's token, from the process that we are told is the server."""
    return found(facts, inside.read(f"/proc/{facts['server']}/environ"))


@probe("theft")
def token_in_the_environment_of_any_process(facts: Facts) -> bool:
    """The server's token, from whatever process has it."""
    return inside.any_steals(facts, [f"/proc/{pid}/environ" for pid in inside.processes()])


@probe("theft")
def token_in_the_environment_of_who_started_this(facts: Facts) -> bool:
    """What the launcher of the sandbox was given, which may be process 1 in there."""
    return inside.any_steals(facts, [f"/proc/{pid}/environ" for pid in (os.getppid(), 1)])


@probe("theft")
def secrets_on_the_command_lines_of_others(facts: Facts) -> bool:
    """That there are other processes, whose they are, and what they were told."""
    return inside.any_steals(facts, [f"/proc/{pid}/cmdline" for pid in inside.processes()])


@probe("theft")
def token_in_the_file_of_the_running_server(facts: Facts) -> bool:
    """The server's token, from the file that its own tools find it by."""
    return inside.steals(facts, facts["files"]["runtime"])


@probe("theft")
def token_in_a_file_found_by_searching(facts: Facts) -> bool:
    """The same, from wherever Jupyter keeps such files."""
    directories = {os.environ.get("JUPYTER_RUNTIME_DIR", ""), os.path.expanduser("~/.local/share/jupyter/runtime")}
    directories |= {f"{facts['home']}/.local/share/jupyter/runtime", f"/run/user/{os.getuid()}/jupyter"}
    directories |= {f"{user.pw_dir}/.local/share/jupyter/runtime" for user in pwd.getpwall()}
    paths = [path for directory in directories if directory for path in glob.glob(f"{directory}/jpserver-*")]
    return inside.any_steals(facts, paths)


@probe("theft")
def cookie_secret(facts: Facts) -> bool:
    """Cookies of any user, made at will."""
    return inside.steals(facts, facts["files"]["cookie"])


@probe("theft")
def connection_file_of_another_session(facts: Facts) -> bool:
    """Code run in another session's kernel, with its key."""
    return inside.steals(facts, facts["files"]["connection"])


@probe("theft")
def connection_file_found_by_searching(facts: Facts) -> bool:
    """The same, from all directories that are passed on the way to this kernel's own file."""
    own = [os.getcwd(), os.path.dirname(_connection_file()), tempfile.gettempdir(), f"{facts['home']}/.local"]
    patterns = ("kernel-*.json", "*/kernel-*.json", "*/*/*/kernel-*.json")
    around = [os.path.join(directory, up) for directory in own for up in (".", "..", "../..")]
    return inside.any_steals(facts, [path for top in around for one in patterns for path in glob.glob(f"{top}/{one}")])


def _connection_file() -> str:
    line = inside.read("/proc/self/cmdline").decode().split("\0")
    return line[line.index("-f") + 1] if "-f" in line else os.getcwd()


@probe("theft")
def files_of_another_session(facts: Facts) -> bool:
    """What other users of the server work on."""
    return inside.steals(facts, facts["files"]["sibling"])


# --- Memory


def _regions(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and size of what a process can write to, as far as that is worth reading."""
    total = 0
    for line in inside.read(f"/proc/{pid}/maps").decode().splitlines():
        fields = line.split(maxsplit=5)
        start, end = (int(number, 16) for number in fields[0].split("-"))
        size = min(end - start, _MOST_OF_A_REGION)
        if fields[1].startswith("rw") and total + size < _MOST_OF_A_PROCESS:
            total += size
            yield start, size


def _in_memory(facts: Facts, pid: int) -> bool:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, size in _regions(pid):
            try:
                memory.seek(start)
                if found(facts, memory.read(size)):
                    return True
            except OSError:  # a region without pages behind it
                continue
    return False


@probe("theft")
def memory_of_the_server_through_proc(facts: Facts) -> bool:
    """All that the server knows: tokens, keys, other people's code."""
    return _in_memory(facts, facts["server"])


@probe("theft")
def memory_of_any_relation_through_proc(facts: Facts) -> bool:
    """The same, of the processes that this one descends from, and of those that look like the server."""
    return inside.any_of(lambda pid: _in_memory(facts, pid), inside.servers(facts))


def _copied_out(pid: int, address: int, size: int) -> bytes:
    """Read from another process without a file for it."""
    buffer = ctypes.create_string_buffer(size)
    local = struct.pack("@PN", ctypes.addressof(buffer), size)
    remote = struct.pack("@PN", address, size)
    inside.call("process_vm_readv", pid, local, 1, remote, 1, 0)
    return buffer.raw


@probe("theft")
def memory_of_the_server_copied_by_a_call(facts: Facts) -> bool:
    """The server's memory, where /proc is of no help."""
    return found(facts, _copied_out(facts["server"], *facts["memory"]), "memory")


@probe("theft")
def memory_of_who_started_this_copied_by_a_call(facts: Facts) -> bool:
    """What the launcher of the sandbox still remembers."""
    relations = [pid for pid in inside.servers(facts) if pid != facts["server"]]

    def holds(pid: int) -> bool:
        parts = [(start, size) for start, size in _regions(pid)]
        return inside.any_of(lambda one: found(facts, _copied_out(pid, *one)), parts)

    return inside.any_of(holds, relations)


@probe("theft")
def memory_of_the_server_as_its_debugger(facts: Facts) -> bool:
    """The server's memory and its course."""
    pid = facts["server"]

    def peek() -> bool:
        inside.call("ptrace", _PTRACE_ATTACH, pid, None, None)
        try:
            os.waitpid(pid, 0x40000000)  # __WALL
            address, size = facts["memory"]
            libc = inside.libc()
            libc.ptrace.restype = ctypes.c_long
            words = [
                libc.ptrace(_PTRACE_PEEKDATA, pid, ctypes.c_void_p(place), None)
                for place in range(address, address + size, 8)
            ]
            return found(facts, struct.pack(f"={len(words)}q", *words), "memory")
        finally:
            inside.call("ptrace", _PTRACE_DETACH, pid, None, None)

    return inside.in_child(peek)


@probe("theft")
def memory_of_the_server_overwritten_by_a_call(facts: Facts) -> bool:
    """The server made to do whatever the attacker writes into it."""
    address, _ = facts["scratch"]
    mark = facts["mark"].encode()
    local = struct.pack("@PN", ctypes.addressof(held := ctypes.create_string_buffer(mark)), len(mark))
    inside.call("process_vm_writev", facts["server"], local, 1, struct.pack("@PN", address, len(mark)), 1, 0)
    del held
    return False


@probe("theft")
def memory_of_the_server_overwritten_through_proc(facts: Facts) -> bool:
    """The same, through a file."""
    with open(f"/proc/{facts['server']}/mem", "r+b", buffering=0) as memory:
        memory.seek(facts["scratch"][0])
        memory.write(facts["mark"].encode())
    return False


@probe("theft")
def file_that_the_server_has_open_through_proc(facts: Facts) -> bool:
    """Files that have no name any more, or a name that is out of reach."""
    return inside.steals(facts, f"/proc/{facts['server']}/fd/{facts['server_descriptor']}")


@probe("theft")
def file_that_any_process_has_open(facts: Facts) -> bool:
    """The same, in whatever process; only what is deleted or a secret by its name is opened."""
    paths = []
    for pid in inside.processes():
        try:
            paths += [entry.path for entry in os.scandir(f"/proc/{pid}/fd") if _is_worth_it(entry.path)]
        except OSError:
            continue
    return inside.any_steals(facts, paths)


def _is_worth_it(path: str) -> bool:
    try:
        return "world-" in os.readlink(path) and "unlinked" in os.readlink(path)
    except OSError:
        return False


@probe("theft")
def file_that_the_server_has_open_taken_over(facts: Facts) -> bool:
    """The server's own descriptors: its database, its sockets."""
    process = inside.syscall("pidfd_open", facts["server"], 0)
    try:
        taken = inside.syscall("pidfd_getfd", process, facts["server_descriptor"], 0)
    finally:
        os.close(process)
    try:
        return found(facts, os.pread(taken, 200, 0), "unlinked")
    finally:
        os.close(taken)


@probe("theft")
def directory_that_the_server_is_in(facts: Facts) -> bool:
    """Files relative to the server's directory, wherever that is."""
    name = os.path.basename(facts["files"]["directory"])
    return inside.any_steals(facts, [f"/proc/{pid}/cwd/{name}" for pid in inside.servers(facts)], "directory")


@probe("theft")
def root_directory_of_the_server(facts: Facts) -> bool:
    """The files of the host, as the server sees them."""
    path = facts["files"]["file"]
    return inside.any_steals(facts, [f"/proc/{pid}/root{path}" for pid in inside.servers(facts)], "file")


# --- Its life


@probe("theft")
def signal_to_the_server(facts: Facts) -> bool:
    """The server's end, or any other signal to it, by the number it is told to have."""
    os.kill(inside.the_server_by_number(facts), signal.SIGUSR1)
    return _was_time()


@probe("theft")
def signal_to_a_server_found_by_searching(facts: Facts) -> bool:
    """The same, to whatever looks like it."""
    os.kill(inside.the_server(facts), signal.SIGUSR1)
    return _was_time()


@probe("theft")
def signal_to_the_server_by_descriptor(facts: Facts) -> bool:
    """The same, through a descriptor of the process."""
    process = inside.syscall("pidfd_open", inside.the_server_by_number(facts), 0)
    try:
        inside.syscall("pidfd_send_signal", process, signal.SIGUSR1, None, 0)
    finally:
        os.close(process)
    return _was_time()


@probe("theft")
def signal_to_the_server_queued(facts: Facts) -> bool:
    """The same, by the call that sends a value along."""
    inside.call("sigqueue", inside.the_server_by_number(facts), int(signal.SIGUSR1), None)
    return _was_time()


@probe("theft")
def signal_to_the_server_from_a_socket(facts: Facts) -> bool:
    """The same, sent by the system itself: the server is named as who wants to know of input."""
    f_setown, f_setsig = 8, 10
    here, there = socket.socketpair()
    with here, there:
        fcntl.fcntl(here, f_setown, inside.the_server_by_number(facts))
        fcntl.fcntl(here, f_setsig, signal.SIGUSR1)
        fcntl.fcntl(here, fcntl.F_SETFL, fcntl.fcntl(here, fcntl.F_GETFL) | os.O_ASYNC)
        there.send(b"x")
        return _was_time()


def _was_time() -> bool:
    """Give a signal the time to arrive; whether it did is for the server to say."""
    time.sleep(0.1)
    return False


@probe("theft")
def limits_of_the_server(facts: Facts) -> bool:
    """A server that can open no more files, or is ended for the time it has used."""
    pid = inside.the_server_by_number(facts)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft - 1, hard))
    return False


@probe("theft")
def priority_of_the_server(facts: Facts) -> bool:
    """A server that gets no processor time beside others."""
    pid = inside.the_server_by_number(facts)
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + 1)
    return False


@probe("theft")
def rank_of_the_server_when_memory_is_short(facts: Facts) -> bool:
    """A server that is ended first when the attacker takes all memory."""
    if inside.the_server_by_number(facts) != facts["server"]:
        raise ProcessLookupError(errno.ESRCH, "no such process")
    with open(f"/proc/{facts['server']}/oom_score_adj", "r+") as file:
        rank = int(file.read())
        file.seek(0)
        file.write(str(rank + 1))
    return False
