"""Counts what a piece of work makes Python do, which is the same on a fast machine and on a slow one."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jupyter_exec_ext

_OURS = str(Path(jupyter_exec_ext.__file__).parent)
_SYNCS = ("fsync", "fdatasync")
# What is counted by its name, whoever calls it: (file's end, function) in Python, or a function in C.
_NAMED = {
    ("selectors.py", "select"): "loop_turns",
    ("concurrent/futures/thread.py", "submit"): "thread_jobs",
    ("asyncio/base_events.py", "call_soon_threadsafe"): "wake_ups",
    ("asyncio/base_events.py", "create_task"): "tasks",
    ("asyncio/base_events.py", "call_at"): "timers",
    ("json/encoder.py", "encode"): "json_encodes",
    ("json/decoder.py", "decode"): "json_decodes",
}


@dataclass
class Work:
    """What was counted.

    Attributes
    ----------
    calls : int
        Of functions written in Python, each time that a coroutine goes on included.
    own_calls : int
        Those of this package among them.
    by_name : Counter
        What costs more than a call: syncs, jobs for threads, turns of the event loop.
    by_function : Counter
        The calls, by file and function, for whoever wants to know where they come from.
    """

    calls: int = 0
    own_calls: int = 0
    by_name: Counter[str] = field(default_factory=Counter)
    by_function: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, int]:
        """Return the counts that a budget is made of."""
        return {"calls": self.calls, "own_calls": self.own_calls, **dict(sorted(self.by_name.items()))}


class WorkCounter:
    """Counts what the threads do that were started after `install`, and the one that calls it.

    A thread that is not to be counted calls `ignore_this_thread`.
    """

    def __init__(self) -> None:
        self.work = Work()
        self._codes: dict[CodeType, tuple[bool, str | None, str]] = {}

    def install(self) -> None:
        """Begin; counts are added to `work`, which may be replaced at any time."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def uninstall(self) -> None:
        """End it for this thread and for those to come."""
        threading.setprofile(None)
        sys.setprofile(None)

    @contextmanager
    def installed(self) -> Iterator[WorkCounter]:
        """Count in here."""
        self.install()
        try:
            yield self
        finally:
            self.uninstall()

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            own, name, function = self._known(frame.f_code)
            work = self.work
            work.calls += 1
            work.own_calls += own
            work.by_function[function] += 1
            if name is not None:
                work.by_name[name] += 1
        elif event == "c_call":
            self._note_c(arg)

    def _note_c(self, function: Callable[..., Any]) -> None:
        if function.__name__ in _SYNCS:
            self.work.by_name["syncs"] += 1

    def _known(self, code: CodeType) -> tuple[bool, str | None, str]:
        known = self._codes.get(code)
        if known is None:
            path = code.co_filename
            name = next((n for (end, f), n in _NAMED.items() if path.endswith(end) and code.co_name == f), None)
            known = self._codes[code] = (
                path.startswith(_OURS),
                name,
                f"{'/'.join(path.split('/')[-2:])} {code.co_name}",
            )
        return known


def ignore_this_thread() -> None:
    """Do not count what the calling thread does."""
    sys.setprofile(None)
