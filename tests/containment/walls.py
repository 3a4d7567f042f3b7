"""Probes of the walls one by one: the network, shared memory, the system's files, and calls into the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable

from tests.containment import inside
from tests.containment.inside import Facts, found, probe

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_PAGE = 4096

# --- The network, and sockets of all kinds


def _greets(facts: Facts, family: int, address: object) -> bool:
    """Whether the server answers there, with its secret."""
    with socket.socket(family) as caller:
        caller.settimeout(3)
        caller.connect(address)  # type: ignore[arg-type]
        caller.sendall(facts["mark"].encode())
        return found(facts, caller.recv(200), "banner")


@probe("walls")
def service_of_the_host(facts: Facts) -> bool:
    """Every service that trusts its own machine: databases, other kernels, cloud credentials."""
    return facts["tcp4"] is not None and _greets(facts, socket.AF_INET, ("127.0.0.1", facts["tcp4"]))


@probe("walls")
def service_of_the_host_by_ipv6(facts: Facts) -> bool:
    """The same, where only the older protocol is closed."""
    return facts["tcp6"] is not None and _greets(facts, socket.AF_INET6, ("::1", facts["tcp6"]))


@probe("walls")
def service_of_the_host_by_other_names(facts: Facts) -> bool:
    """The same, by addresses that lists of addresses forget."""
    names = ("0.0.0.0", "127.1", "2130706433", "localhost")
    return inside.any_of(lambda name: _greets(facts, socket.AF_INET, (name, facts["tcp4"])), names)


@probe("walls")
def service_of_the_host_by_a_mapped_address(facts: Facts) -> bool:
    """The older protocol inside the newer one."""
    return _greets(facts, socket.AF_INET6, ("::ffff:127.0.0.1", facts["tcp4"]))


@probe("walls")
def service_of_the_host_by_an_early_packet(facts: Facts) -> bool:
    """A connection without the call for one, which a filter may look for."""
    msg_fastopen = 0x20000000
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 3, 0))
        caller.sendto(facts["mark"].encode(), msg_fastopen, ("127.0.0.1", facts["tcp4"]))
        return found(facts, caller.recv(200), "banner")


@probe("walls")
def service_with_a_name_outside_of_the_file_system(facts: Facts) -> bool:
    """Services such as the desktop's, which no file permission protects."""
    return _greets(facts, socket.AF_UNIX, "\0" + facts["abstract"])


@probe("walls")
def service_with_a_file(facts: Facts) -> bool:
    """Services such as a container engine's, which are as good as being root."""
    return _greets(facts, socket.AF_UNIX, facts["sockets"][0])


@probe("walls")
def socket_of_another_kernel(facts: Facts) -> bool:
    """Code run in another session's kernel."""
    return _greets(facts, socket.AF_UNIX, facts["sockets"][1])


@probe("walls")
def agent_that_the_environment_names(facts: Facts) -> bool:
    """Keys that an agent keeps for its user."""
    return _greets(facts, socket.AF_UNIX, os.environ.get("SSH_AUTH_SOCK") or facts["sockets"][2])


@probe("walls")
def services_of_the_system(facts: Facts) -> bool:
    """Engines and buses of the host where they usually are; nothing is said to them."""
    names = ["docker.sock", "containerd/containerd.sock", "podman/podman.sock", "dbus/system_bus_socket"]
    names += ["systemd/private", "systemd/journal/stdout", "systemd/notify", "crio/crio.sock", "snapd.socket"]

    def connects(path: str) -> bool:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)
            return True

    tops = ("/run", "/var/run", f"/run/user/{os.getuid()}")
    return inside.any_of(connects, [f"{top}/{name}" for top in tops for name in names])


@probe("walls")
def list_of_the_sockets_of_others(facts: Facts) -> bool:
    """What there is to attack."""
    return inside.any_steals(facts, ["/proc/net/unix", "/proc/thread-self/net/unix", "/proc/1/net/unix"], "abstract")


@probe("walls")
def network_of_the_host(facts: Facts) -> bool:
    """The interfaces of the host, and what is sent over them."""
    return any(name in facts["interfaces"] for _, name in socket.if_nameindex())


def _opens(family: int, kind: int, protocol: int = 0) -> bool:
    return inside.is_descriptor(inside.syscall("socket", family, kind, protocol))


@probe("walls")
def packets_below_all_protocols(facts: Facts) -> bool:
    """All packets that pass by, and packets in the name of others."""
    af_packet = 17
    return inside.any_of(lambda kind: _opens(af_packet, kind, 0x300), (2, 3))


