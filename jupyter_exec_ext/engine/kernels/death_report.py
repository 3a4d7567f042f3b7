"""Death report of a kernel: crash file, out-of-memory kills, exit and standard error, as the reason of its death.

Its standard error is a pipe that the event loop reads and passes on to the server's own. Where that takes nothing at
the moment, what a kernel writes is dropped: neither the server nor a kernel waits for the reader of the server's log.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ...models import ExecutionState
from ...system.marked_processes import kill_left_behind
from ..ports import Kernel, KernelExit

# The user's code can write to the crash file, too. faulthandler itself prints 100 frames of each thread at most.
_MAX_BYTES = 16 * 1024
# A kernel writes this text, and it gets into logs and terminals: no escape sequences, no change of reading direction.
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]|[\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# One statement without a name of its own, so that nothing appears in the user's namespace.
_SETUP = """\
try:
    __import__("faulthandler").enable(file=__import__("io").open({path!r}, "ab", 0))
except Exception:
    pass
"""


def plain_text(raw: bytes) -> str:
    """Return `raw` as text that a terminal or a page can show: without control and bidirectional characters."""
    return _CONTROL.sub("", raw.decode("utf-8", "replace")).strip()


class CrashFile:
    """The crash report of one kernel process: empty until there is something to report.

    It is read by the descriptor that it was created with, whatever the kernel does to its name.

    Parameters
    ----------
    directory : Path
        A directory that only our user can enter.
    name_inside : str, optional
        How the kernel calls the directory, if not so.
    """

    def __init__(self, directory: Path, name_inside: str | None = None) -> None:
        name = secrets.token_hex(16)
        self.path = directory / name
        self._path_inside = os.path.join(name_inside or str(directory), name)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)

    @property
    def setup_code(self) -> str:
        """The Python code that makes a kernel write there."""
        return _SETUP.format(path=self._path_inside)

    def read(self) -> str:
        """Return the beginning of what was written."""
        try:
            return plain_text(os.pread(self._descriptor, _MAX_BYTES, 0))
        except OSError:
            return ""

    def remove(self) -> None:
        """Close and delete the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):  # the code may have made a directory of it, which goes with the directory around it
            self.path.unlink(missing_ok=True)


def counter_files(proc_cgroup: str, root: Path) -> list[Path]:
    """Return the files that may count a process's out-of-memory kills, the likeliest first.

    Parameters
    ----------
    proc_cgroup : str
        The content of its ``/proc/<pid>/cgroup``.
    root : Path
        Where control groups are mounted.
    """
    files: list[Path] = []
    for line in proc_cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = path.lstrip("/")
        if ".." in Path(inside).parts:  # a group outside our own namespace
            continue
        if not controllers:
            # systemd mounts version 2 at ``unified`` where version 1 is mounted as well.
            files += [root / inside / "memory.events", root / "unified" / inside / "memory.events"]
        elif "memory" in controllers.split(","):  # version 1
            files.append(root / "memory" / inside / "memory.oom_control")
    return files


def oom_kills(files: Sequence[Path]) -> int | None:
    """Return how many processes were killed for lack of memory, by the first file that says; None if none does."""
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            # Both versions have a line of this name; the others count something else, such as `oom` in version 2.
            if name == "oom_kill" and count.strip().isdecimal():
                return int(count)
    return None


def was_oom_killed(signal: str | None, *, killed_by_us: bool, before: int | None, after: int | None) -> bool:
    """Return whether a process that ended by `signal` was killed for lack of memory, as far as can be known."""
    if signal != "SIGKILL" or killed_by_us or before is None or after is None:
        return False
    return after > before


