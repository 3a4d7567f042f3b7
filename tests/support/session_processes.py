"""Find the processes of a session by its mark, and tell whether a process has ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil

from jupyter_exec_ext.system.marked_processes import MARK


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, also if its parent has not collected its exit status yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return True


def runs(pid: int) -> bool:
    """Return whether there is a process with this id that has not ended."""
    try:
        return not has_ended(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def ends(pid: int, *, within_seconds: float) -> bool:
    """Return whether a process has ended at some moment of this time."""
    until = time.monotonic() + within_seconds
    while runs(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def marked(session_id: str) -> list[int]:
    """Return the processes that carry the session's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == session_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def outside(session_id: str, inside: int) -> int:
    """Return the id here of a session's process that has the id `inside` where it runs, as in a sandbox."""
    (pid,) = (pid for pid in marked(session_id) if _inner_id(pid) == inside)
    return pid


def kernel_of(session: Any) -> int:
    """Return the process of a session's kernel, which is idle."""
    printed = session.run("import os; print(os.getpid())").stdout
    return outside(session.id, int(printed.split()[-1]))  # before it there may be late output of an earlier run


def _inner_id(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])
