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
_HOLDER = b"sleep"
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
            _kill(pid)
        time.sleep(_ROUND_SECONDS)


def _holds_place(pid: int) -> bool:
    """Tell the first process to hold its place, and return whether it does so."""
    give_up_at = time.monotonic() + _HOLD_SECONDS
    with suppress(OSError):  # it has ended, and the sandbox with it
        os.kill(pid, HOLD_SIGNAL)
        os.kill(pid, signal.SIGCONT)
        while time.monotonic() < give_up_at:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_HOLDER):
                return True
            time.sleep(_POLL_SECONDS)
    return False


def _processes_inside(sandbox: SandboxProcess) -> Iterator[int]:
    """Yield the living processes in the sandbox's own list of processes."""
    with suppress(OSError):  # it has ended
        namespace = os.stat(f"/proc/{sandbox.init_pid}/ns/pid")
        for entry in os.listdir("/proc"):
            with suppress(OSError):
                found = os.stat(f"/proc/{entry}/ns/pid") if entry.isdigit() else None
                if found is not None and (found.st_dev, found.st_ino) == (namespace.st_dev, namespace.st_ino):
                    os.readlink(f"/proc/{entry}/exe")  # one that has ended has none
                    yield int(entry)


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
