"""Watchers of one session: they receive its executions, changes of its record, and messages of comms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ...models import Session
from ...protocol.kernel_messages import KernelMessage
from ..executions.live_execution import LiveExecution


class SessionWatcher(Protocol):
    """Observer of one session. Its methods must neither block nor raise."""

    def on_execution(self, execution: LiveExecution) -> None:
        """Handle a new execution, of any client.

        Parameters
        ----------
        execution : LiveExecution
            The execution, which was accepted.
        """

    def on_record(self, record: Session) -> None:
        """Handle a change of the session's record.

        Parameters
        ----------
        record : Session
            The new record.
        """

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Handle a message of a comm, such as a widget's, or output of a comm's handler.

        Parameters
        ----------
        message : KernelMessage
            Message of the kernel.
        parent : mapping
            Header of the client's message that caused it; empty if code caused it.
        """


class SessionWatchers:
    """Subject of the observer pattern: notifies all watchers of one session."""

    def __init__(self) -> None:
        self._watchers: list[SessionWatcher] = []

    def add(self, watcher: SessionWatcher) -> Callable[[], None]:
        """Add a watcher.

        Parameters
        ----------
        watcher : SessionWatcher
            The watcher.

        Returns
        -------
        callable
            Removes the watcher; a second call has no effect.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_execution(self, execution: LiveExecution) -> None:
        """Notify all watchers of an execution.

        Parameters
        ----------
        execution : LiveExecution
            The execution.
        """
        for watcher in [*self._watchers]:
            watcher.on_execution(execution)

    def on_record(self, record: Session) -> None:
        """Notify all watchers of the session's record.

        Parameters
        ----------
        record : Session
            The new record.
        """
        for watcher in [*self._watchers]:
            watcher.on_record(record)

    def on_comm_output(self, message: KernelMessage, parent: Mapping[str, str]) -> None:
        """Notify all watchers of a message of a comm, or of output of its handler.

        Parameters
        ----------
        message : KernelMessage
            Message of the kernel.
        parent : mapping
            Header of the client's message that caused it; empty if code caused it.
        """
        for watcher in [*self._watchers]:
            watcher.on_comm_output(message, parent)
