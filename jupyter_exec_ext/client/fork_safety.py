"""Objects after a fork: locks and connections belong to the process that made them, and a child makes its own.

A lock that another thread held at the fork stays held for ever in the child, which has not that thread. On a connection
that both processes use, each reads answers that were meant for the other.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakMethod, WeakSet


class Renewable(Protocol):
    """An object that makes its locks and connections anew in a child."""

    def after_fork(self) -> None:
        """Forget what belongs to the parent; called in the child, before it goes on. Must close nothing."""


_renewables: WeakSet[Any] = WeakSet()
_kept: list[object] = []
_at_exit: list[WeakMethod[Callable[[], object]]] = []


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing.after_fork` called in each child that is forked while the object exists."""
    _renewables.add(thing)


def keep_for_parent(thing: object) -> None:
    """Keep, in a child, what the parent still uses, so that the garbage collector does not close it."""
    _kept.append(thing)


def atexit_in_this_process(stop: Callable[[], object]) -> None:
    """Register a bound method with `atexit`, but not in children: they must not end what is the parent's."""
    atexit.register(stop)
    _at_exit[:] = [*(method for method in _at_exit if method() is not None), WeakMethod(stop)]


def _renew() -> None:
    for method in _at_exit:
        if (stop := method()) is not None:
            atexit.unregister(stop)
    for thing in list(_renewables):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class ProcessLock:
    """A `threading.Lock` for ``with`` that is free in a child, whoever held it in the parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Have a lock of this process."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        if self._lock.locked():  # not where the thread that held it has forked, and goes on in the child
            self._lock.release()
