"""Fork safety: a forked child replaces the locks and connections that it has from its parent.

A lock that another thread holds at the fork stays locked in the child for ever, since that thread does not exist there.
On a connection that both processes use, each reads answers to the other.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakMethod, WeakSet


class Renewable(Protocol):
    """Interface of an object that replaces its locks and connections in a child."""

    def after_fork(self) -> None:
        """Replace locks and connections; called in the child after the fork. It must close none of the parent's."""


_renewables: WeakSet[Any] = WeakSet()
_kept: list[object] = []  # never emptied: closing one would cut the parent's connection
# Weak, since a stopped server leaves `atexit` and this list should not keep it alive.
_at_exit: list[WeakMethod[Callable[[], object]]] = []


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing.after_fork` called in each child that is forked while the object exists."""
    _renewables.add(thing)


def keep_for_parent(thing: object) -> None:
    """Keep an object of the parent alive in a child, so that the garbage collector does not close it."""
    _kept.append(thing)


def atexit_in_this_process(stop: Callable[[], object]) -> None:
    """Register a bound method with `atexit`, but not in children, which must not stop the parent's servers."""
    atexit.register(stop)
    _at_exit[:] = [*(method for method in _at_exit if method() is not None), WeakMethod(stop)]


class OwnerProcess:
    """The process that made an object, or entered its ``with`` block; only it ends the session or server behind it.

    A forked child has the object, too, and leaves its parent's block by an exception or `sys.exit`.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_current(self) -> bool:
        """Return whether this process is the owner."""
        return os.getpid() == self._pid


def _renew() -> None:
    for method in _at_exit:
        if (stop := method()) is not None:
            atexit.unregister(stop)
    for thing in list(_renewables):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew)


class ProcessLock:
    """A `threading.Lock` for ``with`` that is unlocked in a child, even if a thread of the parent holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Unlock in the child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        if self._lock.locked():  # it is unlocked if the thread that held it has forked and this is the child
            self._lock.release()
