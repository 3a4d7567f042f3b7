"""Backpressure on kernels that send much: bounds on the memory of their messages, and fair turns of reading.

One bound is for each kernel, and one for all of them together. A kernel says how long a message is, and sends as much
of it as it likes. So what has arrived is counted, not what was announced. When there is too much, the largest message
that is still incomplete is given up; messages that are complete are being read, and end by themselves, so others wait
for them.

A kernel whose messages come faster than they are read would keep the event loop busy, and ten of them the whole server.
Where such kernels take the processors, too, a server that always wants to run gets only its share of them, and every
other request waits for that. So they yield the event loop to all others, and the reader rests in between: a process
that rests gets a processor at once when something comes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class MessageReceiver(Protocol):
    """Receiver of a kernel's messages."""

    def partial_bytes(self) -> int:
        """Return the size of its incomplete messages."""

    def give_up_largest(self, reason: str) -> None:
        """Give up the largest of its incomplete messages."""

    def memory_available(self) -> None:
        """Go on with a message that had to wait."""


class MessageMemory:
    """The memory of all kernels' messages.

    Parameters
    ----------
    max_kernel_bytes, max_total_bytes : int
        Bounds for one kernel and for all together.
    """

    def __init__(self, max_kernel_bytes: int, max_total_bytes: int) -> None:
        self.max_kernel_bytes = max_kernel_bytes
        self.max_total_bytes = max_total_bytes
        self.used_bytes = 0
        self.has_waiting = False
        self._shares: set[KernelMemory] = set()
        self._lock = threading.Lock()

    def open(self, receiver: MessageReceiver) -> KernelMemory:
        """Return the share of one more kernel; close it in the end. To be called in the event loop."""
        share = KernelMemory(self, receiver, asyncio.get_running_loop())
        self._shares.add(share)
        return share

    def forget(self, share: KernelMemory) -> None:
        """Take note that a kernel sends nothing more; what was read of it is released later."""
        self._shares.discard(share)

    def add(self, share: KernelMemory, size: int) -> None:
        """Count bytes, which may be fewer than none; from any thread."""
        # A message gives its memory back in the thread that drops it last, such as a worker that reads it.
        with self._lock:
            share.used_bytes += size
            self.used_bytes += size

    def make_room(self, share: KernelMemory, size: int) -> bool:
        """Return whether there is room for `size` further bytes of a kernel, giving up a message if need be."""
        if share.used_bytes + size > self.max_kernel_bytes:
            if share.receiver.partial_bytes() >= share.used_bytes:  # nothing is released by itself
                share.receiver.give_up_largest(
                    f"the kernel's messages together have more than {self.max_kernel_bytes:,} bytes (max_message_bytes)"
                )
            return False
        if self.used_bytes + size <= self.max_total_bytes:
            return True
        # Complete messages free their memory once they are read. So one is given up only where incomplete ones,
        # which may never end, have more than half of it.
        largest = max(self._shares, key=lambda each: each.receiver.partial_bytes())
        partial_bytes = sum(each.receiver.partial_bytes() for each in self._shares)
        if 2 * partial_bytes > self.used_bytes:
            largest.receiver.give_up_largest(
                f"the messages of all kernels together have more than {self.max_total_bytes:,} bytes "
                "(max_all_messages_bytes)"
            )
            # Most likely the message that asked for room is the one that was given up.
            if largest is share:
                return False
        return self.used_bytes + size <= self.max_total_bytes

    def wake_waiting(self) -> None:
        """Let those go on that wait for memory."""
        # Before the calls: a message that has to wait again sets both marks again.
        self.has_waiting = False
        # A copy, since a receiver may close its connection while it goes on.
        for share in [share for share in self._shares if share.waits]:
            share.waits = False
            share.receiver.memory_available()


class KernelMemory:
    """One kernel's share of the memory for messages.

    Attributes
    ----------
    used_bytes : int
        Memory of its messages in bytes.
    waits : bool
        Whether a message waits for memory.
    """

    def __init__(self, memory: MessageMemory, receiver: MessageReceiver, loop: asyncio.AbstractEventLoop) -> None:
        self.receiver = receiver
        self.used_bytes = 0
        self.waits = False
        self._memory = memory
        self._loop = loop

    @property
    def max_message_bytes(self) -> int:
        """The bound on one message."""
        return self._memory.max_kernel_bytes

    def reserve(self, size: int) -> bool:
        """Count `size` further bytes of a message; return False if it has to wait, or was given up."""
        has_other_waiting = self.waits  # a message on another channel
        # Before the check: what is released from here on, as by a message that is given up for this one, wakes it.
        self.waits = self._memory.has_waiting = True
        if not self._memory.make_room(self, size):
            return False
        self.waits = has_other_waiting
        self._memory.add(self, size)
        return True

    def release(self, size: int) -> None:
        """Give bytes back; from any thread."""
        self._memory.add(self, -size)
        if self._memory.has_waiting:
            with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
                self._loop.call_soon_threadsafe(self._memory.wake_waiting)

    def close(self) -> None:
        """Receive nothing more."""
        self._memory.forget(self)


# With this factor, reading a flood takes about a fifth of the time while other processes want the processors.
_REST_FACTOR = 4
_MAX_REST_SECONDS = 0.1


class Turns:
    """Turns of reading: calls one reader after the other, and rests in between.

    A rest is a multiple of what the turn before it took and of how late that came, both by the clock: the less of the
    processor we get, the longer others have it. A turn that is alone rests only while others want the processors: what
    counts is how long this process waited for one, and as much of the work. That a turn comes late because the process
    did something else, such as to hand on what came with the last one, is no reason for a rest.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._next: asyncio.TimerHandle | None = None
        self._rest_until = 0.0  # kept while no turn waits, or a flood could skip its rest
        self._used_seconds = 0.0  # the processor time of this process, when the next turn was planned

    def take(self, turn: Callable[[], None]) -> None:
        """Call `turn` once, when it is its turn; it may take another one."""
        self._waiting.append(turn)
        if self._next is None:
            self._schedule()

    def _schedule(self) -> None:
        now = time.monotonic()
        due = max(now, self._rest_until)  # a rest may be over long ago
        self._used_seconds = time.process_time()
        self._next = asyncio.get_running_loop().call_later(due - now, self._call, due)

    def _call(self, due: float) -> None:
        turn = self._waiting.popleft()
        alone = not self._waiting
        began = time.thread_time()
        try:
            turn()
        finally:
            # Processor time of this thread: waiting for a processor is no work of the turn.
            worked, passed = time.thread_time() - began, time.monotonic() - due
            if alone:
                # The process's own processor time is subtracted; the rest was waiting for a processor.
                waited = max(passed - (time.process_time() - self._used_seconds), 0.0)
                counted = min(worked, waited)
            else:
                waited, counted = max(passed - worked, 0.0), worked
            self._rest_until = time.monotonic() + min(_REST_FACTOR * (waited + counted), _MAX_REST_SECONDS)
            self._next = None
            if self._waiting:
                self._schedule()

    def close(self) -> None:
        """Drop the turns that are still waiting."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
