"""Did the system kill a kernel for lack of memory? Where control groups count such kills, it can be known.

A process that is killed for lack of memory ends by SIGKILL, like one that somebody killed on purpose. Its control
group counts the first kind. So: a SIGKILL that was not ours, and a count that has grown since the kernel began.

References
----------
https://docs.kernel.org/admin-guide/cgroup-v2.html, ``memory.events``
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


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
