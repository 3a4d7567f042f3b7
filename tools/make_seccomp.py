"""Write the filters of system calls that sandboxed kernels run under.

python tools/make_seccomp.py            write jupyter_exec_ext/isolation/common/filters/
python tools/make_seccomp.py --check    exit with 1 if the files there are not up to date

A filter is a program in classic BPF that the kernel runs at each system call. It sees the architecture, the number of
the call, and the arguments as numbers; what a pointer points to is out of its sight. The assembler is below and the
numbers are written out, so that the same bytes come out wherever this is run, and can be reviewed.

Everything is allowed but what is named here: kernels run whatever people write, and a list of what is allowed would
break it with each new libc. Refused is what reaches beyond the process, what only administrators need, and parts of the
kernel that are large, seldom needed, and where mistakes have been found again and again. It is in line with the
published lists of Docker, Flatpak and systemd, which agree on most of it.

The profiles:

- ``sandbox`` is for processes in namespaces of their own (network, processes, IPC), without capabilities;
- ``landlock`` is for processes without namespaces, in containers that forbid them. There the filter has to close what a
  namespace would: the network, sockets of other processes, System V IPC, the limits and the priorities of other
  processes, attributes of files (but for the mode and times, without which much does not work), and to be told of what
  happens in directories that cannot be read.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILTERS = "jupyter_exec_ext/isolation/common/filters"

# --- What a filter answers. Numbers are those of Linux, which differ from those of other systems this may run on.

ALLOW = "allow"
KILL = "kill"
EPERM = "EPERM"
EACCES = "EACCES"
ENOSYS = "ENOSYS"
EPROTONOSUPPORT = "EPROTONOSUPPORT"
ESOCKTNOSUPPORT = "ESOCKTNOSUPPORT"
EOPNOTSUPP = "EOPNOTSUPP"
EAFNOSUPPORT = "EAFNOSUPPORT"

_ERRNO = 0x00050000
VERDICTS = {
    ALLOW: 0x7FFF0000,
    KILL: 0x80000000,  # the whole process
    EPERM: _ERRNO | 1,
    EACCES: _ERRNO | 13,
    ENOSYS: _ERRNO | 38,
    EPROTONOSUPPORT: _ERRNO | 93,
    ESOCKTNOSUPPORT: _ERRNO | 94,
    EOPNOTSUPP: _ERRNO | 95,
    EAFNOSUPPORT: _ERRNO | 97,
}

# --- The assembler.

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x05, 0x15, 0x35, 0x45
_MAX_INSTRUCTIONS = 4096
_MAX_CONDITIONAL_JUMP = 255

# struct seccomp_data, on machines that store the low half of a number first
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT_BYTES, _HIGH_HALF = 0, 4, 16, 8, 4


@dataclass(frozen=True)
class Instruction:
    """One instruction; `to` is the label of a jump. If its condition does not hold, the next instruction follows."""

    code: int
    value: int = 0
    to: str | None = None


class Program:
    """A program under construction, with one word to work on.

    Jumps go to labels further down, never up: such a program always ends.
    """

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        """Name the place of the next instruction."""
        if name in self._labels:
            raise ValueError(f"there are two labels {name}")
        self._labels[name] = len(self._instructions)

    def load(self, offset: int) -> None:
        """Load 32 bits of what is known of the call."""
        self._add(_LOAD, offset)

    def load_argument(self, index: int, *, high: bool = False) -> None:
        """Load the low half of an argument, or the high one.

        Where the kernel declares an argument as 32 bits wide (``int``, ``unsigned int``), it drops the high half, and
        so must the filter: one that compares all 64 bits is passed by whoever sets a bit there.
        """
        self.load(_ARGUMENTS + _ARGUMENT_BYTES * index + (_HIGH_HALF if high else 0))

    def keep_bits(self, mask: int) -> None:
        """Clear all other bits of what was loaded."""
        self._add(_AND, mask)

    def jump(self, to: str) -> None:
        """Go on elsewhere."""
        self._add(_JUMP, 0, to)

    def jump_if_equal(self, value: int, to: str) -> None:
        """Go on elsewhere if this is what was loaded."""
        self._add(_JUMP_EQUAL, value, to)

    def jump_if_at_least(self, value: int, to: str) -> None:
        """Go on elsewhere if what was loaded is this or more, without a sign."""
        self._add(_JUMP_AT_LEAST, value, to)

    def jump_if_any_bit(self, mask: int, to: str) -> None:
        """Go on elsewhere if any of these bits was loaded."""
        self._add(_JUMP_ANY_BIT, mask, to)

    def answer(self, verdict: str) -> None:
        """End here."""
        self._add(_RETURN, VERDICTS[verdict])

    def jumps_to(self, name: str) -> bool:
        """Whether there is a jump to a label."""
        return any(one.to == name for one in self._instructions)

    def _add(self, code: int, value: int, to: str | None = None) -> None:
        self._instructions.append(Instruction(code, value, to))

    def assemble(self) -> bytes:
        """Return the program as the kernel takes it."""
        if len(self._instructions) > _MAX_INSTRUCTIONS:
            raise ValueError(f"{len(self._instructions)} instructions are more than the kernel takes")
        return b"".join(self._encoded(place, one) for place, one in enumerate(self._instructions))

    def _encoded(self, place: int, instruction: Instruction) -> bytes:
        distance, value = 0, instruction.value
        if instruction.to is not None:
            distance = self._labels[instruction.to] - place - 1
            if distance < 0:
                raise ValueError(f"the jump to {instruction.to} goes up")
            if instruction.code == _JUMP:
                distance, value = 0, distance
            elif distance > _MAX_CONDITIONAL_JUMP:
                raise ValueError(f"the jump to {instruction.to} is too long")
        return struct.pack("<HBBI", instruction.code, distance, 0, value)


# --- Calls whose arguments decide. Each rule begins with nothing loaded, and ends with a jump.

Rule = Callable[[Program], None]

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_PERSONALITIES = (0, 0xFFFFFFFF)  # the ordinary one, and the question which one it is
_TERMINAL_REQUESTS = (
    0x5412,  # TIOCSTI types into a terminal that others read
    0x541C,  # TIOCLINUX does the same on a console
    0x5423,  # TIOCSETD loads line disciplines
)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET = 1, 2, 5
_SOCK_TYPE_MASK = 0xF
_NETLINK_ROUTE = 0
_INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)  # by type, ICMP, TCP, UDP, ICMPv6
_CREATES = 0o100 | 0o20000000  # O_CREAT, and what O_TMPFILE adds to O_DIRECTORY
_SET_USER_ID = 0o4000


def _clone(code: Program) -> None:
    """Threads and processes, but no new namespaces: inside a new one, its maker has all capabilities."""
    code.load_argument(0)
    code.jump_if_any_bit(_NEW_NAMESPACES, EPERM)
    code.jump(ALLOW)


def _personality(code: Program) -> None:
    """None that weakens the process: without random addresses, or with all memory executable."""
    code.load_argument(0)
    for value in _PERSONALITIES:
        code.jump_if_equal(value, ALLOW)
    code.jump(EPERM)


def _ioctl(code: Program) -> None:
    code.load_argument(1)
    for request in _TERMINAL_REQUESTS:
        code.jump_if_equal(request, EPERM)
    code.jump(ALLOW)


def _socket(code: Program) -> None:
    """Sockets as programs use them; the rest of the families and protocols is loaded into the kernel on demand.

    A network namespace does not cover all of them: AF_VSOCK leads to the host of a virtual machine.
    """
    code.load_argument(0)
    code.jump_if_equal(_AF_UNIX, ALLOW)
    code.jump_if_equal(_AF_INET, "internet socket")
    code.jump_if_equal(_AF_INET6, "internet socket")
    code.jump_if_equal(_AF_NETLINK, "netlink socket")
    code.jump(EAFNOSUPPORT)
    code.label("netlink socket")  # to list interfaces and addresses, as the C library does
    code.load_argument(2)
    code.jump_if_equal(_NETLINK_ROUTE, ALLOW)
    code.jump(EAFNOSUPPORT)
    code.label("internet socket")  # the type is looked at, too: without a protocol, it selects one
    code.load_argument(1)
    code.keep_bits(_SOCK_TYPE_MASK)
    code.jump_if_equal(_SOCK_STREAM, "protocol")
    code.jump_if_equal(_SOCK_DGRAM, "protocol")
    code.jump(ESOCKTNOSUPPORT)
    code.label("protocol")
    code.load_argument(2)
    for protocol in _INTERNET_PROTOCOLS:
        code.jump_if_equal(protocol, ALLOW)
    code.jump(EPROTONOSUPPORT)


def _local_socket(code: Program) -> None:
    """Sockets that reach nobody unless they are connected; a datagram (or SOCK_RAW, which is one) goes to any path."""
    code.load_argument(0)
    code.jump_if_equal(_AF_UNIX, "local socket")
    # ZeroMQ lists the interfaces through such a socket. It takes this answer as that there are none; with most others
    # it ends the process, and so every Python kernel.
    code.jump_if_equal(_AF_NETLINK, EOPNOTSUPP)
    code.jump(EAFNOSUPPORT)
    code.label("local socket")
    code.load_argument(1)
    code.keep_bits(_SOCK_TYPE_MASK)
    code.jump_if_equal(_SOCK_STREAM, ALLOW)
    code.jump_if_equal(_SOCK_SEQPACKET, ALLOW)
    code.jump(EACCES)


def _sendto(code: Program) -> None:
    """Only to whom the socket is connected, without an address.

    The address of `sendmsg` is in memory and cannot be seen. The types of sockets that there are do not heed it.
    """
    for high in (False, True):
        code.load_argument(4, high=high)
        code.jump_if_at_least(1, EACCES)
    code.jump(ALLOW)


def _prlimit(code: Program) -> None:
    """One's own limits, and a look at those of others: a limit of one second set on another process ends it."""
    code.load_argument(0)
    code.jump_if_equal(0, ALLOW)
    for high in (False, True):
        code.load_argument(2, high=high)
        code.jump_if_at_least(1, EPERM)
    code.jump(ALLOW)


