"""Removal of the kernel from a running sandbox, so that one forked from a checkpoint can take its place there.

A sandbox ends with its first process, which is the kernel that it was made for. So that one becomes a placeholder: a
program that sleeps. It does so at a signal for which a checkpoint has set a handler. Everything else inside ends.
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

#: At this signal, which no library uses, the first process of a sandbox becomes the placeholder.
PLACEHOLDER_SIGNAL = signal.SIGRTMIN + 13 if sys.platform == "linux" else 0
_PLACEHOLDER_SECONDS, _POLL_SECONDS = 1.0, 0.001
# A process may fork between being found and being killed; a few rounds outrun that.
_MAX_ROUNDS, _ROUND_SECONDS = 50, 0.01


def end_kernel(sandbox: SandboxProcess, spared_pids: Collection[int]) -> None:
    """End the kernel of a sandbox and all that it has started, and keep the sandbox. Blocks for about a second at most.

    Parameters
    ----------
    sandbox : SandboxProcess
        The sandbox.
    spared_pids : collection of int
        Processes inside that go on.

    Raises
    ------
    RuntimeError
        If others go on as well: they fork more quickly than they can be ended.
    """
    first = sandbox.original_kernel_pid
    if sandbox.successor is None and first is not None and not _turn_into_placeholder(first):
        # Its code may have set another handler, or never get to it. A stopped init does not notice the end of the
        # process, and so keeps the sandbox; but then no process that has lost its parent is ever removed from the list.
        sandbox.suspend_init()
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
    staying = {first, sandbox.init_pid, *spared_pids}
    for _ in range(_MAX_ROUNDS):
        others = [pid for pid in _processes_inside(sandbox) if pid not in staying]
        if not others:
            return
        for pid in others:
            _signal(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)
    raise RuntimeError("processes in the sandbox could not be ended")


def _turn_into_placeholder(pid: int) -> bool:
    """Tell the first process to become the placeholder, and return whether it did."""
    give_up_at = time.monotonic() + _PLACEHOLDER_SECONDS
    with suppress(OSError):  # it has ended, and the sandbox with it
        program = os.readlink(f"/proc/{pid}/exe")
        os.kill(pid, PLACEHOLDER_SIGNAL)
        os.kill(pid, signal.SIGCONT)
        while time.monotonic() < give_up_at:
            if os.readlink(f"/proc/{pid}/exe") != program:
                _signal(pid, signal.SIGSTOP)  # whatever its program is
                return True
            time.sleep(_POLL_SECONDS)
    return False


def _processes_inside(sandbox: SandboxProcess) -> Iterator[int]:
    """Yield the living processes in the sandbox's process namespace."""
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