@probe("walls")
def socket_to_the_hypervisor(facts: Facts) -> bool:
    """The machine that this machine runs on, which no network namespace hides."""
    af_vsock = 40
    return inside.any_of(lambda kind: _opens(af_vsock, kind), (1, 2))


@probe("walls")
def socket_past_a_filter_of_all_bits(facts: Facts) -> bool:
    """The same, with a bit set that the system drops, and a careless filter compares."""
    af_vsock = 40
    return _opens(af_vsock | 1 << 32, 1)


@probe("walls")
def sockets_of_rare_families(facts: Facts) -> bool:
    """Parts of the kernel that are seldom used, and have often had mistakes."""
    families = (3, 4, 5, 9, 21, 29, 30, 31, 33, 35, 37, 38, 39, 41, 42, 43, 44, 45)
    kinds = ((1, 0), (2, 0), (3, 1), (5, 0))
    return inside.any_of(lambda one: _opens(*one), [(family, *kind) for family in families for kind in kinds])


@probe("walls")
def messages_from_the_kernel_to_administrators(facts: Facts) -> bool:
    """Audit records, the starts of processes, devices: what the kernel tells over netlink beside routes."""
    return inside.any_of(lambda p: _opens(16, 3, p), (4, 5, 9, 11, 12, 15, 16))


# --- Memory and messages that are shared by number or name


@probe("walls")
def shared_memory_by_number(facts: Facts) -> bool:
    """What other programs of the user share."""
    numbers = [facts["shared_memory"]] if facts["shared_memory"] is not None else []
    numbers += [int(line.split()[1]) for line in inside.read("/proc/sysvipc/shm").decode().splitlines()[1:]]

    def attaches(number: int) -> bool:
        libc = inside.libc()
        libc.shmat.restype = ctypes.c_void_p
        address = libc.shmat(number, None, 0o10000)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            return found(facts, ctypes.string_at(address, 200), "shared")
        finally:
            libc.shmdt(ctypes.c_void_p(address))

    return inside.any_of(attaches, numbers)