def _own_turn(code: Program) -> None:
    """One's own place in the queue for a processor: others could be made to wait for ever."""
    code.load_argument(0)
    code.jump_if_equal(0, ALLOW)
    code.jump(EPERM)


def _own_policy(code: Program) -> None:
    """One's own policy, and the ordinary one for others: threads set it on themselves by their number, as ZeroMQ's."""
    for argument in (0, 1):
        code.load_argument(argument)
        code.jump_if_equal(0, ALLOW)
    code.jump(EPERM)


@cache
def _own_priority(all_of_user: int) -> Rule:
    """Return the rule for calls that say whose priority is meant: a process, a group, or all of the user's."""

    def rule(code: Program) -> None:
        code.load_argument(0)
        code.jump_if_equal(all_of_user, EPERM)
        code.load_argument(1)
        code.jump_if_equal(0, ALLOW)
        code.jump(EPERM)

    return rule


@cache
def _mode(argument: int) -> Rule:
    """Return the rule for a file's mode: no set-user-ID.

    The file belongs to the server's user, or to root if that is who runs the server. Outside of the sandbox, where the
    directory is shared, anybody who executes it would become that user. (The bit for groups is not refused: on
    directories it is common, and copying one sets it.)
    """

    def rule(code: Program) -> None:
        code.load_argument(argument)
        code.jump_if_any_bit(_SET_USER_ID, EPERM)
        code.jump(ALLOW)

    return rule


