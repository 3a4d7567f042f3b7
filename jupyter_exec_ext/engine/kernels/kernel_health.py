"""Health of a kernel that runs code: tells a busy kernel from one that hangs or is stopped.

The control channel has a thread of its own in the kernel: it answers within milliseconds while Python runs or sleeps,
and not at all while native code holds the interpreter lock or the process is stopped (SIGSTOP, a debugger). So one
question at a time is asked there, and how long it has been open tells *hung* from *busy*. The process table tells
*stopped* from the rest.

Kernels without such a thread answer late whenever they are busy. A kernel is therefore only called hung if its
language's kernel is known to answer, or if it has been seen to answer while it ran something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ...models import OutputEvent, ResponsiveEvent, UnresponsiveEvent
from .process_state import is_stopped

STOPPED = "stopped"
NOT_ANSWERING = "not answering"

# Together at most 4.5 s from the last sign of life to the event, so that 5 s hold on a loaded machine, too.
_LOOK_SECONDS = 0.25
_ASK_SECONDS = 1.0
_ANSWER_SECONDS = 3.2
_STOPPED_SECONDS = 0.5


class Pulse(Protocol):
    """Where a kernel is asked and answers."""

    @property
    def asked_at(self) -> float | None:
        """When the open question was asked, by the event loop's clock; None if there is none."""

    def look(self) -> None:
        """Take in answers that have arrived and were not read yet."""

    def ask(self) -> None:
        """Ask the kernel for a sign of life."""


class HasPid(Protocol):
    """Kernel whose process may be known."""

    @property
    def pid(self) -> int | None:
        """Its process, if it is one of this machine."""


def diagnose(waited_seconds: float, *, stopped: bool, answers_while_busy: bool) -> str | None:
    """Return why a kernel counts as unresponsive after `waited_seconds` without an answer; None if it does not."""
    if stopped and waited_seconds >= _STOPPED_SECONDS:
        return STOPPED
    if answers_while_busy and waited_seconds >= _ANSWER_SECONDS:
        return NOT_ANSWERING
    return None


class HealthWatch:
    """Watch a kernel for as long as it runs one execution.

    Parameters
    ----------
    kernel : HasPid
        The kernel whose process the system may have stopped.
    emit : callable
        Gets an `UnresponsiveEvent` when answers stay away and a `ResponsiveEvent` when they come again.
    answers_while_busy : bool
        Whether silence is known to mean something; learned from the first answer otherwise.
    on_answer : callable
        Called at every answer, so that what was learned outlives the watch.
    """

    def __init__(
        self,
        pulse: Pulse,
        kernel: HasPid,
        emit: Callable[[OutputEvent], None],
        *,
        answers_while_busy: bool,
        on_answer: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pulse = pulse
        self._kernel = kernel
        self._emit = emit
        self._answers_while_busy = answers_while_busy
        self._on_answer = on_answer
        self.unresponsive = False
        self._asking = False
        self._last_answer_at = self._loop.time()
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._tick)

    def close(self) -> None:
        """End the watch."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._tick)
        # If this loop was held up, the answer lies there already: never blame the kernel for that.
        self._pulse.look()
        now = self._loop.time()
        asked_at = self._pulse.asked_at
        if asked_at is not None:
            self._judge(now - asked_at)
        elif self._asking:
            self._answered(now)
        elif now - self._last_answer_at >= _ASK_SECONDS:
            self._asking = True
            self._pulse.ask()

    def _answered(self, now: float) -> None:
        self._asking = False
        self._last_answer_at = now
        self._answers_while_busy = True
        self._on_answer()
        if self.unresponsive:
            self.unresponsive = False
            self._emit(ResponsiveEvent())

    def _judge(self, waited_seconds: float) -> None:
        if self.unresponsive or waited_seconds < _STOPPED_SECONDS:
            return
        reason = diagnose(
            waited_seconds, stopped=is_stopped(self._kernel.pid), answers_while_busy=self._answers_while_busy
        )
        if reason is not None:
            self.unresponsive = True
            self._emit(UnresponsiveEvent(reason))
