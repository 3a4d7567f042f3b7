"""Succession of kernels in one sandbox: a process inside, forked from a checkpoint, takes the place of the kernel.

A sandbox ends with its first process, which is the kernel that it was made for. So that one becomes a program that does
nothing, at a signal for which a checkpoint has set a handler. Everything else inside ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .sandbox_process import SandboxProcess

#: At this signal, the first process of a sandbox holds its place: one of those that no library uses.
HOLD_SIGNAL = signal.SIGRTMIN + 13 if sys.platform == "linux" else 0
_HOLD_SECONDS, _POLL_SECONDS = 1.0, 0.001
# A process may fork between being found and being killed; a few rounds outrun that.
_MAX_ROUNDS, _ROUND_SECONDS = 50, 0.01


def end_kernel(sandbox: SandboxProcess, spared: Collection[int]) -> None:
    """End the kernel of a sandbox and all that it has started, and keep the sandbox. Blocks for about a second at most.

    Parameters
    ----------
    sandbox : SandboxProcess
        The sandbox.
    spared : collection of int
        Processes inside that go on.

    Raises
    ------
    RuntimeError
        If others go on as well: they fork more quickly than they can be ended.
    """
    first = sandbox.first_pid
    if sandbox.successor is None and first is not None and not _holds_place(first):
        # Its code may have set another handler, or never get to it. A stopped init does not notice the end of the
        # process, and so keeps the sandbox; but then no process that has lost its parent is ever removed from the list.
        sandbox.stop_init()
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
    kept = {first, sandbox.init_pid, *spared}
    for _ in range(_MAX_ROUNDS):
        others = [pid for pid in _processes_inside(sandbox) if pid not in kept]
        if not others:
            return
        for pid in others:
            _signal(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    raise RuntimeError("processes in the sandbox could not be ended")


def _holds_place(pid: int) -> bool:
    """Tell the first process to hold its place, and return whether it does so."""
    give_up_at = time.monotonic() + _HOLD_SECONDS
    with suppress(OSError):  # it has ended, and the sandbox with it
        program = os.readlink(f"/proc/{pid}/exe")
        os.kill(pid, HOLD_SIGNAL)
        os.kill(pid, signal.SIGCONT)
        while time.monotonic() < give_up_at:
            if os.readlink(f"/proc/{pid}/exe") != program:
                _signal(pid, signal.SIGSTOP)  # whatever its program is
                return True
            time.sleep(_POLL_SECONDS)
    return False


def _processes_inside(sandbox: SandboxProcess) -> Iterator[int]:
    """Yield the living processes in the sandbox's own list of processes."""
    with suppress(OSError):  # it has ended
        namespace = os.stat(f"/proc/{sandbox.init_pid}/ns/pid")
        for entry in os.listdir("/proc"):
            with suppress(OSError):
                if not entry.isdigit():
                    continue
                found = os.stat(f"/proc/{entry}/ns/pid")
                if (found.st_dev, found.st_ino) == (namespace.st_dev, namespace.st_ino) and not _has_ended(entry):
                    yield int(entry)


def _has_ended(pid: str) -> bool:
    """Return whether all threads of a process have ended: the first one may have, and others run on."""
    states = (Path(f"/proc/{pid}/task/{task}/stat").read_text() for task in os.listdir(f"/proc/{pid}/task"))
    return all(state.rpartition(")")[2].split()[0] in "ZX" for state in states)


def _signal(pid: int, signum: int) -> None:
    with suppress(OSError):
        os.kill(pid, signum)
