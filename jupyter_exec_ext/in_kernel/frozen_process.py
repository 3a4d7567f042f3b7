"""Frozen process of a checkpoint: a child of a kernel that waits for requests of the server, and forks for each.

It shares the kernel's memory until one of the two writes to it, and has none of its sockets. Open files, whose
positions a process shares with its children, are opened anew in those.

``protocol/kernel_checkpoint_messages.py`` sends this source to kernels; see ``checkpoint.py``. Linux alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import stat
import sys
import types
from typing import Any

requests: Any = importlib.import_module("jupyter_exec_fork_requests")

_CONNECT_SECONDS = 5.0
_GREETING = b"h"


def run_frozen_process(address: str, nonce: str, closable: set[int]) -> tuple[dict[str, Any], socket.socket]:
    """Wait for requests; returns in the children, with what a child is to be and its channel.

    Parameters
    ----------
    address, nonce : str
        See `schedule_checkpoint`.
    closable : set of int
        Descriptors of the kernel itself, whose numbers nothing uses any more.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    gc.disable()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGCHLD)}
    files, here = open_files(), _working_directory()
    _drop_descriptors(closable)
    environment = _Environment()
    environment.clear_mark()
    control = socket.socket(socket.AF_UNIX)
    connect(control, address)
    control.settimeout(None)
    control.sendall(json.dumps({"nonce": nonce}).encode() + b"\n")
    descriptors = requests.serve(control)
    channel, settings = requests.enter(descriptors, greeting=_GREETING)
    for number, handler in handlers.items():
        if handler is not None:  # it was set by something other than Python
            signal.signal(number, handler)
    environment.write(settings["environment"])
    os.environ.update(settings["environment"])
    old_root, new_root = settings["directory"] or ("", "")
    # By its name, also where it is the same one: its files may have been replaced.
    with contextlib.suppress(OSError):
        os.chdir(_moved(here, old_root, new_root))
    if old_root != new_root:
        _move_modules(old_root, new_root)
    _reopen({descriptor: (_moved(path, old_root, new_root), *rest) for descriptor, (path, *rest) in files.items()})
    gc.enable()
    requests.end_with(channel)
    return settings, channel


def _open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _drop_descriptors(closable: set[int]) -> None:
    """Put /dev/null in the place of sockets, pipes and the like; objects may close their numbers, which stay taken."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in closable:
        os.close(descriptor)
    for descriptor in _open_descriptors():
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:  # the one by which the directory was read
            continue
        is_kept = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
        if descriptor < 3 or not is_kept:
            os.dup2(null, descriptor, inheritable=descriptor < 3)
    os.close(null)


def open_files() -> dict[int, tuple[Any, ...]]:
    """Return the path, flags and position of each open file: a process shares its position with its children."""
    files: dict[int, tuple[Any, ...]] = {}
    for descriptor in _open_descriptors():
        with contextlib.suppress(OSError):
            if descriptor > 2 and stat.S_ISREG(os.fstat(descriptor).st_mode):
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
                position = os.lseek(descriptor, 0, os.SEEK_CUR)
                files[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}"), flags, position
    return files


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return "/"


def _moved(path: str, old_root: str, new_root: str) -> str:
    """Return a path below the directory `old_root` as one below `new_root`."""
    is_below = path == old_root or path.startswith(f"{old_root}/")
    return new_root + path[len(old_root) :] if old_root and is_below else path


def _move_modules(old_root: str, new_root: str) -> None:
    """Have a branch import from its own directory, where it has a copy of the session's packages."""
    for module in list(sys.modules.values()):
        path = vars(module).get("__path__") if isinstance(module, types.ModuleType) else None
        if isinstance(path, list):
            path[:] = [_moved(each, old_root, new_root) for each in path]
    packages: Any = sys.modules.get("jupyter_exec_packages")  # of ``package_environment.py``
    if packages is not None:
        with contextlib.suppress(Exception):  # without it, the branch uses the session's as long as that lives
            packages.move(new_root)
    sys.path[:] = [_moved(path, old_root, new_root) for path in sys.path]
    importlib.invalidate_caches()


def _reopen(files: dict[int, tuple[Any, ...]]) -> None:
    for descriptor, (path, flags, position) in files.items():
        with contextlib.suppress(OSError):  # it was deleted; the descriptor still has its content
            again = os.open(path, flags)
            os.dup2(again, descriptor, inheritable=False)
            os.close(again)
            os.lseek(descriptor, position, os.SEEK_SET)


class _Environment:
    """The memory where other processes read this one's environment (``/proc/PID/environ``).

    The server finds a session's processes by a mark there, and ends those that a kernel has left behind. A frozen
    process is none of these.
    """

    _MARK = b"JUPYTER_EXEC_SESSION="

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._start, end = int(fields[47]), int(fields[48])  # `env_start` and `env_end` of proc(5)
        self._size = end - self._start
        self._text = ctypes.string_at(self._start, self._size) if self._start else b""

    def clear_mark(self) -> None:
        """Remove the mark, and keep the length of everything."""
        self._replace(self._text.replace(self._MARK, b"X" * len(self._MARK)))

    def write(self, changes: dict[str, str]) -> None:
        """Write the environment as it was, with changes for which there is room."""
        items = [item for item in self._text.split(b"\0") if item]
        for name, value in changes.items():
            prefix = os.fsencode(name) + b"="
            items = [prefix + os.fsencode(value), *(item for item in items if not item.startswith(prefix))]
        self._replace(b"".join(item + b"\0" for item in items))

    def _replace(self, text: bytes) -> None:
        if 0 < len(text) <= self._size:
            ctypes.memmove(self._start, text.ljust(self._size, b"\0"), self._size)


def connect(control: socket.socket, address: str) -> None:
    """Connect to the server, by a path that may be too long for a socket."""
    path, name = os.path.split(address)
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        control.settimeout(_CONNECT_SECONDS)
        control.connect(f"/proc/self/fd/{directory}/{name}")
    finally:
        os.close(directory)
