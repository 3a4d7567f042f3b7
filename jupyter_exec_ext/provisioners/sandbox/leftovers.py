"""Where sandboxes keep their sockets, and what becomes of those whose server was killed.

Each server process has a directory of its own, whose name says which process that is: its namespace of process ids, its
id, and when it started, so that no later process is taken for it. Bubblewrap's processes carry the same name in their
environment (the kernel's own does not have it). Where there is no namespace, kernels carry it, with a name of their own
behind it. Whatever bears the name of a process that is gone is left over.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

#: In the environment of bubblewrap, or of the kernel.
MARK = "JUPYTER_EXEC_SANDBOX"
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")
#: What a socket's path may have, with its end.
_MAX_SOCKET_PATH = 107
_MAX_ROUNDS = 50
_ROUND_SECONDS = 0.01


def base_directory() -> Path:
    """Return the directory that only our user can enter, in which all of its servers' directories are.

    Its path is short, since that of a socket may have only so many bytes.

    Raises
    ------
    PermissionError
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
        raise PermissionError(f"{base} is not a directory that only this user can enter; remove it")
    return base


@cache
def _name_of(pid: int) -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{_started(pid)}"


def own_name() -> str:
    """Return the name of this process among servers."""
    return _name_of(os.getpid())


def new_directory() -> Path:
    """Make a directory for the sockets of one sandbox."""
    directory = base_directory() / own_name() / secrets.token_hex(4)
    directory.mkdir(mode=0o700, parents=True)
    return directory


def private_directory() -> Path:
    """Make an empty working directory that goes with its kernel, on disk."""
    directory = _private_base() / own_name() / secrets.token_hex(4)
    directory.mkdir(mode=0o700, parents=True)
    return directory


def _private_base() -> Path:
    return Path(jupyter_data_dir()) / "jupyter_exec_ext" / "private"


def remove_directory(directory: Path) -> None:
    """Remove a sandbox's directory, whatever its kernel has put there, and that of the server if it was the last."""
    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):
        directory.parent.rmdir()


def sweep() -> list[int]:
    """End the processes and remove the directories of servers that are gone; blocks while it reads the process table.

    Returns
    -------
    list of int
        The processes that were ended.
    """
    ended = []
    for pid, mark in list(_marked()):
        if is_gone(mark.partition("/")[0]):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    for base in (base_directory(), _private_base()):
        for directory in base.iterdir() if base.is_dir() else ():
            if is_gone(directory.name):
                shutil.rmtree(directory, ignore_errors=True)
    return ended


def is_gone(name: str) -> bool:
    """Whether there was a server of this name, in this namespace, and is no more."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != os.stat("/proc/self/ns/pid").st_ino:
        return False  # of another namespace: its processes cannot be seen from here
    return _started(int(match[2])) != int(match[3])


def kill_marked(mark: str) -> None:
    """End the processes that carry a mark; blocks while it reads the process table."""
    for _ in range(_MAX_ROUNDS):  # one may start another between being found and being killed
        found = [pid for pid, other in _marked() if other == mark]
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _marked() -> Iterator[tuple[int, str]]:
    """Yield the processes that carry a mark, and the mark."""
    mark = f"{MARK}=".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended, or is not ours
            for variable in Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0"):
                if variable.startswith(mark):
                    yield int(entry.name), variable.removeprefix(mark).decode("ascii", "replace")


def _started(pid: int) -> int:
    """Return when a process started, in clock ticks since the machine did; -1 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return -1
