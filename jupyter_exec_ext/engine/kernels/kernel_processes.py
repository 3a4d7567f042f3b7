"""Processes of a session's kernel: their memory, the health of a kernel that runs code, and the kernel's exit.

`death_report` explains the exit of a kernel that was not asked to.

The health tells a busy kernel from one that hangs or is stopped. The control channel has a thread of its own in the
kernel: it answers within milliseconds while Python runs or sleeps, and not at all while native code holds the
interpreter lock or the process is stopped (SIGSTOP, a debugger). So one question at a time is asked there, and how long
it has been open tells *hung* from *busy*. The process table tells *stopped* from the rest.

Kernels without such a thread answer late whenever they are busy. A kernel is therefore only called hung if its
language's kernel is known to answer, or if it has been seen to answer while it ran something.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import psutil

from ...models import OutputEvent, ResponsiveEvent, UnresponsiveEvent
from ...system.marked_processes import kill_marked
from ..concurrency import MARGIN_SECONDS, WatchdogExpired, ends_within
from ..ports import Kernel
from .kernel_connection import KernelConnection


def is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal or a debugger."""
    if pid is None:
        return False
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def memory_bytes(pid: int | None) -> int:
    """Return the memory of a process, of what it shares its part alone where the system tells; 0 if that is unknown."""
    if pid is None:
        return 0
    try:
        process = psutil.Process(pid)
        try:
            found = process.memory_full_info()
            return int(getattr(found, "pss", 0) or found.rss)
        except psutil.AccessDenied:  # what it shares is kept from us; how much it is with that is not
            return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def own_memory_bytes(pid: int) -> int | None:
    """Return the memory that a process shares with no other; None if that is unknown. Blocks."""
    try:
        found = psutil.Process(pid).memory_full_info()
    except psutil.Error:
        return None
    return int(getattr(found, "uss", 0)) or None


def sum_memory_bytes(root: int | None, others: Collection[int]) -> int:
    """Return the memory of a process, all below it, and other ones, each counted once. Blocks."""
    processes = set(others) if root is None else {root, *others, *processes_below([root])[root]}
    return sum(map(memory_bytes, processes))


def wait_for_end(pid: int, seconds: float) -> None:
    """Wait until a process that was killed has ended, within a bound. Blocks, and is for Linux."""
    try:
        number = os.pidfd_open(pid)
    except OSError:  # it has ended
        return
    poll = select.poll()  # unlike psutil, it does not wait for the parent, too
    poll.register(number, select.POLLIN)
    poll.poll(seconds * 1000)
    os.close(number)


def memory_below(pids: Collection[int]) -> dict[int, int | None]:
    """Return the memory of each process together with all below it; None for one that has ended or cannot be told."""
    return {
        root: own + sum(map(memory_bytes, below)) if (own := memory_bytes(root)) else None
        for root, below in processes_below(pids).items()
    }


def processes_below(pids: Collection[int]) -> dict[int, set[int]]:
    """Return the processes below each process."""
    # One pass for all of them: `Process.children` would read the whole process table for each.
    children: dict[int, list[int]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile
            children.setdefault(process.ppid(), []).append(process.pid)
    return {pid: _below(pid, children) for pid in pids}


def _below(root: int, children: Mapping[int, Sequence[int]]) -> set[int]:
    found, waiting = {root}, [root]
    while waiting:
        # The table is not of one moment: with ids used again it may even have circles.
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found - {root}


FRESH_SECONDS = 3.0
# Measuring takes at most this share of the time, however many processes code has started.
_MAX_SHARE = 0.1


class MemoryMeter:
    """Measures the kernels of sessions."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        #: By session and process: when it was measured, and what was found.
        self._found: dict[tuple[str, int], tuple[float, int | None]] = {}
        self._last_seconds = 0.0

    async def measure(self, pids: Mapping[str, int]) -> dict[str, int | None]:
        """Return what kernels use, with the processes below them, by the ids of their sessions; None if unknown.

        Parameters
        ----------
        pids : mapping
            The kernels' processes, by the ids of their sessions.
        """
        # Callers that come meanwhile wait, and then find the fresh figures instead of measuring again.
        async with self._turn:
            began = time.monotonic()
            oldest = began - max(FRESH_SECONDS, self._last_seconds / _MAX_SHARE)
            self._found = {key: found for key, found in self._found.items() if found[0] > oldest}
            wanted = {pid for session_id, pid in pids.items() if (session_id, pid) not in self._found}
            if wanted:
                now = await asyncio.to_thread(memory_below, wanted)
                moment = time.monotonic()
                self._last_seconds = moment - began
                self._found |= {(sid, pid): (moment, now[pid]) for sid, pid in pids.items() if pid in wanted}
            return {session_id: self._found[session_id, pid][1] for session_id, pid in pids.items()}


# A kernel that has no answer for this long will not exit politely either.
_POLITE_SECONDS = 1.0
# How long a kernel may take to exit that was asked to.
_EXIT_SECONDS = 2.5


async def ask_to_exit(kernel: Kernel, connection: KernelConnection | None, *, restart: bool) -> bool:
    """Ask a kernel to exit and wait for that; return False for one of another machine, which its host has to ask.

    Not left to the host for the others: it would read the kernel's messages without a bound. The caller has ended its
    own watch of the kernel's exit.
    """
    if await asyncio.to_thread(is_stopped, kernel.pid):
        return True  # it would not see the request
    # Only if it has answered there before: other kernels are silent whenever they are busy.
    if connection is not None and connection.answers_on_control and not await connection.answers(_POLITE_SECONDS):
        return True
    if connection is None or kernel.pid is None:
        return False
    exited = asyncio.Event()
    unwatch = kernel.watch_exit(lambda _: exited.set())
    connection.send("control", "shutdown_request", {"restart": restart})
    with suppress(asyncio.TimeoutError):  # then it is killed
        await asyncio.wait_for(exited.wait(), _EXIT_SECONDS)
    unwatch()
    return True


async def kill_kernel(kernel: Kernel, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Kill a kernel, within a bound."""
    try:
        await ends_within(MARGIN_SECONDS, kernel.kill())
    except WatchdogExpired:
        log.exception("kernel %s could not be ended", kernel.kernel_id)


async def end_left_behind(session_id: str, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """End the processes that a session's kernels have left behind. Only while none of its kernels lives."""
    for pid in await asyncio.to_thread(kill_marked, {session_id}):
        log.info("session %s: ended process %d, which its kernel had left behind", session_id, pid)


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
        # Most answers come earlier, and the process table need not be read for them.
        if self.unresponsive or waited_seconds < _STOPPED_SECONDS:
            return
        reason = diagnose(
            waited_seconds, stopped=is_stopped(self._kernel.pid), answers_while_busy=self._answers_while_busy
        )
        if reason is not None:
            self.unresponsive = True
            self._emit(UnresponsiveEvent(reason))
