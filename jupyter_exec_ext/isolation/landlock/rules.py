"""What a kernel that Landlock holds may reach, as rules. Their order does not matter: each adds to the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ..common.launch_request import View
from ..common.visible_files import TooMuchToSeeError

# Of all devices only those that hold nothing. /dev/shm is shared by everybody, and so are terminals.
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# What tells programs about the machine, and not about other processes. A process gets its own files beside these.
_OF_MACHINE = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"),
    *("sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/osrelease", "sys/kernel/ostype"),
    *("sys/kernel/pid_max", "sys/kernel/threads-max", "sys/kernel/random/uuid"),
    *("sys/vm/max_map_count", "sys/vm/overcommit_memory"),
)

Rule = tuple[str, str]


def rules_of(view: View, connection_file: str, *, own: Iterable[str], sockets: str) -> list[Rule]:
    """Return the rules for a view.

    Parameters
    ----------
    view : View
    connection_file : str
        The kernel's.
    own : iterable of str
        Directories that were made for this kernel.
    sockets : str
        The one for its sockets, and nothing else.

    Raises
    ------
    TooMuchToSeeError
        If rules cannot express the view.
    """
    if view.read_only_inside_work:
        raise TooMuchToSeeError(
            f"{view.work_directory} holds what the kernel must not change ({view.read_only_inside_work[0]}), and "
            "Landlock cannot except a part of a directory; start the kernel in another directory, set 'cwd', or use "
            "the level 'sandbox'"
        )
    hidden = [os.path.realpath(path) for path in view.hidden]
    rules = [(path, "read") for seen in view.read_only for path in _except(os.path.realpath(seen), hidden)]
    rules += [(path, "write" if os.path.isdir(path) else "device") for path in view.writable.values()]
    rules += [(path, "write") for path in (view.work_directory, *own)]
    rules.append((sockets, "sockets"))
    rules.append((os.path.realpath(connection_file), "read"))
    rules += [(path, "device") for name in _DEVICES if os.path.exists(path := f"/dev/{name}")]
    rules += [(path, "read") for name in _OF_MACHINE if os.path.exists(path := f"/proc/{name}")]
    return rules


def _except(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Yield a path, or what is in it but for what is hidden; links are left out, since they lead anywhere."""
    if path in hidden:
        return
    if not any(other.startswith(f"{path.rstrip('/')}/") for other in hidden):
        yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                yield from _except(entry.path, hidden)