@probe("walls")
def message_in_a_queue(facts: Facts) -> bool:
    """What other programs of the user send each other."""
    queue = inside.call("mq_open", facts["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK)
    buffer = ctypes.create_string_buffer(1 << 16)
    try:
        inside.call("mq_receive", queue, buffer, len(buffer), None)
        return found(facts, buffer.raw, "message")
    finally:
        os.close(queue)


@probe("walls")
def shared_memory_by_name(facts: Facts) -> bool:
    """The same, where it is a file."""
    return inside.steals(facts, facts["files"]["shm"])


@probe("walls")
def shared_memory_of_the_host_written_to(facts: Facts) -> bool:
    """Shared memory in the name of others."""
    with open(f"/dev/shm/{facts['mark']}", "w") as file:
        file.write(facts["mark"])
    return False


@probe("walls")
def temporary_file_of_the_host(facts: Facts) -> bool:
    """What other programs leave in /tmp: uploads, sockets, keys."""
    return inside.steals(facts, facts["files"]["tmp"])


@probe("walls")
def temporary_file_that_is_kept(facts: Facts) -> bool:
    """The same in /var/tmp, which is easily forgotten."""
    return inside.steals(facts, facts["files"]["vartmp"])


@probe("walls")
def temporary_directories_of_the_host_written_to(facts: Facts) -> bool:
    """Files that other programs may trust."""
    for top in ("/tmp", "/var/tmp", "/run", tempfile.gettempdir()):
        try:
            with open(f"{top}/{facts['mark']}", "w") as file:
                file.write(facts["mark"])
        except OSError:
            continue
    return False


# --- Files of the system


@probe("walls")
def home_of_the_administrator(facts: Facts) -> bool:
    """Keys and configuration of root, and of whoever runs the tests."""

    def shows(path: str) -> bool:
        seen = os.stat(path)
        return facts["homes"][path] == [seen.st_dev, seen.st_ino] and bool(os.listdir(path))

    return inside.any_of(shows, facts["homes"])


@probe("walls")
def passwords_of_the_host(facts: Facts) -> bool:
    """The hashes of all passwords."""
    return inside.any_of(
        lambda path: re.search(rb"^root:", inside.read(path), re.MULTILINE) is not None,
        ("/etc/shadow", "/etc/shadow-", "/etc/gshadow"),
    )


@probe("walls")
def keys_of_the_host(facts: Facts) -> bool:
    """The keys by which the host is known, and configuration that only root may read."""
    names = ("ssh/ssh_host_ed25519_key", "ssh/ssh_host_rsa_key", "sudoers", "ssl/private", "krb5.keytab")

    def is_there(path: str) -> bool:
        return bool(os.listdir(path) if os.path.isdir(path) else inside.read(path))

    return inside.any_of(lambda name: is_there(f"/etc/{name}"), names)


@probe("walls")
def devices_and_drivers(facts: Facts) -> bool:
    """What the hardware is, and switches of the kernel's."""
    return bool(os.listdir("/sys/kernel"))


@probe("walls")
def disk_by_its_node(facts: Facts) -> bool:
    """The disk of the host below its file system, so that no permission counts."""
    return inside.any_of(lambda one: bool(inside.read(f"/dev/{one[0]}")), facts["block_devices"])


@probe("walls")
def memory_of_the_machine(facts: Facts) -> bool:
    """All that the machine knows."""
    paths = ("/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore")
    return inside.any_of(lambda path: bool(inside.read(path)), paths)


@probe("walls")
def log_of_the_kernel(facts: Facts) -> bool:
    """Addresses in the kernel, devices, and what other programs crashed on."""
    return re.match(rb"\d+,\d+,\d+", inside.read("/dev/kmsg")) is not None


@probe("walls")
def log_of_the_kernel_by_a_call(facts: Facts) -> bool:
    """The same, where no file of it is in sight."""
    syslog_action_read_all = 3
    buffer = ctypes.create_string_buffer(1 << 16)
    return inside.call("klogctl", syslog_action_read_all, buffer, len(buffer)) > 0


@probe("walls")
def addresses_in_the_kernel(facts: Facts) -> bool:
    """Where to aim, for whoever has a mistake in the kernel to use."""
    return re.search(rb"^(?!0+ )[0-9a-f]{16} ", inside.read("/proc/kallsyms"), re.MULTILINE) is not None


def _lets_write(facts: Facts, directory: str) -> bool:
    """Whether a directory of the host can be written to: a file without a name shows it, and leaves nothing."""
    descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        return bool(facts["devices"][directory] == os.fstat(descriptor).st_dev)
    finally:
        os.close(descriptor)


@probe("walls")
def system_written_to(facts: Facts) -> bool:
    """Programs of the host replaced."""
    known = [path for path in facts["devices"] if path.startswith(("/usr", "/etc", "/opt", "/var"))]
    return inside.any_of(lambda path: _lets_write(facts, path), known)


@probe("walls")
def environment_of_python_written_to(facts: Facts) -> bool:
    """Modules that the server and every other kernel import."""
    return inside.any_of(lambda path: _lets_write(facts, path), facts["devices"])


@probe("walls")
def module_of_python_opened_for_writing(facts: Facts) -> bool:
    """The same, in a file that is there. Nothing is written."""
    known = [os.__file__, shutil.__file__, *(m.__file__ for m in [sys.modules.get("ipykernel")] if m and m.__file__)]
    return inside.any_of(lambda path: inside.is_descriptor(os.open(os.path.realpath(path), os.O_WRONLY)), known)


@probe("walls")
def copy_of_the_environment_of_python_written_to(facts: Facts) -> bool:
    """The same, with a planted copy that belongs to the server's user."""
    with open(facts["python_copy"], "a") as file:
        file.write(f"# {facts['mark']}\n")
    return False


# --- Privileges


@probe("walls")
def capabilities(facts: Facts) -> bool:
    """Parts of what root may do."""
    return any(int(inside.status_of("self", f"Cap{which}"), 16) for which in ("Prm", "Eff", "Inh", "Amb"))


def _gains(command: list[str]) -> bool:
    """Whether a program that is started as it is has more rights than who started it."""

    def rights(pid: int | str) -> tuple[str, int]:
        return inside.status_of(pid, "Uid").split()[1], int(inside.status_of(pid, "CapEff"), 16)

    user, held = rights("self")
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def has_more() -> bool:
        if started.poll() is not None:
            return False
        now, has = rights(started.pid)
        return now != user or bool(has & ~held)

    try:
        return inside.wait_for(has_more, 0.7)
    finally:
        with contextlib.suppress(PermissionError):  # it is another user's by now, and ends for lack of input
            started.kill()
        assert started.stdin is not None
        started.stdin.close()
        started.wait()


@probe("walls")
def privileges_by_a_program_in_the_own_directory(facts: Facts) -> bool:
    """Root, by a program that was left in the work directory."""
    name = facts["set_user_program"]
    return bool(name) and _gains([os.path.abspath(name), "3"])


@probe("walls")
def privileges_by_programs_of_the_system(facts: Facts) -> bool:
    """Root, by programs that are root for whoever starts them, and any mistake in them."""
    known = ((name, shutil.which(name)) for name in ("su", "passwd", "chsh", "newgrp", "sudo", "pkexec"))
    commands = [[path] for _, path in known if path and os.stat(path).st_mode & stat.S_ISUID]
    return inside.any_of(_gains, commands)


@probe("walls")
def another_user_in_the_own_place(facts: Facts) -> bool:
    """The rights of any other user."""

    def change() -> bool:
        other = 12345 if os.getuid() == 0 else 0
        os.setuid(other)
        return os.getuid() == other

    return inside.in_child(change)


@probe("walls")
def user_of_the_own_group(facts: Facts) -> bool:
    """Rights that groups give, such as that of a container engine's."""

    def join() -> bool:
        group = os.getgid() + 1
        os.setgroups([group])
        return group in os.getgroups()

    return inside.in_child(join)


# --- Namespaces and mounts


def _is_elsewhere(kind: str, before: str) -> bool:
    return os.readlink(f"/proc/self/ns/{kind}") != before


def _user_namespace_by(flags: int, make: Callable[[int], int]) -> bool:
    """Whether a child that a raw call makes is in a new user namespace."""
    before = os.readlink("/proc/self/ns/user")

    def try_it() -> bool:
        pid = make(flags)
        if pid == 0:
            # Not a Python child: between here and the end there is nothing that may wait for another thread.
            os._exit(17 if _is_elsewhere("user", before) else 16)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status) == 17

    return inside.in_child(try_it)


@probe("walls")
def user_namespace_by_unshare(facts: Facts) -> bool:
    """All capabilities over namespaces of one's own, and with them most of the kernel's weak spots."""
    before = os.readlink("/proc/self/ns/user")

    def unshare() -> bool:
        inside.call("unshare", _CLONE_NEWUSER)
        return _is_elsewhere("user", before)

    return inside.in_child(unshare)


@probe("walls")
def user_namespace_by_clone(facts: Facts) -> bool:
    """The same, with a new process."""
    flags = _CLONE_NEWUSER | signal.SIGCHLD
    return _user_namespace_by(flags, lambda flags: inside.syscall("clone", flags, None, None, None, None))


@probe("walls")
def user_namespace_by_clone_past_a_filter_of_all_bits(facts: Facts) -> bool:
    """The same, with a bit set that the system drops, and a careless filter compares."""
    flags = _CLONE_NEWUSER | signal.SIGCHLD | 1 << 40
    return _user_namespace_by(flags, lambda flags: inside.syscall("clone", flags, None, None, None, None))


@probe("walls")
def user_namespace_by_clone3(facts: Facts) -> bool:
    """The same, by the call whose flags no filter can see."""
    flags, exit_signal = 0, 4

    def make(asked: int) -> int:
        arguments = [0] * 11
        arguments[flags], arguments[exit_signal] = asked, signal.SIGCHLD
        return inside.syscall("clone3", struct.pack("=11Q", *arguments), 88)

    return _user_namespace_by(_CLONE_NEWUSER, make)


@probe("walls")
def user_namespace_by_a_program(facts: Facts) -> bool:
    """The same, by a program of the system's."""
    before = os.readlink("/proc/self/ns/user").encode()
    said = inside.output("unshare", "--user", "readlink", "/proc/self/ns/user").strip()
    return said.startswith(b"user:") and said != before


@probe("walls")
def other_namespaces_by_unshare(facts: Facts) -> bool:
    """Namespaces for which one has to be root already."""
    kinds = {"mnt": _CLONE_NEWNS, "net": _CLONE_NEWNET, "uts": 0x4000000, "ipc": 0x8000000, "cgroup": 0x2000000}

    def unshare(kind: str, flag: int) -> bool:
        before = os.readlink(f"/proc/self/ns/{kind}")
        inside.call("unshare", flag)
        return _is_elsewhere(kind, before)

    return inside.any_of(lambda one: inside.in_child(lambda: unshare(*one)), kinds.items())


@probe("walls")
def namespaces_of_others_joined(facts: Facts) -> bool:
    """The world as the server sees it."""

    def join(pid: int, kind: str) -> bool:
        before = os.readlink(f"/proc/self/ns/{kind}")
        if os.readlink(f"/proc/{pid}/ns/{kind}") == before:
            return False
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        inside.call("setns", descriptor, 0)
        return _is_elsewhere(kind, before)

    pairs = [(pid, kind) for pid in inside.servers(facts) for kind in ("user", "mnt", "net", "ipc", "pid_for_children")]
    return inside.any_of(lambda one: inside.in_child(lambda: join(*one)), pairs)


def _mounted(mount: Callable[[bytes], object]) -> bool:
    """Whether something is mounted on a directory of ours; it goes away again."""
    place = tempfile.mkdtemp(prefix="mount-", dir=".")
    try:
        mount(os.path.abspath(place).encode())
        shown = os.stat(place).st_dev != os.stat(".").st_dev
        inside.call("umount2", place.encode(), 2)
        return shown
    finally:
        os.rmdir(place)


@probe("walls")
def mount_in_the_own_directory(facts: Facts) -> bool:
    """The files that are seen, changed for all in the namespace."""
    return inside.in_child(lambda: _mounted(lambda place: inside.call("mount", b"none", place, b"tmpfs", 0, None)))


@probe("walls")
def mount_by_the_newer_calls(facts: Facts) -> bool:
    """The same, by calls that older filters do not know."""

    def mount(place: bytes) -> None:
        context = inside.syscall("fsopen", b"tmpfs", 0)
        fsconfig_cmd_create, move_mount_f_empty_path = 6, 4
        inside.syscall("fsconfig", context, fsconfig_cmd_create, None, None, 0)
        made = inside.syscall("fsmount", context, 0, 0)
        inside.syscall("move_mount", made, b"", -100, place, move_mount_f_empty_path)

    return inside.in_child(lambda: _mounted(mount))


@probe("walls")
def copy_of_the_tree_of_mounts(facts: Facts) -> bool:
    """The tree without what covers parts of it."""
    open_tree_clone, at_recursive = 1, 0x8000
    return inside.is_descriptor(inside.syscall("open_tree", -100, b"/", open_tree_clone | at_recursive))


@probe("walls")
def mount_in_namespaces_of_the_own(facts: Facts) -> bool:
    """The same, as the root of one's own namespaces."""

    def mounts() -> bool:
        inside.call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        return _mounted(lambda place: inside.call("mount", b"none", place, b"tmpfs", 0, None))

    return inside.in_child(mounts)


@probe("walls")
def read_only_mount_made_writable(facts: Facts) -> bool:
    """The system's files, when only the mount protects them."""
    ms_remount, ms_bind = 32, 4096

    def remount() -> bool:
        for place in (sys.prefix, "/usr", "/"):
            try:
                inside.call("mount", b"none", place.encode(), None, ms_remount | ms_bind, None)
            except OSError as error:
                refusal = error
                continue
            return os.statvfs(place).f_flag & os.ST_RDONLY == 0
        raise refusal

    return inside.in_child(remount)


@probe("walls")
def private_directory_unmounted(facts: Facts) -> bool:
    """What it was mounted over."""

    def unmount() -> bool:
        for place in (b"/tmp", b"/dev/shm", b"/dev", b"/proc"):
            try:
                inside.call("umount2", place, 2)
            except OSError as error:
                refusal = error
                continue
            return True
        raise refusal

    def as_root_of_the_own() -> bool:
        inside.call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        return unmount() and inside.any_steals(facts, [facts["files"]["tmp"]])

    return inside.in_child(as_root_of_the_own)


# --- Calls into parts of the kernel that are seldom needed and often wrong


@probe("walls")
def counters_of_the_processor(facts: Facts) -> bool:
    """What other programs do, by their effect on the processor; and mistakes in a large part of the kernel."""
    kind, size, config, flags = 1, 112, 1, 0b1100001  # software, the task's clock; disabled, kernel excluded
    attributes = struct.pack("=IIQQQQQ", kind, size, config, 0, 0, 0, flags).ljust(size, b"\0")
    return inside.is_descriptor(inside.syscall("perf_event_open", attributes, 0, -1, -1, 0))


@probe("walls")
def faults_of_memory_served_by_the_program(facts: Facts) -> bool:
    """The kernel made to wait in the middle of its work, which many attacks on it need."""
    return inside.is_descriptor(inside.syscall("userfaultfd", os.O_CLOEXEC))


@probe("walls")
def faults_of_memory_for_user_code_only(facts: Facts) -> bool:
    """The same, in the harmless kind that everybody may use; that does not belong into a kernel either."""
    uffd_user_mode_only = 1
    return inside.is_descriptor(inside.syscall("userfaultfd", os.O_CLOEXEC | uffd_user_mode_only))


@probe("walls")
def calls_by_a_ring(facts: Facts) -> bool:
    """Calls that no filter sees, and mistakes in a large part of the kernel."""
    return inside.is_descriptor(inside.syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)))


