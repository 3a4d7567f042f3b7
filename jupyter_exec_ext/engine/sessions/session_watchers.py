"""Watchers of one session, which show what happens in it at once, as clients of Jupyter's protocol do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Learn of a message of a comm, such as a widget's, or of what the kernel sends for one.

        Parameters
        ----------
        parent : mapping
            The header of the client's message that has caused it; empty if there is none.
        """


class SessionWatchers:
    """The watchers of one session."""

    def __init__(self) -> None:
        self._watchers: list[SessionWatcher] = []

    def add(self, watcher: SessionWatcher) -> Callable[[], None]:
        """Notify a watcher from now on; return a function that ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_execution(self, execution: LiveExecution) -> None:
        """Pass on an execution."""
        for watcher in [*self._watchers]:
            watcher.on_execution(execution)

    def on_record(self, record: Session) -> None:
        """Pass on the record."""
        for watcher in [*self._watchers]:
            watcher.on_record(record)

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Pass on a message of a comm, or what the kernel sends for one."""
        for watcher in [*self._watchers]:
            watcher.on_comm_output(message, parent)
