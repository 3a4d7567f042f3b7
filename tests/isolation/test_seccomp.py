"""The filters of system calls: what the shipped bytes answer, and what they do to real programs."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from jupyter_exec_ext.isolation.common import isolation_support, seccomp
from tests.support.outside_parts import require_part

from . import bpf

ROOT = Path(__file__).parent.parent.parent
MODULE = Path(seccomp.__file__)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OTHER_ARCHITECTURES = [0x40000003, 0x40000028, 0xC0000015, 0, 0xFFFFFFFF]  # i386, arm, ppc64le
HIGH = 1 << 32
ANSWERS = {
    0x7FFF0000: "allowed",
    0x80000000: "killed",
    0x50001: "EPERM",
    0x5000D: "EACCES",
    0x50026: "ENOSYS",
    0x5005D: "EPROTONOSUPPORT",
    0x5005E: "ESOCKTNOSUPPORT",
    0x5005F: "EOPNOTSUPP",
    0x50061: "EAFNOSUPPORT",
}


def words(text: str) -> list[str]:
    return text.split()


# Refused on every machine, whatever the arguments.
REFUSED = words("""
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp move_pages migrate_pages
    add_key request_key keyctl bpf perf_event_open userfaultfd memfd_secret fanotify_init
    io_uring_setup io_uring_enter io_uring_register
    mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr
    statmount listmount name_to_handle_at open_by_handle_at setns unshare listns lsm_set_self_attr
    kexec_load kexec_file_load reboot init_module finit_module delete_module swapon swapoff quotactl quotactl_fd acct
    syslog settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname vhangup lookup_dcookie nfsservctl
""")
REFUSED_ON_X86_64 = words("""
    modify_ldt iopl ioperm create_module query_module get_kernel_syms _sysctl sysfs uselib ustat
""")
NOT_THERE = ["clone3", "openat2"]
# Without namespaces, these would reach other processes.
REFUSED_WITHOUT_NAMESPACES = words("""
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink inotify_add_watch
""")
NOT_SUPPORTED_WITHOUT_NAMESPACES = words("""
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
""")
ARGUMENTS_DECIDE = words("""
    clone personality ioctl socket socketpair open openat creat chmod fchmod fchmodat fchmodat2 mknod mknodat
""")
TURNS = ["sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"]
ARGUMENTS_DECIDE_WITHOUT_NAMESPACES = ["sendto", "prlimit64", "setpriority", "ioprio_set", *TURNS]

# Calls that ordinary programs make, with their numbers on x86_64 and aarch64.
ORDINARY = """
    read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214,
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, ioctl 16 29, readv 19 65, writev 20 66,
    sched_yield 24 124, mremap 25 216, madvise 28 233, dup 32 23, getpid 39 172, sendfile 40 71, accept 43 202,
    recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, bind 49 200, listen 50 201, getsockname 51 204,
    setsockopt 54 208, getsockopt 55 209, clone 56 220, execve 59 221, exit 60 93, wait4 61 260, kill 62 129,
    uname 63 160, fcntl 72 25, flock 73 32, fsync 74 82, ftruncate 77 46, getcwd 79 17, chdir 80 49, fchmod 91 52,
    sigaltstack 131 132, personality 135 92, prctl 157 167, gettid 186 178, futex 202 98, sched_setaffinity 203 122,
    sched_getaffinity 204 123, getdents64 217 61, set_tid_address 218 96, clock_gettime 228 113,
    clock_nanosleep 230 115, exit_group 231 94, epoll_ctl 233 21, tgkill 234 131, mbind 237 235,
    set_mempolicy 238 237, get_mempolicy 239 236, waitid 247 95, inotify_init1 294 26, openat 257 56, mkdirat 258 34,
    newfstatat 262 79, unlinkat 263 35, readlinkat 267 78, fchmodat 268 53, pselect6 270 72, ppoll 271 73,
    set_robust_list 273 99, splice 275 76, utimensat 280 88, epoll_pwait 281 22, timerfd_create 283 85,
    fallocate 285 47, accept4 288 242, eventfd2 290 19, epoll_create1 291 20, dup3 292 24, pipe2 293 59,
    prlimit64 302 261, sendmmsg 307 269, getcpu 309 168, renameat2 316 276, seccomp 317 277, getrandom 318 278,
    memfd_create 319 279, execveat 322 281, membarrier 324 283, copy_file_range 326 285, pkey_alloc 330 289,
    statx 332 291, rseq 334 293, pidfd_send_signal 424 424, pidfd_open 434 434, close_range 436 436,
    faccessat2 439 439, landlock_create_ruleset 444 444, landlock_add_rule 445 445, landlock_restrict_self 446 446,
    futex_waitv 449 449, set_mempolicy_home_node 450 450, fchmodat2 452 452, map_shadow_stack 453 453,
    futex_wait 455 455, lsm_get_self_attr 459 459, mseal 462 462, file_getattr 468 468