@probe("walls")
def program_in_the_kernel(facts: Facts) -> bool:
    """Code in the kernel itself."""
    map_create = struct.pack("=IIII", 2, 4, 8, 1).ljust(72, b"\0")
    return inside.is_descriptor(inside.syscall("bpf", 0, map_create, len(map_create)))


@probe("walls")
def watch_on_all_files(facts: Facts) -> bool:
    """What everybody else opens."""
    return inside.is_descriptor(inside.syscall("fanotify_init", 0, os.O_RDONLY))


_KEYCTL_READ, _KEYCTL_SEARCH, _KEYCTL_LINK = 11, 10, 8
_KEYRINGS = {"thread": -1, "process": -2, "session": -3, "user": -4, "user session": -5}


def _has_key(facts: Facts, number: int) -> bool:
    buffer = ctypes.create_string_buffer(200)
    inside.syscall("keyctl", _KEYCTL_READ, number, buffer, len(buffer), 0)
    return found(facts, buffer.raw, "key")


@probe("walls")
def keys_that_were_inherited(facts: Facts) -> bool:
    """Keys of the server's user, which no namespace hides: file systems' and tickets."""
    if facts["key"] is None:
        return False
    name = facts["key"].encode()

    def search(ring: int) -> bool:
        return _has_key(facts, inside.syscall("keyctl", _KEYCTL_SEARCH, ring, b"user", name, 0))

    def ask() -> bool:
        return _has_key(facts, inside.syscall("request_key", b"user", name, None, 0))

    return inside.any_way(lambda: inside.any_of(search, _KEYRINGS.values()), ask)