class OomWatch:
    """The out-of-memory kills of one process's control group, since the watch began.

    Parameters
    ----------
    proc, root : Path
        Where the process table and the control groups are mounted.
    """

    def __init__(self, pid: int | None, *, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._files: list[Path] = []
        if pid is not None:
            with suppress(OSError):  # no control groups here
                self._files = counter_files((proc / str(pid) / "cgroup").read_text(), root)
        self._before = oom_kills(self._files)

    def explains(self, signal: str | None, *, killed_by_us: bool) -> bool:
        """Return whether lack of memory explains a death by `signal`."""
        return was_oom_killed(signal, killed_by_us=killed_by_us, before=self._before, after=oom_kills(self._files))


@dataclass(frozen=True, slots=True)
class Death:
    """Reason of a kernel's death, as far as it is known.

    Parameters
    ----------
    traceback : str
        Where the code was, as the dying process wrote it; empty if it did not.
    """

    state: ExecutionState
    reason: str
    traceback: str = ""


def plain_death(exit_: KernelExit) -> Death:
    """Return what the exit alone says."""
    why = " because its processor time was used up" if exit_.signal == "SIGXCPU" else ""
    return Death(ExecutionState.KERNEL_DIED, f"the kernel {exit_}{why}")


class CrashPlaces(Protocol):
    """Owner of a directory that only our user can enter."""

    def private_directory(self) -> Path:
        """Return the directory."""


class DeathEvidence:
    """Evidence about the present kernel process of a session, noted while the process lives.

    Parameters
    ----------
    session_id : str
        Mark of the session's processes.
    places : CrashPlaces
        Has the directory of crash files for kernels that see the server's files.
    """

    def __init__(self, session_id: str, places: CrashPlaces) -> None:
        self._session_id = session_id
        self._places = places
        self._oom = OomWatch(None)
        self._crash_file: CrashFile | None = None

    def begin(self, kernel: Kernel, *, is_python: bool, is_first: bool) -> str | None:
        """Begin anew for a process that has just started; return the code that makes it write crash reports. Blocks."""
        self.close()
        pid, is_shared = kernel.pid, kernel.traits.is_shared
        # Processes that an earlier kernel has started carry the same mark. The new kernel has run no code yet.
        if pid is not None and not is_first and not is_shared:
            kill_left_behind(self._session_id, pid)
        self._oom = OomWatch(pid)
        if not is_python or pid is None or is_shared:
            return None
        # An isolated kernel cannot see our private directory, and has its own name for the one that it shares.
        self._crash_file = CrashFile(*(kernel.traits.shared_directory or (self._places.private_directory(), None)))
        return self._crash_file.setup_code

    def explain(self, exit_: KernelExit, *, killed_by_us: bool) -> Death:
        """Return the reason for a death. Blocks."""
        traceback = "" if self._crash_file is None else self._crash_file.read()
        if self._oom.explains(exit_.signal, killed_by_us=killed_by_us):
            reason = f"the kernel {exit_} because its memory limit was reached"
            return Death(ExecutionState.OOM_KILLED, reason, traceback)
        return replace(plain_death(exit_), traceback=traceback)

    def close(self) -> None:
        """Remove the crash file. Blocks."""
        if self._crash_file is not None:
            self._crash_file.remove()
            self._crash_file = None


_KEPT_BYTES = 2000
# PIPE_BUF: this much can be written without waiting where `select` reports that there is room.
_READ_BYTES = 4096
# Together 64 KiB, a pipe's usual capacity: a kernel that writes without end must not keep the event loop.
_MAX_READS_PER_TURN = 16


class KernelStderr:
    """A pipe for the standard error of one kernel process; closed by `close`, or once its last writer has ended.

    Attributes
    ----------
    for_kernel : int
        The descriptor that the kernel is to get. It is open until `close_write_end`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_end, self.for_kernel = os.pipe()
        self._kept = b""
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._read_some)

    @staticmethod
    def is_possible() -> bool:
        """Return whether this system's event loops can read pipes."""
        return sys.platform != "win32"

    def close_write_end(self) -> None:
        """Close what the kernel has got: it has the only descriptors to write to now."""
        if self.for_kernel >= 0:
            os.close(self.for_kernel)
            self.for_kernel = -1

    @property
    def last_words(self) -> str:
        """The end of what was written so far, as plain text."""
        self._read_some()  # the event loop may not have read the last of it yet
        return plain_text(self._kept)

    def close(self) -> None:
        """Pass on what there is, and read no more."""
        self.close_write_end()
        self._read_some()
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1

    def _read_some(self) -> None:
        for _ in range(_MAX_READS_PER_TURN):
            if self._read_end < 0:
                return
            try:
                data = os.read(self._read_end, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._read_end)
                os.close(self._read_end)
                self._read_end = -1
                return
            self._kept = (self._kept + data)[-_KEPT_BYTES:]
            _pass_on(data)


def _pass_on(data: bytes) -> None:
    with suppress(OSError, ValueError):  # the server has no standard error, or its reader has ended
        if select.select((), (2,), (), 0)[1]:
            os.write(2, data)