"""
# What only x86_64 has: the older forms, and what the kernel itself puts into programs that it traces.
ORDINARY_ON_X86_64 = """
    open 2, stat 4, poll 7, access 21, pipe 22, select 23, fork 57, vfork 58, creat 85, mkdir 83, readlink 89, chmod 90,
    mknod 133, arch_prctl 158, time 201, epoll_wait 232, uretprobe 335, uprobe 336
"""


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("make_seccomp", ROOT / "tools" / "make_seccomp.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the module
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()
NUMBERS = {
    machine: {name: both[column] for name, both in GENERATOR.NUMBERS.items() if both[column] is not None}
    for column, machine in enumerate(isolation_support.MACHINES)
}


class Filter:
    """One shipped file, to ask what it answers."""

    def __init__(self, profile: str, machine: str) -> None:
        self.profile = profile
        self.machine = machine
        self.numbers: dict[str, int] = NUMBERS[machine]
        self.program = isolation_support.filter_path(profile, machine).read_bytes()

    def of_number(self, number: int, *arguments: int, architecture: int | None = None) -> str:
        architecture = ARCHITECTURES[self.machine] if architecture is None else architecture
        return ANSWERS[bpf.answer(self.program, architecture, number, arguments)]

    def __call__(self, name: str, *arguments: int) -> str:
        return self.of_number(self.numbers[name], *arguments)


@pytest.fixture(params=list(itertools.product(isolation_support.PROFILES, isolation_support.MACHINES)), ids="-".join)
def answer(request: pytest.FixtureRequest) -> Filter:
    return Filter(*request.param)


@pytest.fixture(params=isolation_support.MACHINES)
def sandbox(request: pytest.FixtureRequest) -> Filter:
    return Filter("sandbox", request.param)


@pytest.fixture(params=isolation_support.MACHINES)
def landlock(request: pytest.FixtureRequest) -> Filter:
    return Filter("landlock", request.param)


# --- the files


def test_the_files_are_what_the_generator_makes() -> None:
    command = [sys.executable, "tools/make_seccomp.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kernel_would_take_them(answer: Filter) -> None:
    assert bpf.complaints(answer.program) == []


def test_a_call_costs_few_instructions(answer: Filter) -> None:
    steps = len(bpf.instructions(answer.program))
    assert steps < 512
    assert len(answer.program) == steps * 8


HEADERS = {
    "x86_64": ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
    "aarch64": ["/usr/include/asm-generic/unistd.h"],
}


@pytest.mark.parametrize("machine", isolation_support.MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = next((path for path in map(Path, HEADERS[machine]) if path.exists()), None)
    if header is None:
        require_part("kernel headers")
        pytest.skip(f"the headers here are not those of {machine}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    known = {name: int(number) for name, number in found if name not in ("syscalls", "arch_specific_syscall")}
    ours = {**NUMBERS[machine], **ordinary(machine)}
    in_both = ours.keys() & known.keys()
    assert {name: ours[name] for name in in_both} == {name: known[name] for name in in_both}
    assert len(in_both) > 150
    # The generic header also has what only other architectures, and 32-bit ones, use; newer ones have newer calls.
    elsewhere = range(244, 424) if machine == "aarch64" else range(0)
    assigned = [range(first, last + 1) for first, last in GENERATOR.ASSIGNED[machine]]
    for name, number in known.items():
        assert number in elsewhere or number >= assigned[-1].stop or any(number in one for one in assigned), name


def ordinary(machine: str) -> dict[str, int]:
    rows = [row.split() for row in ORDINARY.split(",")]
    numbers = {name: int(both[isolation_support.MACHINES.index(machine)]) for name, *both in rows}
    if machine == "x86_64":
        numbers.update({name: int(number) for name, number in (row.split() for row in ORDINARY_ON_X86_64.split(","))})
    return numbers


# --- what is allowed and what is not


def test_what_ordinary_programs_call_is_allowed(answer: Filter) -> None:
    answers = {name: answer.of_number(number) for name, number in ordinary(answer.machine).items()}
    assert answers == dict.fromkeys(answers, "allowed")
    assert len(answers) > 100


@pytest.mark.parametrize("arguments", [(0,) * 6, (-1,) * 6], ids=["zeros", "ones"])
def test_refused_calls_are_refused_whatever_their_arguments(answer: Filter, arguments: tuple[int, ...]) -> None:
    names = REFUSED + (REFUSED_ON_X86_64 if answer.machine == "x86_64" else [])
    if answer.profile == "landlock":
        names = names + REFUSED_WITHOUT_NAMESPACES
    answers = {name: answer(name, *arguments) for name in names}
    assert answers == dict.fromkeys(names, "EPERM")


def test_without_namespaces_the_attributes_of_files_stay_as_they_are(landlock: Filter) -> None:
    answers = {name: landlock(name, *[-1] * 6) for name in NOT_SUPPORTED_WITHOUT_NAMESPACES}
    assert answers == dict.fromkeys(answers, "EOPNOTSUPP")


def test_what_an_architecture_does_not_have_has_no_number() -> None:
    assert not set(REFUSED_ON_X86_64) & NUMBERS["aarch64"].keys()


def test_calls_whose_arguments_are_in_memory_are_said_not_to_be_there(answer: Filter) -> None:
    for name in NOT_THERE:
        assert answer(name) == "ENOSYS", name


def test_everything_else_with_a_number_is_allowed(answer: Filter) -> None:
    special = {*REFUSED, *REFUSED_ON_X86_64, *NOT_THERE, *ARGUMENTS_DECIDE}
    if answer.profile == "landlock":
        special |= {*REFUSED_WITHOUT_NAMESPACES, *ARGUMENTS_DECIDE_WITHOUT_NAMESPACES, "connect"}
        special |= {*NOT_SUPPORTED_WITHOUT_NAMESPACES}
    numbers = {answer.numbers[name] for name in special if name in answer.numbers}
    for first, last in GENERATOR.ASSIGNED[answer.machine]:
        for number in set(range(first, last + 1)) - numbers:
            for argument in (0, -1, 0x5412, 0o4100):  # what rules for other calls refuse
                assert answer.of_number(number, *[argument] * 6) == "allowed", number


def test_numbers_without_a_meaning_are_said_not_to_be_there(answer: Filter) -> None:
    gap = range(337, 424) if answer.machine == "x86_64" else [*range(244, 260), *range(295, 424)]
    for number in [*gap, *range(471, 1100), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]:
        assert answer.of_number(number) == "ENOSYS", number


@pytest.mark.parametrize("profile", isolation_support.PROFILES)
def test_the_x32_abi_is_said_not_to_be_there(profile: str) -> None:
    answer = Filter(profile, "x86_64")
    for number in range(1024):
        assert answer.of_number(0x40000000 | number) == "ENOSYS", number
        assert answer.of_number(0xC0000000 | number) == "ENOSYS", number


def test_another_architecture_ends_the_process(answer: Filter) -> None:
    others = [*OTHER_ARCHITECTURES, *(set(ARCHITECTURES.values()) - {ARCHITECTURES[answer.machine]})]
    for architecture, number in itertools.product(others, [0, 11, 101, 0x40000000]):
        assert answer.of_number(number, architecture=architecture) == "killed"


# --- arguments at their limits


NAMESPACE_FLAGS = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
THREAD_FLAGS = 0x3D0F00  # what the C library starts a thread with
FORK_FLAGS = 0x1200011


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF * HIGH], ids=["plain", "one high bit", "all high bits"])
def test_no_process_gets_a_new_namespace(answer: Filter, high: int) -> None:
    for ordinary_flags in (THREAD_FLAGS, FORK_FLAGS, 17, 0x4111):
        assert answer("clone", ordinary_flags | high) == "allowed"
        for flag in NAMESPACE_FLAGS:
            assert answer("clone", ordinary_flags | flag | high) == "EPERM", hex(flag)


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF * HIGH], ids=["plain", "one high bit", "all high bits"])
def test_nobody_types_into_a_terminal(answer: Filter, high: int) -> None:
    for request in (0x5412, 0x541C, 0x5423):
        assert answer("ioctl", 0, request | high, 1) == "EPERM", hex(request)
    for request in (0x5401, 0x5411, 0x5413, 0x541B, 0x5421, 0x5422, 0x5424):
        assert answer("ioctl", 0, request | high, 1) == "allowed", hex(request)
    assert answer("ioctl", 0x5412, 0x5401, 0x5412) == "allowed"


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF * HIGH], ids=["plain", "one high bit", "all high bits"])
def test_the_personality_stays_as_it_is(answer: Filter, high: int) -> None:
    for value in (0, 0xFFFFFFFF):
        assert answer("personality", value | high) == "allowed"
    for value in (0x8, 0x40000, 0x400000, 0x20000, 0xFFFFFFFE):
        assert answer("personality", value | high) == "EPERM", hex(value)


STREAM, DGRAM, RAW, SEQPACKET, DCCP, PACKET = 1, 2, 3, 5, 6, 10
TYPE_FLAGS = [0, 0x10, 0o4000, 0o2000000, 0o2004000]  # none, one without a meaning, and those that there are


@pytest.mark.parametrize("call", ["socket", "socketpair"])
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF * HIGH], ids=["plain", "one high bit", "all high bits"])
def test_sockets_are_of_the_usual_kinds(sandbox: Filter, call: str, high: int) -> None:
    for flags in TYPE_FLAGS:
        for kind in (STREAM, DGRAM, SEQPACKET):
            assert sandbox(call, 1 | high, kind | flags | high, high) == "allowed"
        for family, kind, protocol in itertools.product((2, 10), (STREAM, DGRAM), (0, 1, 6, 17, 58)):
            assert sandbox(call, family | high, kind | flags | high, protocol | high) == "allowed"
        for family, kind in itertools.product((2, 10), (0, RAW, 4, SEQPACKET, DCCP, PACKET, 15)):
            assert sandbox(call, family | high, kind | flags | high, high) == "ESOCKTNOSUPPORT"
        for family, kind, protocol in itertools.product((2, 10), (STREAM, DGRAM), (2, 33, 115, 132, 136, 255, 262)):
            assert sandbox(call, family | high, kind | flags | high, protocol | high) == "EPROTONOSUPPORT"
        assert sandbox(call, 16 | high, RAW | flags, high) == "allowed"
        for protocol in (*range(1, 24), 0xFFFFFFFF):
            assert sandbox(call, 16 | high, RAW | flags, protocol | high) == "EAFNOSUPPORT"
        for family in {*range(64), 0xFFFFFFFF} - {1, 2, 10, 16}:
            assert sandbox(call, family | high, STREAM | flags) == "EAFNOSUPPORT", family


@pytest.mark.parametrize("call", ["socket", "socketpair"])
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF * HIGH], ids=["plain", "one high bit", "all high bits"])
def test_without_namespaces_there_are_only_sockets_that_reach_nobody(landlock: Filter, call: str, high: int) -> None:
    for flags in TYPE_FLAGS:
        for kind in (STREAM, SEQPACKET):
            assert landlock(call, 1 | high, kind | flags | high) == "allowed"
        for kind in {*range(16)} - {STREAM, SEQPACKET}:
            assert landlock(call, 1 | high, kind | flags | high) == "EACCES", kind
        for family in {*range(64), 0xFFFFFFFF} - {1, 16}:
            assert landlock(call, family | high, STREAM | flags) == "EAFNOSUPPORT", family
        assert landlock(call, 16 | high, RAW | flags) == "EOPNOTSUPP"  # see the generator


def test_without_namespaces_nothing_is_connected_or_addressed(landlock: Filter) -> None:
    assert landlock("connect") == landlock("connect", *[-1] * 6) == "EACCES"
    assert landlock("sendto", 3, -1, -1, -1, 0, -1) == "allowed"
    for address in (1, 0x7FFF0000, 0xFFFFFFFF, HIGH, 0x7FFF * HIGH, -1):
        assert landlock("sendto", 3, -1, 1, 0, address, 0) == "EACCES", hex(address)


def test_without_namespaces_the_limits_of_others_are_theirs(landlock: Filter) -> None:
    for pid in (0, HIGH):
        assert landlock("prlimit64", pid, 7, 0x7FFF00000000, 0) == "allowed"
    for pid in (1, 4711, 0xFFFFFFFF):
        assert landlock("prlimit64", pid, 7, 0, -1) == "allowed"
        for limits in (1, 0xFFFFFFFF, HIGH, 0x7FFF * HIGH):
            assert landlock("prlimit64", pid, 7, limits, 0) == "EPERM"


@pytest.mark.parametrize("high", [0, HIGH], ids=["plain", "one high bit"])
def test_without_namespaces_the_turn_of_others_is_theirs(landlock: Filter, high: int) -> None:
    for name in TURNS:
        assert landlock(name, high, -1, -1) == "allowed", name
        for pid in (1, 4711, 0xFFFFFFFF):
            assert landlock(name, pid | high, 5, -1) == "EPERM", name
            expected = "allowed" if name == "sched_setscheduler" else "EPERM"
            assert landlock(name, pid | high, high, -1) == expected, name
    for name, process, group, user in (("setpriority", 0, 1, 2), ("ioprio_set", 1, 2, 3)):
        for kind in (process, group):
            assert landlock(name, kind | high, high, 19) == "allowed"
            assert landlock(name, kind | high, 4711 | high, 0) == "EPERM"
        assert landlock(name, user | high, 0, 0) == landlock(name, user | high, 4711, 0) == "EPERM"


def test_in_namespaces_what_they_separate_is_allowed(sandbox: Filter) -> None:
    names = REFUSED_WITHOUT_NAMESPACES + NOT_SUPPORTED_WITHOUT_NAMESPACES + ARGUMENTS_DECIDE_WITHOUT_NAMESPACES
    for name in (*names, "connect"):
        assert sandbox(name, *[-1] * 6) == "allowed", name


MODE_ARGUMENT = {"creat": 1, "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2}


@pytest.mark.parametrize("name", MODE_ARGUMENT)
def test_no_file_gets_the_set_user_id_bit(answer: Filter, name: str) -> None:
    if name not in answer.numbers:
        pytest.skip("not on this architecture")
    before = [-1] * MODE_ARGUMENT[name]
    for mode in (0, 0o644, 0o1777, 0o2755, 0o103777, 0o4000 * HIGH):
        assert answer(name, *before, mode) == "allowed", oct(mode)
    for mode in (0o4000, 0o4755, 0o6755, 0o104755, 0o7777, -1):
        assert answer(name, *before, mode) == "EPERM", oct(mode)


@pytest.mark.parametrize(("name", "flags_argument"), [("open", 1), ("openat", 2)])
def test_no_file_is_made_with_the_set_user_id_bit(answer: Filter, name: str, flags_argument: int) -> None:
    if name not in answer.numbers:
        pytest.skip("not on this architecture")
    before = [-1] * flags_argument
    for flags in (0o100, 0o1101, 0o20000000, 0o20200002, 0o100 | HIGH):
        assert answer(name, *before, flags, 0o4755) == "EPERM", oct(flags)
        assert answer(name, *before, flags, 0o2755) == "allowed"
        assert answer(name, *before, flags, 0o666) == "allowed"
    for flags in (0, 1, 2, 0o2200000, 0o100 * HIGH):  # the mode is whatever happened to be in the register
        assert answer(name, *before, flags, -1) == "allowed", oct(flags)


# --- where the files are


def test_a_filter_is_found_by_the_names_that_machines_have() -> None:
    for name, machine in [("x86_64", "x86_64"), ("AMD64", "x86_64"), ("aarch64", "aarch64"), ("arm64", "aarch64")]:
        for profile in isolation_support.PROFILES:
            path = isolation_support.filter_path(profile, name)
            assert path.name == f"{profile}-{machine}.bpf" and path.is_file()


def test_the_machine_is_this_one_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert isolation_support.filter_path() == isolation_support.filter_path("sandbox", "aarch64")


def test_an_unknown_machine_is_named() -> None:
    with pytest.raises(
        isolation_support.UnsupportedArchitectureError, match="for riscv64, only for x86_64 and"
    ) as caught:
        isolation_support.filter_path("sandbox", "riscv64")
    assert caught.value.machine == "riscv64"
    assert isinstance(caught.value, LookupError)


def test_an_unknown_profile_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="sandbox, landlock"):
        isolation_support.filter_path("none", "x86_64")


@pytest.mark.parametrize("length", [0, 7, 9, 8 * 4097])
def test_what_is_no_filter_is_not_applied(length: int) -> None:
    with pytest.raises(ValueError, match="no filter"):
        seccomp.apply(bytes(length))


# --- real programs on this machine


real = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() != "x86_64" or not seccomp.supported(),
    reason="needs Linux with filters of system calls on x86_64",
)

# How a launcher does it: the module as a file, without site-packages, and then the program.
UNDER = """
import importlib.util, os, sys
module, filter_file, *command = sys.argv[1:]
spec = importlib.util.spec_from_file_location("seccomp", module)
seccomp = importlib.util.module_from_spec(spec)
spec.loader.exec_module(seccomp)
seccomp.apply(open(filter_file, "rb").read())
os.execv(command[0], command)
"""

# Arguments of all ones make each of these calls fail harmlessly if the filter lets it through.
CALL = """
import ctypes, json, sys
syscall = ctypes.CDLL(None, use_errno=True).syscall
def call(number, *arguments):
    ctypes.set_errno(0)
    syscall(ctypes.c_long(number), *[ctypes.c_ulong(argument & 0xFFFFFFFFFFFFFFFF) for argument in arguments])
    return ctypes.get_errno()
