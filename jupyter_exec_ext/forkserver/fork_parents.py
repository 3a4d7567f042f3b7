"""Registry of fork parents: one for each program, started on first use and renewed when outdated."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from .fork_parent import ForkParent, ParentGoneError, ThreadsError
from .forkable_command import NotForkableError, Program
from .forked_process import ForkedProcess

# Each holds the memory of its imports.
_MAX_PARENTS = 8
# For so long a program that could not become a parent is not tried again.
_PATIENCE_SECONDS = 30.0
_TRIES = 3


@dataclass(slots=True)
class _Entry:
    begun: float = field(default_factory=time.monotonic)
    parent: concurrent.futures.Future[ForkParent] = field(default_factory=concurrent.futures.Future)

    @property
    def is_usable(self) -> bool:
        if not self.parent.done():
            return True
        if self.parent.exception() is not None:
            return time.monotonic() - self.begun < _PATIENCE_SECONDS
        parent = self.parent.result()
        return not parent.is_gone and not parent.is_outdated


class ForkParents:
    """The fork parents of one process. What is called here blocks, and may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Program, _Entry] = OrderedDict()

    def fork(
        self, program: Program, descriptors: Sequence[int], log: logging.Logger | logging.LoggerAdapter[Any]
    ) -> ForkedProcess:
        """Fork a kernel from the parent for a program, which is started if there is none.

        Raises
        ------
        NotForkableError
        OSError
            If there can be no further process.
        """
        for _ in range(_TRIES):
            try:
                return self.parent(program, log).fork(descriptors)
            except ParentGoneError:
                continue
        raise NotForkableError("its parent has ended again and again")

    def parent(self, program: Program, log: logging.Logger | logging.LoggerAdapter[Any]) -> ForkParent:
        """Return the parent for a program; whoever comes first starts it, and the others wait for that.

        Raises
        ------
        NotForkableError
        """
        with self._lock:
            entry = self._entries.get(program)
            outdated = None
            if entry is None or not entry.is_usable:
                outdated, entry = entry, _Entry()
                self._entries[program] = entry
                is_first = True
            else:
                is_first = False
            self._entries.move_to_end(program)
            surplus = [self._entries.popitem(last=False)[1] for _ in range(len(self._entries) - _MAX_PARENTS)]
        for old in (outdated, *surplus):
            if old is not None:
                old.parent.add_done_callback(_retire)
        if is_first:
            try:
                entry.parent.set_result(_started(program, log))
            except BaseException as error:
                entry.parent.set_exception(error)
        return entry.parent.result()


def _retire(parent: concurrent.futures.Future[ForkParent]) -> None:
    if parent.exception() is None:
        parent.result().retire()


def _started(program: Program, log: logging.Logger | logging.LoggerAdapter[Any]) -> ForkParent:
    while True:
        try:
            parent = ForkParent(program)
        except ThreadsError as error:
            if error.module not in program.preload:
                raise
            log.warning("kernels are forked without a module of `preload`: %s", error)
            program = replace(program, preload=tuple(name for name in program.preload if name != error.module))
            continue
        for note in parent.notes:
            log.warning("kernels are forked from process %d, but %s", parent.pid, note)
        return parent


def fork_parents() -> ForkParents:
    """Return this process's own; one that was forked has not those of its parent."""
    return _of_process(os.getpid())


@cache
def _of_process(_: int) -> ForkParents:
    return ForkParents()
