"""Watchers of one session: those who show what happens in it at once, such as clients of Jupyter's protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...models import Session
from ...protocol.kernel_messages import KernelMessage
from ..executions.live_execution import LiveExecution


class SessionWatcher(Protocol):
    """Watcher of one session. It must not wait, and must not fail."""

    def on_execution(self, execution: LiveExecution) -> None:
        """Learn of an execution that was accepted, whoever has sent its code."""

    def on_record(self, record: Session) -> None:
        """Learn of the session's record, which has changed."""

    def on_comm(self, message: KernelMessage) -> None:
        """Learn of a message that belongs to a comm, such as that of a widget."""


class SessionWatchers:
    """The watchers of one session, which are told at once."""

    def __init__(self) -> None:
        self._watchers: list[SessionWatcher] = []

    def add(self, watcher: SessionWatcher) -> Callable[[], None]:
        """Tell a watcher from now on; return a function that ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_execution(self, execution: LiveExecution) -> None:
        """Tell all of an execution."""
        for watcher in [*self._watchers]:
            watcher.on_execution(execution)

    def on_record(self, record: Session) -> None:
        """Tell all of the record."""
        for watcher in [*self._watchers]:
            watcher.on_record(record)

    def on_comm(self, message: KernelMessage) -> None:
        """Tell all of a message of a comm."""
        for watcher in [*self._watchers]:
            watcher.on_comm(message)