def _open(flags: int, mode: int) -> Rule:
    """Return the rule for `open` and the like, where there is a mode only if a file is made."""

    def rule(code: Program) -> None:
        makes_a_file = f"mode in argument {mode}"
        code.load_argument(flags)
        code.jump_if_any_bit(_CREATES, makes_a_file)
        code.jump(ALLOW)
        code.label(makes_a_file)
        _mode(mode)(code)

    return rule


# --- The numbers of the calls, for each machine; None where it does not have the call.

MACHINES = ("x86_64", "aarch64")
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# The numbers that had a meaning when this was written (Linux 6.19). For all others the answer is that there is no such
# call: that is so on older kernels, and what newer ones add has to be looked at here first. On x86_64 it also covers
# the numbers of the x32 ABI, which have bit 30 set and would be a way around every rule, and its remnants from 512 on.
ASSIGNED = {
    "x86_64": ((0, 336), (424, 470)),
    "aarch64": ((0, 243), (260, 294), (424, 470)),
}

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # looking into other processes and changing them
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # keys, which no namespace separates
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # large parts of the kernel, seldom needed; io_uring also makes calls that no filter sees
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "fanotify_init": (300, 262),
    # mounts and the root directory
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    # files by their number on the disk instead of their path
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # namespaces and the labels of security modules
    "setns": (308, 268),
    "unshare": (272, 97),
    "listns": (470, 470),
    "lsm_set_self_attr": (460, 460),
    # the machine itself: another kernel, modules, ports, swap, quotas, accounting, the log, the clock, the name
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    # what is obsolete, and gone from newer kernels
    "_sysctl": (156, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "sysfs": (139, None),
    "uselib": (134, None),
    "ustat": (136, None),
    # what has a rule
    "clone": (56, 220),
    "clone3": (435, 435),
    "personality": (135, 92),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "sendto": (44, 206),
    "prlimit64": (302, 261),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    # Landlock does not look at these: whoever owns a file may change them, wherever it is
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # and this would tell the names in all directories of the user's
    "inotify_add_watch": (254, 27),
    # shared memory, semaphores and queues that every process of the user can open by number or name
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

# --- What the profiles make of them.

_HAVE_A_RULE: dict[str, Rule | str] = {
    "clone": _clone,
    # Its flags are in memory, where no filter sees them. C libraries then take `clone`.
    "clone3": ENOSYS,
    "personality": _personality,
    "ioctl": _ioctl,
    "socket": _socket,
    "socketpair": _socket,
    "open": _open(1, 2),
    "openat": _open(2, 3),
    "openat2": ENOSYS,  # for the same reason
    "creat": _mode(1),
    "chmod": _mode(1),
    "fchmod": _mode(1),
    "fchmodat": _mode(2),
    "fchmodat2": _mode(2),
    "mknod": _mode(1),
    "mknodat": _mode(2),
}
_ONLY_WITHOUT_NAMESPACES: dict[str, Rule | str] = {
    "socket": _local_socket,
    "socketpair": _local_socket,
    "connect": EACCES,
    "sendto": _sendto,
    "prlimit64": _prlimit,
    "setpriority": _own_priority(2),  # PRIO_USER
    "ioprio_set": _own_priority(3),  # IOPRIO_WHO_USER
    "sched_setscheduler": _own_policy,
    **dict.fromkeys(("sched_setparam", "sched_setaffinity", "sched_setattr"), _own_turn),
    "inotify_add_watch": EPERM,
    # As if the disk had none: programs that copy them do without.
    **dict.fromkeys(("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr"), EOPNOTSUPP),
    **dict.fromkeys(("removexattr", "lremovexattr", "fremovexattr", "removexattrat"), EOPNOTSUPP),
    **dict.fromkeys(("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"), EPERM),
    **dict.fromkeys(("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"), EPERM),
}
_SANDBOX: dict[str, Rule | str] = {
    **{name: EPERM for name in NUMBERS if name not in _ONLY_WITHOUT_NAMESPACES},
    **_HAVE_A_RULE,
}
PROFILES: dict[str, dict[str, Rule | str]] = {
    "sandbox": _SANDBOX,
    "landlock": {**_SANDBOX, **_ONLY_WITHOUT_NAMESPACES},
}


def make(profile: str, machine: str) -> bytes:
    """Return the filter of a profile for a machine."""
    code = Program()
    code.load(_ARCHITECTURE)
    # The numbers mean something else on another architecture, such as that of 32-bit programs on the same machine.
    code.jump_if_equal(_AUDIT_ARCH[machine], "numbers")
    code.answer(KILL)
    code.label("numbers")
    code.load(_NUMBER)
    rules = _rules(profile, machine)
    _search(code, _runs(rules))
    for name, rule in _once(rules).items():
        code.label(name)
        rule(code)
    for verdict in VERDICTS:
        if code.jumps_to(verdict):
            code.label(verdict)
            code.answer(verdict)
    return code.assemble()


def _rules(profile: str, machine: str) -> dict[int, Rule | str]:
    """Return what is done about each number that has a meaning."""
    column = MACHINES.index(machine)
    rules: dict[int, Rule | str] = {}
    for first, last in ASSIGNED[machine]:
        rules.update(dict.fromkeys(range(first, last + 1), ALLOW))
    for name, rule in PROFILES[profile].items():
        number = NUMBERS[name][column]
        if number is not None:
            rules[number] = rule
    return rules


def _once(rules: dict[int, Rule | str]) -> dict[str, Rule]:
    """Return the rules that look at arguments, each once, by the label it gets."""
    return {_label(rule): rule for rule in rules.values() if not isinstance(rule, str)}


def _label(rule: Rule | str) -> str:
    return rule if isinstance(rule, str) else f"rule {id(rule)}"


def _runs(rules: dict[int, Rule | str]) -> list[tuple[int, str]]:
    """Return the first number of each run of numbers with the same rule, and its label; the last run has no end."""
    runs: list[tuple[int, str]] = []
    for number in range(max(rules) + 2):
        to = _label(rules.get(number, ENOSYS))
        if not runs or runs[-1][1] != to:
            runs.append((number, to))
    return runs


def _search(code: Program, runs: list[tuple[int, str]]) -> None:
    """Go where the number belongs, in about seven comparisons: the filter runs at every call."""
    if len(runs) == 1:
        ((_, to),) = runs
        if to in VERDICTS:
            code.answer(to)
        else:
            code.jump(to)
        return
    middle = len(runs) // 2
    number = runs[middle][0]
    code.jump_if_at_least(number, f"from {number}")
    _search(code, runs[:middle])
    code.label(f"from {number}")
    _search(code, runs[middle:])


def main() -> int:
    """Write the filters, or check them."""
    made = {f"{profile}-{machine}.bpf": make(profile, machine) for profile in PROFILES for machine in MACHINES}
    directory = ROOT / FILTERS
    there = {path.name: path.read_bytes() for path in directory.glob("*.bpf")}
    stale = sorted(name for name in made | there if made.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{FILTERS}/{name} is not up to date; run python tools/make_seccomp.py")
        return 1 if stale else 0
    directory.mkdir(exist_ok=True)
    for name in stale:
        if name in made:
            (directory / name).write_bytes(made[name])
        else:
            (directory / name).unlink()
        print(f"{FILTERS}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
