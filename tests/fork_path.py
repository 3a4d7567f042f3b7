"""What a fork parent does for each kernel, and what the kernel copies of its memory.

    python -m tests.fork_path              the figures, as JSON
    python -m tests.fork_path --functions  also what was called how often

The parent serves in this process, and is asked by another; its children end where a kernel would begin. Counted is
what one thread does, so it is the same every time.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from unittest.mock import patch

from jupyter_exec_ext.provisioners.forkserver import program

COUNTED_FORKS = 20


class _Ended(BaseException):
    """The parent has nothing more to do."""


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count the calls in here, of Python's functions and of C's, which for the most part are the system's."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls["calls"] += 1
        elif event == "c_call":
            calls[argument.__qualname__] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def measure() -> Counter[str]:
    """Return how often what was called for `COUNTED_FORKS` kernels, one after the other."""
    ours, theirs = socket.socketpair()
    asking = os.fork()
    if asking == 0:
        theirs.close()
        _ask(ours)
    ours.close()
    exits: list[int] = []

    def end(code: int) -> NoReturn:
        exits.append(code)
        raise _Ended

    own_exit, parent = os._exit, os.getpid()
    with patch.object(os, "_exit", end), _counted() as calls:
        try:
            program._serve(theirs, lambda: None)
        except _Ended:
            pass
        finally:
            if os.getpid() != parent:
                own_exit(0)
    assert exits == [0], exits
    with suppress(ChildProcessError):  # the parent may have taken it for one of its own
        os.waitpid(asking, 0)
    return calls


def _ask(control: socket.socket) -> NoReturn:
    """Ask for kernels until there have been enough, each when the one before has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with control.makefile("rb") as lines, open(os.devnull, "rb") as nothing:
        for _ in range(COUNTED_FORKS):
            socket.send_fds(control, [b"f"], [nothing.fileno()] * 4)
            said = sorted((lines.readline().split()[0], lines.readline().split()[0]))
            assert said == [b"exited", b"forked"], said
    control.shutdown(socket.SHUT_WR)
    os._exit(0)


def figures(calls: Counter[str]) -> dict[str, int]:
    """Return what one kernel costs its parent."""
    everything = calls.total() - calls["calls"]
    kept = {"calls": calls["calls"], "c_calls": everything, "forks": calls["fork"], "closes": calls["close"]}
    return {name: round(count / COUNTED_FORKS) for name, count in kept.items()}


def main() -> None:
    """Print the figures."""
    calls = measure()
    print(json.dumps(figures(calls)))
    if "--functions" in sys.argv:
        for function, count in calls.most_common():
            print(f"{count / COUNTED_FORKS:6.1f} {function}")


if __name__ == "__main__":
    main()
