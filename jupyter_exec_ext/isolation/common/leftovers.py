"""Directories of isolated kernels, and the cleanup of directories and processes that a killed server left behind.

Each server process has its own directory. Its name identifies the process: its namespace of process ids, its id, and
its start time, so that no later process is mistaken for it. Processes that hold kernels have the same name in their
environment (`MARK`; in a sandbox the kernel itself does not). All that has the name of an ended process is left over.
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

#: Environment variable with the name of the server.
MARK = "JUPYTER_EXEC_SANDBOX"
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")
#: Highest length of a socket's path in bytes.
_MAX_SOCKET_PATH = 107
_END_SECONDS = 10.0
# Time for all directories together, so that a server starts in time; and the least time for each of them.
_SWEEP_SECONDS, _LEAST_SECONDS = 5.0, 0.1


def base_directory() -> Path:
    """Return the parent of the directories of all servers of this user, which only this user can enter.

    Its path is short, since the length of a socket's path is limited.

    Raises
    ------
    IsolationUnavailableError
        If another user has made it, or it cannot be made.
    """
    in_tmp = Path("/tmp") / f"jex-{os.getuid()}"  # noqa: S108  # its owner and mode are checked below
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) / "jex" if os.path.isdir(runtime) else in_tmp
    # The longest path: the server's name, that of a link, and the number 1 to 5 that jupyter_client appends.
    if len(f"{base}/{'9' * 40}/{'9' * 8}/s-5") > _MAX_SOCKET_PATH:
        base = in_tmp
    try:
        base.mkdir(mode=0o700)
    except FileExistsError:
        pass  # the check below shows what it is
    except OSError as error:
        raise IsolationUnavailableError(
            "socket_directory",
            f"{base}, for the sockets of kernels, could not be made ({error.strerror}); make it, or set "
            "XDG_RUNTIME_DIR to a directory that this user can write",
        ) from None
    # Not `stat`: in /tmp another user may have placed a link to a directory of this user.
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise IsolationUnavailableError(
            "socket_directory",
            f"{base}, for the sockets of kernels, is not a directory that only this user can enter; remove it",
        )
    return base


@cache
def _name_of(pid: int) -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{_start_ticks(pid)}"


def own_name() -> str:
    """Return the name of this process among servers."""
    return _name_of(os.getpid())


def new_link() -> Path:
    """Return an unused path for the link to the sockets of one kernel; `link_anew` makes the link."""
    return base_directory() / own_name() / secrets.token_hex(4)


def private_directory() -> Path:
    """Return an unused path on disk for the directory of one kernel; `make_directory` makes it."""
    return _private_base() / own_name() / secrets.token_hex(4)


def make_directory(directory: Path) -> None:
    """Make a kernel's directory, unless it exists; no other user can enter it."""
    _make_below_server(directory, lambda: directory.mkdir(mode=0o700, exist_ok=True))


def _make_below_server(path: Path, make: Callable[[], object]) -> None:
    """Make a path in the server's directory, and that directory if needed."""
    of_server = path.parent
    while True:
        try:
            of_server.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_server.mkdir(mode=0o700, exist_ok=True)
            make()
        except FileNotFoundError:  # the directory was removed meanwhile, with the last kernel before
            continue
        return


def _private_base() -> Path:
    return Path(jupyter_data_dir()) / "jupyter_exec_ext" / "private"


def make_anew(directory: Path) -> None:
    """Make an empty directory in the place of an old one.

    Raises
    ------
    IsolationUnavailableError
        If the old one can be neither removed nor moved aside.
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
    """Make the link to the directory of a kernel's sockets in the place of an old one.

    The directory with the links holds no file that a kernel can make or fill, since it is memory of the machine.
    """
    _require_removed(link)
    _make_below_server(link, lambda: link.symlink_to(target))


def remove_directory(directory: Path) -> None:
    """Remove a kernel's directory with all that the kernel has put there, and the server's if it was the last one."""
    remove_tree(directory)
    with suppress(OSError):
        directory.parent.rmdir()


def sweep() -> list[int]:
    """End the processes and remove the directories of ended servers; blocks while it reads the process table.

    Returns
    -------
    list of int
        Process ids of the ended processes.
    """
    ended = [pid for pid in list(_left_behind()) if _kill(pid)]
    _wait_until_ended(ended, time.monotonic() + _END_SECONDS)
    for base in (base_directory(), _private_base()):
        retry_leftovers(base)
        give_up_at = time.monotonic() + _SWEEP_SECONDS
        for directory in base.iterdir() if base.is_dir() else ():
            if is_gone(directory.name):
                remove_tree(directory, seconds=max(_LEAST_SECONDS, give_up_at - time.monotonic()))
    return ended


def is_gone(name: str) -> bool:
    """Return whether the name is that of a server of this namespace, and that server has ended."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != os.stat("/proc/self/ns/pid").st_ino:
        return False  # a server of another namespace, whose processes cannot be seen from here
    return _start_ticks(int(match[2])) != int(match[3])


def end_started_with(variable: str) -> None:
    """Kill all processes that were started with a variable, ``NAME=value``, in their environment.

    It blocks for `_END_SECONDS` at most: a process in an uninterruptible sleep may stay for ever.
    """
    wanted = variable.encode()
    give_up_at = time.monotonic() + _END_SECONDS
    # A process may fork before it is killed, so look again until none is found.
    while ended := [pid for pid, variables in _environments() if wanted in variables and _kill(pid)]:
        _wait_until_ended(ended, give_up_at)
        if time.monotonic() > give_up_at:
            return


def _left_behind() -> Iterator[int]:
    mark = f"{MARK}=".encode()
    for pid, variables in _environments():
        for variable in variables:
            # The name of the kernel may follow that of the server.
            name = variable.removeprefix(mark).decode("ascii", "replace").partition("/")[0]
            if variable.startswith(mark) and is_gone(name):
                yield pid


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the processes of this user, with the environment that they were started with."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):  # the process has ended, or is another user's
                yield int(entry.name), Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0")


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _wait_until_ended(pids: Iterable[int], give_up_at: float) -> None:
    """Wait until killed processes have ended, since files in use cannot be removed."""
    for pid in pids:
        with suppress(ProcessLookupError):
            # They are no children of this process, so `waitpid` cannot wait for them.
            descriptor = os.pidfd_open(pid)
            try:
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_READ)
                    selector.select(max(0.0, give_up_at - time.monotonic()))
            finally:
                os.close(descriptor)


def _start_ticks(pid: int) -> int:
    """Return the start time of a process, in clock ticks since the machine started; -1 if there is no such process."""
    try:
        # The name of the program, in parentheses, may itself have spaces and parentheses.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return -1
