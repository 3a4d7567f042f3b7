"""Signal handling of commands: Ctrl-C stops the code first, and SIGTERM and SIGHUP close sessions."""

from __future__ import annotations

import contextlib
import getpass
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..errors import ExecError
from ..models import InputRequestEvent
from .escape_filter import without_escapes


class Interrupts:
    """Handler of Ctrl-C while code runs: the first one stops the code, the second one ends the command.

    Attributes
    ----------
    stop : callable or None
        Stops the code; None until the code is sent.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self._stopping = False
        self._asking = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.stop is None or self._stopping or self._asking:
            raise KeyboardInterrupt
        self._stopping = True
        print("Interrupting; once more to leave.", file=sys.stderr)
        threading.Thread(target=self._stop, args=(self.stop,), daemon=True).start()

    def _stop(self, stop: Callable[[], object]) -> None:
        try:
            stop()
        except ExecError as error:
            print(f"jupyter exec: the code could not be interrupted: {error.message}", file=sys.stderr)

    def ask(self, event: InputRequestEvent) -> str:
        """Ask the user for the answer to the code's ``input()``; Ctrl-C here sends no answer."""
        self._asking = True
        try:
            prompt = without_escapes(event.prompt)
            return getpass.getpass(prompt) if event.password else input(prompt)
        except EOFError:
            print("\njupyter exec: there is no more input; the code is cancelled", file=sys.stderr)
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


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that sessions on a server are closed."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with contextlib.ExitStack() as undo:
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                undo.callback(signal.signal, number, signal.signal(number, leave))
        yield