@probe("walls")
def keys_of_the_own(facts: Facts) -> bool:
    """A place to leave data for later kernels, and a part of the kernel that has had many mistakes."""
    secret = facts["mark"].encode()

    def keeps() -> bool:
        number = inside.syscall("add_key", b"user", b"probe", secret, len(secret), _KEYRINGS["process"])
        buffer = ctypes.create_string_buffer(200)
        inside.syscall("keyctl", _KEYCTL_READ, number, buffer, len(buffer), 0)
        return bool(buffer.value == secret)

    return inside.in_child(keeps)


@probe("walls")
def name_of_the_host(facts: Facts) -> bool:
    """Another name for the host; it is set to what it is."""
    name = socket.gethostname().encode()
    inside.call("sethostname", name, len(name))
    return bool(facts["uts"] == os.readlink("/proc/self/ns/uts"))


# --- Calls past a filter


def _machine_code(code: bytes) -> Callable[..., int]:
    """Return machine code as a function."""
    import mmap

    memory = mmap.mmap(-1, _PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 4)(
        ctypes.addressof(ctypes.c_char.from_buffer(memory))
    )
    _kept.append(memory)
    return function


_kept: list[object] = []


@probe("walls")
def calls_of_32_bit_programs(facts: Facts) -> bool:
    """Any call that is refused, by its other number: filters have to look at the kind of call, too."""
    if not inside.is_x86_64():
        return False
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; pop rbx; cdqe; ret
    code = bytes.fromhex("53 89f8 89f3 89d1 31d2 cd80 5b 4898 c3")
    i386_socket, i386_unshare, i386_getpid = 359, 310, 20

    def asks() -> bool:
        call = _machine_code(code)
        if call(i386_getpid, 0, 0, 0) != os.getpid():
            return False
        af_vsock, stream = 40, 1
        opened = call(i386_socket, af_vsock, stream, 0)
        if opened >= 0:
            return inside.is_descriptor(opened)
        return call(i386_unshare, _CLONE_NEWUSER, 0, 0) == 0

    return inside.in_child(asks)


@probe("walls")
def calls_of_the_x32_abi(facts: Facts) -> bool:
    """The same, by numbers with a bit set that means yet another kind of program."""
    if not inside.is_x86_64():
        return False
    x32, socket_number, af_vsock, stream = 0x40000000, 41, 40, 1

    def asks() -> bool:
        return inside.is_descriptor(inside.call("syscall", x32 | socket_number, af_vsock, stream, 0))

    return inside.in_child(asks)
