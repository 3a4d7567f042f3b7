"""Ctrl-C while code runs: the first one stops the code, the second one ends the command."""

from __future__ import annotations

import getpass
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..errors import ExecError
from ..models import InputRequestEvent
from .messages import print_message
from .terminal_text import without_escapes


class Interrupts:
    """Handler of Ctrl-C while code runs: the first one stops the code, the second one ends the command.

    Attributes
    ----------
    stop : callable or None
        Stops the code; None while no code runs.
    is_stopping : bool
        Whether Ctrl-C has been pressed while code ran.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self.is_stopping = False
        self._asking = False

    def forget(self) -> None:
        """Remove the callback after the code has ended."""
        self.stop = None

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.stop is None or self.is_stopping or self._asking:
            raise KeyboardInterrupt
        self.is_stopping = True
        print("Interrupting the code. Press Ctrl-C again to quit.", file=sys.stderr)
        threading.Thread(target=self._stop, args=(self.stop,), daemon=True).start()  # the main thread must go on

    def _stop(self, stop: Callable[[], object]) -> None:
        try:
            stop()
        except ExecError as error:
            print_message(f"the code could not be interrupted: {error.message}")

    def ask(self, event: InputRequestEvent) -> str:
        """Ask the user for the answer to the code's ``input()``; Ctrl-C here sends no answer."""
        self._asking = True
        try:
            prompt = without_escapes(event.prompt)
            return getpass.getpass(prompt) if event.password else input(prompt)
        except EOFError:
            print(file=sys.stderr)
            print_message("there is no more input; the code is cancelled")
            # Ends the stream like a second Ctrl-C, and leaving its context cancels the code.
            raise KeyboardInterrupt from None
        finally:
            self._asking = False


@contextmanager
def ctrl_c(interrupts: Interrupts) -> Iterator[Interrupts]:
    """Handle Ctrl-C by `interrupts`."""
    previous = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)
