"""Where sandboxes keep their sockets, and what becomes of those whose server was killed.

Each server process has a directory of its own, whose name says which process that is: its namespace of process ids, its
id, and when it started, so that no later process is taken for it. Bubblewrap's processes carry the same name in their
environment (the kernel's own does not have it). Whatever bears the name of a process that is gone is left over.
"""

from __future__ import annotations

import os
import re
import secrets
import selectors
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ...system.removal import remove_tree, retry_leftovers
from .isolation_support import IsolationUnavailableError

#: In the environment of bubblewrap.
MARK = "JUPYTER_EXEC_SANDBOX"
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")
#: What a socket's path may have, with its end.
_MAX_SOCKET_PATH = 107
_END_SECONDS = 10.0
# For all directories together, so that a server starts in time however many there are; and for each of them.
_SWEEP_SECONDS, _LEAST_SECONDS = 5.0, 0.1


def base_directory() -> Path:
    """Return the directory that only our user can enter, in which all of its servers' directories are.

    Its path is short, since that of a socket may have only so many bytes.

    Raises
    ------
    IsolationUnavailableError
        If somebody else has made it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) / "jex" if os.path.isdir(runtime) else Path("/tmp") / f"jex-{os.getuid()}"  # noqa: S108
    if len(f"{base}/{'9' * 40}/{'9' * 8}/s-5") > _MAX_SOCKET_PATH:
        base = Path("/tmp") / f"jex-{os.getuid()}"  # noqa: S108  # checked below
    with suppress(FileExistsError):
        base.mkdir(mode=0o700)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise IsolationUnavailableError(
            "socket_directory",
            f"{base}, for the sockets of kernels, is not a directory that only this user can enter; remove it",
        )
    return base


@cache
def _name_of(pid: int) -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{_started(pid)}"


def own_name() -> str:
    """Return the name of this process among servers."""
    return _name_of(os.getpid())


def new_link() -> Path:
    """Return a place for the link to the sockets of one kernel; `link_anew` makes it."""
    return base_directory() / own_name() / secrets.token_hex(4)


def private_directory() -> Path:
    """Return where an empty working directory is to be that goes with its kernel, on disk."""
    return _private_base() / own_name() / secrets.token_hex(4)


def make_directory(directory: Path) -> None:
    """Make a kernel's directory, unless it is there; nobody else can enter it."""
    _make_below_server(directory, lambda: directory.mkdir(mode=0o700, exist_ok=True))


def _make_below_server(path: Path, make: Callable[[], object]) -> None:
    """Make something in the server's directory, which is made as well."""
    of_server = path.parent
    while True:
        try:
            of_server.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_server.mkdir(mode=0o700, exist_ok=True)
            make()
        except FileNotFoundError:  # the server's has just been removed, with the last sandbox before
            continue
        return


def _private_base() -> Path:
    return Path(jupyter_data_dir()) / "jupyter_exec_ext" / "private"


def make_anew(directory: Path) -> None:
    """Make a sandbox's directory, empty, whatever was there.

    Raises
    ------
    IsolationUnavailableError
        If an earlier kernel has left something there that can be neither removed nor moved aside.
    """
    _require_removed(directory)
    make_directory(directory)


def _require_removed(path: Path) -> None:
    left = remove_tree(path)
    if left is not None and left.path == path:
        raise IsolationUnavailableError(
            "socket_directory", f"{path} could not be removed ({left.reason}); remove it by hand"
        )


def link_anew(link: Path, target: Path) -> None:
    """Make a link to the directory of a kernel's sockets, whatever was in its place.

    Nothing that a kernel can make or fill lies in the directory with the links: that is memory of the machine.
    """
    _require_removed(link)
    _make_below_server(link, lambda: link.symlink_to(target))


def remove_directory(directory: Path) -> None:
    """Remove a sandbox's directory, whatever its kernel has put there, and that of the server if it was the last."""
    remove_tree(directory)
    with suppress(OSError):
        directory.parent.rmdir()


def sweep() -> list[int]:
    """End the processes and remove the directories of servers that are gone; blocks while it reads the process table.

    Returns
    -------
    list of int
        The processes that were ended.
    """
    ended = [pid for pid in list(_left_behind()) if _kill(pid)]
    _until_ended(ended)
    for base in (base_directory(), _private_base()):
        retry_leftovers(base)
        give_up_at = time.monotonic() + _SWEEP_SECONDS
        for directory in base.iterdir() if base.is_dir() else ():
            if is_gone(directory.name):
                remove_tree(directory, seconds=max(_LEAST_SECONDS, give_up_at - time.monotonic()))
    return ended


def is_gone(name: str) -> bool:
    """Whether there was a server of this name, in this namespace, and is no more."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != os.stat("/proc/self/ns/pid").st_ino:
        return False  # of another namespace: its processes cannot be seen from here
    return _started(int(match[2])) != int(match[3])


def end_started_with(variable: str) -> None:
    """End all processes that have a variable, ``NAME=value``, in the environment that they were started with."""
    wanted = variable.encode()
    while ended := [pid for pid, variables in _environments() if wanted in variables and _kill(pid)]:
        _until_ended(ended)


def _left_behind() -> Iterator[int]:
    mark = f"{MARK}=".encode()
    for pid, variables in _environments():
        for variable in variables:
            # What comes after the server's name says which of its kernels it is.
            name = variable.removeprefix(mark).decode("ascii", "replace").partition("/")[0]
            if variable.startswith(mark) and is_gone(name):
                yield pid


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the processes that are ours to see, with the environment that they were started with."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended, or is not ours
                yield int(entry.name), Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0")


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _until_ended(pids: Iterable[int]) -> None:
    """Wait until processes that were killed have ended: nothing that they use can be removed before."""
    give_up_at = time.monotonic() + _END_SECONDS
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_READ)
                    selector.select(max(0.0, give_up_at - time.monotonic()))
            finally:
                os.close(descriptor)


def _started(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine did; -1 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return -1