print(json.dumps([call(*one) for one in json.loads(sys.argv[1])]))
"""

PROGRAM = """
import asyncio, concurrent.futures, multiprocessing, os, queue, resource, shutil, socket, subprocess, sys, tempfile
import threading
from pathlib import Path

def double(number):
    return 2 * number

def threads():
    results = queue.Queue()
    started = [threading.Thread(target=lambda n=n: results.put(double(n))) for n in range(8)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert sorted(results.queue) == [0, 2, 4, 6, 8, 10, 12, 14]

def processes():
    assert subprocess.run(["sh", "-c", "echo a | cat"], capture_output=True, check=True).stdout == b"a\\n"
    assert os.system("true") == 0
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(double, range(4)) == [0, 2, 4, 6]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        assert executor.submit(double, 4).result() == 8

async def loop():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()
    if NETWORK:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            writer.write(b"tcp\\n")
            assert await reader.read() == b"TCP\\n"
            writer.close()
            await writer.wait_closed()
    child = await asyncio.create_subprocess_exec("echo", "b", stdout=subprocess.PIPE)
    assert (await child.communicate())[0] == b"b\\n"
    assert await asyncio.to_thread(double, 3) == 6

def sockets():
    one, other = socket.socketpair()
    one.sendall(b"c")
    assert other.recv(1) == b"c"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        listening.listen()
        if NETWORK:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect("s")
                listening.accept()[0].close()
    if NETWORK:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to, socket.socket(type=socket.SOCK_DGRAM) as source:
            to.bind(("127.0.0.1", 0))
            source.sendto(b"d", to.getsockname())
            assert to.recv(1) == b"d"
        assert socket.if_nameindex()

def files():
    Path("a").write_text("e")
    os.chmod("a", 0o2755)
    shutil.copy2("a", "b")
    os.mkfifo("f")
    with tempfile.TemporaryFile() as file:
        file.write(b"g")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def refused():
    for attempt in (lambda: os.chmod("a", 0o4755), lambda: os.open("u", os.O_CREAT | os.O_WRONLY, 0o4755)):
        try:
            attempt()
        except PermissionError:
            continue
        raise AssertionError("a file with the set-user-ID bit was made")

if __name__ == "__main__":
    NETWORK = sys.argv[1] == "sandbox"
    threads(), processes(), asyncio.run(loop()), sockets(), files(), refused()
    print("all is well")
"""


def under(profile: str, *command: str) -> list[str]:
    """Return the command that runs another one under a filter."""
    launcher = [sys.executable, "-I", "-S", "-c", textwrap.dedent(UNDER)]
    return [*launcher, str(MODULE), str(isolation_support.filter_path(profile)), *command]


def errors_of(profile: str, calls: list[tuple[int, ...]]) -> list[str]:
    """Return what a process under the filter is answered."""
    command = under(profile, sys.executable, "-I", "-S", "-c", CALL, json.dumps(calls))
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    names = {**errno.errorcode, 0: "allowed", errno.EOPNOTSUPP: "EOPNOTSUPP"}  # which has two names
    return [names[number] for number in json.loads(done.stdout)]


@real
@pytest.mark.parametrize("profile", isolation_support.PROFILES)
def test_the_kernel_refuses_what_the_filter_refuses(profile: str) -> None:
    numbers = NUMBERS["x86_64"]
    expected = dict.fromkeys([*REFUSED, *REFUSED_ON_X86_64], "EPERM") | dict.fromkeys(NOT_THERE, "ENOSYS")
    if profile == "landlock":
        expected |= dict.fromkeys(REFUSED_WITHOUT_NAMESPACES, "EPERM") | {"connect": "EACCES"}
    answers = errors_of(profile, [(numbers[name], *[-1] * 6) for name in expected])
    assert dict(zip(expected, answers, strict=True)) == expected


@real
@pytest.mark.parametrize("profile", isolation_support.PROFILES)
def test_the_kernel_drops_the_bits_that_the_filter_drops(profile: str) -> None:
    numbers = NUMBERS["x86_64"]
    calls = {
        (numbers["ioctl"], -1, 0x5412 | HIGH, 0): "EPERM",
        (numbers["ioctl"], -1, 0x5401 | HIGH, 0): "EBADF",
        (numbers["socket"], 40 | HIGH, 1, 0): "EAFNOSUPPORT",
        (numbers["socket"], 38 | HIGH, SEQPACKET, 0): "EAFNOSUPPORT",
        (numbers["socket"], 16, RAW, 9 | HIGH): "EAFNOSUPPORT" if profile == "sandbox" else "EOPNOTSUPP",
        (numbers["socket"], 1 | HIGH, STREAM, 0): "allowed",
        (numbers["socket"], 2, STREAM, 132): "EPROTONOSUPPORT" if profile == "sandbox" else "EAFNOSUPPORT",
        (numbers["socket"], 2, DCCP, 0): "ESOCKTNOSUPPORT" if profile == "sandbox" else "EAFNOSUPPORT",
        (numbers["socket"], 1, DGRAM | HIGH, 0): "allowed" if profile == "sandbox" else "EACCES",
        (numbers["socketpair"], 1, RAW, 0, 0): "EFAULT" if profile == "sandbox" else "EACCES",
        (numbers["clone"], 0x10000000 | HIGH, 0, 0, 0, 0): "EPERM",
        (numbers["personality"], 0x40000 | HIGH): "EPERM",
        (numbers["personality"], 0xFFFFFFFF): "allowed",
        (numbers["sendto"], -1, 0, 0, 0, HIGH, 0): "EBADF" if profile == "sandbox" else "EACCES",
        (numbers["prlimit64"], os.getpid(), 7, HIGH, 0): "EFAULT" if profile == "sandbox" else "EPERM",
        (0x40000000 | numbers["ptrace"], -1, -1, -1, -1): "ENOSYS",
        (521, -1, -1, -1, -1): "ENOSYS",  # ptrace, by its number in x32
        (471, -1): "ENOSYS",
    }
    assert dict(zip(calls, errors_of(profile, list(calls)), strict=True)) == calls


@real
@pytest.mark.parametrize("profile", isolation_support.PROFILES)
def test_an_ordinary_program_runs(profile: str, short_path: Path) -> None:
    script = short_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        under(profile, sys.executable, str(script), profile), cwd=short_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr


@real
@pytest.mark.parametrize("profile", isolation_support.PROFILES)
def test_a_kernel_starts_and_answers(profile: str, short_path: Path) -> None:
    manager = KernelManager(transport="ipc", ip=str(short_path / "s"), connection_file=str(short_path / "c.json"))
    spec = manager.kernel_spec
    assert spec is not None
    spec.argv = under(profile, sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")
    manager.start_kernel(cwd=str(short_path))
    try:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        shown: list[dict[str, Any]] = []
        client.execute_interactive(
            "import os; [1 + 1, open('/proc/self/status').read().split('Seccomp:')[1].split()[0]]",
            timeout=60,
            output_hook=shown.append,
        )
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    results = [message["content"]["data"]["text/plain"] for message in shown if message["msg_type"] == "execute_result"]
    assert results == ["[2, '2']"]


@real
def test_whether_there_are_filters_can_be_asked() -> None:
    probe = "import sys; sys.path.insert(0, sys.argv[1]); import seccomp; print(seccomp.supported())"
    command = [sys.executable, "-I", "-S", "-c", probe, str(MODULE.parent)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


@real
def test_a_filter_that_the_kernel_does_not_take_is_an_error() -> None:
    probe = "import sys; sys.path.insert(0, sys.argv[1]); import seccomp; seccomp.apply(bytes(8))"
    command = [sys.executable, "-I", "-S", "-c", probe, str(MODULE.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "OSError: [Errno 22]" in done.stderr
