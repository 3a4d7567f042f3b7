"""How an IPython kernel hands over what it publishes, once `begin` was called in it.

As it comes, ipykernel passes each message to a thread of its own, waits for that thread at the end of a run, and once
more for clients that take the reply for the end of the output. For a short run that is half of its time. Here the main
thread keeps what it publishes until its request has ended, and then sends all of it by itself; the other thread has
only to see to it that nothing waits longer than a moment. What does not go out at once, since a reader is slow, is sent
by that thread, which is waited for.

What is printed is handed over in parts of bounded size, since ipykernel would keep all that is printed within its flush
interval for one message.

Read by ``protocol/kernel_backpressure.py`` and ``forkserver``. A kernel's environment need not have our package,
and its Python and ipykernel may be older.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import sys
import threading
from collections import deque
from typing import Any

import zmq
from ipykernel import ipkernel
from ipykernel.iostream import IOPubThread, OutStream

HELD_NANOSECONDS = 20_000_000
FREED_BYTES = 16 * 1024 * 1024
PART_CHARACTERS = 128 * 1024
REMEMBERED_CHARACTERS = 16 * 1024
_MAIN = threading.main_thread().ident
_send_frame: Any = zmq.backend.Socket.send


def begin(kernel: Any) -> None:
    """Have a kernel send that way; in its main thread."""
    with contextlib.suppress(MemoryError):
        # As in `system/freed_memory.py`: glibc does not give back at once what the next picture or array needs again.
        bytes(FREED_BYTES)
    thread = kernel.iopub_thread
    if hasattr(ipkernel, "_accepts_parameters"):  # it looks at signatures for each run, which is a twentieth of it
        accepts = functools.lru_cache(8)(ipkernel._accepts_parameters)
        ipkernel._accepts_parameters = lambda method, names: accepts(method, tuple(names))
    # Commands go to IPython's history in batches: writing each in a thread beside the next one slows that down.
    kernel.shell.history_manager.db_cache_size = 100
    # After each cell a kernel sleeps for clients that take its reply for the end of its output. We wait for both.
    kernel._execute_sleep = 0
    # It would make a record of each step that no handler wants.
    log = kernel.log
    if log.handlers and not log.propagate:
        log.setLevel(max(log.level, min(handler.level for handler in log.handlers)))
    streams: list[Any] = [stream for stream in (sys.stdout, sys.stderr) if type(stream) is OutStream]
    for stream in streams:
        stream.__class__ = OutStreamInParts
        os.register_at_fork(after_in_child=stream.forget_buffer)
        vars(stream).pop("write", None)  # the former class's, where IPython has put it back after a cell
    if hasattr(kernel.shell, "_tee"):
        kernel.shell._tee = _for_a_while(kernel.shell._tee)
    if type(thread) is IOPubThread:
        kernel._publish_status = _ending_with_idle(thread, kernel._publish_status)
        kernel.do_execute = _noting_the_end(thread, kernel.do_execute)
        kernel.shell.transform_cell = _once_for_each(kernel.shell.transform_cell)
        # By that thread, and by none of its handlers.
        thread.io_loop.add_callback(HoldingIOPubThread.hold, thread, streams)


def _ending_with_idle(thread: Any, publish_status: Any) -> Any:
    """Wrap what publishes a kernel's status; with `idle` goes all that waits."""

    def publish(status: str, channel: str, *args: Any, **kwargs: Any) -> None:
        if channel != "shell" or type(thread) is not HoldingIOPubThread or not thread.holds:
            publish_status(status, channel, *args, **kwargs)
        elif status == "idle":
            thread.end(functools.partial(publish_status, status, channel, *args, **kwargs))
        else:
            thread.ending = False
            publish_status(status, channel, *args, **kwargs)

    return publish


def _noting_the_end(thread: Any, do_execute: Any) -> Any:
    """Wrap what runs a cell: flushing what it has printed can wait until there is more to send."""

    @functools.wraps(do_execute)
    async def execute(*args: Any, **kwargs: Any) -> Any:
        reply = do_execute(*args, **kwargs)
        if inspect.isawaitable(reply):
            reply = await reply
        thread.ending = type(thread) is HoldingIOPubThread and threading.get_ident() == _MAIN
        return reply

    return execute


def _once_for_each(transform_cell: Any) -> Any:
    """Wrap what makes Python of a cell: it is asked whether the code waits for something, and then for the code."""
    last: list[Any] = [None, None]

    @functools.wraps(transform_cell)
    def transform(raw_cell: Any) -> Any:
        (raw, made), last[:] = last, (None, None)
        if raw is not raw_cell:
            made = transform_cell(raw_cell)
            last[:] = raw_cell, made
        return made

    return transform


def _for_a_while(tee: Any) -> Any:
    """Wrap what has IPython keep what a cell prints, for ``%notebook``: the beginning is enough.

    Else code that prints without end fills the kernel's memory, and each print takes longer.
    """

    @contextlib.contextmanager
    def tee_beginning(channel: str) -> Any:
        stream = getattr(sys, channel)
        write, left = stream.write, REMEMBERED_CHARACTERS
        with tee(channel):
            write_and_keep = stream.write

            def write_first(data: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= len(data) if isinstance(data, str) else 0
                if left >= 0:
                    return write_and_keep(data, *args, **kwargs)
                if stream.write is write_first:  # and not what the cell has put around it
                    stream.write = write
                return write(data, *args, **kwargs)

            stream.write = write_first
            yield

    return tee_beginning


class Alarm:
    """Calls back in a thread's loop after a moment.

    To set it wakes nobody up. Where there is no such clock, the loop is woken at once.
    """

    def __init__(self, loop: Any, ring: Any) -> None:
        self.is_set = False
        self._loop, self._ring = loop, ring
        self._file = -1
        library = ctypes.PyDLL(None)
        if hasattr(library, "timerfd_create") and ctypes.sizeof(ctypes.c_long) == 8:  # timerfd_create(2), of Linux
            self._settime = library.timerfd_settime
            self._file = library.timerfd_create(1, os.O_NONBLOCK | os.O_CLOEXEC)  # CLOCK_MONOTONIC
        self._soon, self._never = ((ctypes.c_long * 4)(0, 0, 0, time) for time in (HELD_NANOSECONDS, 0))
        if self._file >= 0:
            loop.add_handler(self._file, self._rung, loop.READ)

    def set(self) -> None:
        """Have it ring, unless it is going to."""
        if not self.is_set:
            self.is_set = True
            if self._file < 0 or self._settime(self._file, 0, self._soon, None):
                self._loop.add_callback(self._ring)

    def stop(self) -> None:
        """Have it not ring. Whoever has set it meanwhile is to be served now."""
        if self._file >= 0:
            self._settime(self._file, 0, self._never, None)
        self.is_set = False

    def _rung(self, *_: Any) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:  # it was stopped meanwhile
            return
        self._ring()


class Outgoing:
    """A message that the main thread has published."""

    __slots__ = ("frames", "thread")

    def __init__(self, thread: HoldingIOPubThread, frames: Any) -> None:
        self.thread, self.frames = thread, frames

    def __call__(self) -> None:
        """Send it, and wait for as long as that takes."""
        self.thread._really_send(self.frames, copy=True)

    def send_now(self) -> None:
        """Send it, with nothing in between its parts, or raise `zmq.Again`."""
        more = [zmq.NOBLOCK | zmq.SNDMORE] * (len(self.frames) - 1)
        deque(map(functools.partial(_send_frame, self.thread.socket), self.frames, [*more, zmq.NOBLOCK]), 0)


class HoldingIOPubThread(IOPubThread):
    """Lets the main thread keep what it publishes, and send it by itself when its request has ended."""

    ending = False  # the code of the main thread's request has run
    turn: Any  # whoever has it may use the socket, and takes from the front of what waits
    alarm: Alarm
    _streams: list[Any]
    _woken = False  # and has not looked since
    _ends = False  # the main thread sends what there is

    def hold(self, streams: list[Any]) -> None:
        """Begin with it."""
        self.turn = threading.RLock()
        self.alarm = Alarm(self.io_loop, functools.partial(HoldingIOPubThread._look, self))
        self._streams = streams
        self.__class__ = HoldingIOPubThread
        self._event_puller.on_recv(self._handle_event)  # it has the former class's
        stream = getattr(self, "_xpub_stream", None)
        if stream is not None:  # it takes the socket for its own
            stream.stop_on_recv()
            self.io_loop.remove_handler(self.socket)
            self.io_loop.add_handler(self.socket, self._look_for_readers, self.io_loop.READ)
            self._look_for_readers()

    @property
    def holds(self) -> bool:
        """Whether what this thread publishes can be kept: it is the main one, and not in a child of the process."""
        return threading.get_ident() == _MAIN and self.thread.is_alive()

    def schedule(self, f: Any) -> None:
        """Have the thread call something; it is woken once for all there is."""
        if not self.thread.is_alive():
            f()
            return
        self._events.append(f)
        if self._woken or (self._ends and threading.get_ident() == _MAIN):
            return
        try:
            self._woken = True
            self._event_pipe.send(b"")
        except BaseException:  # an interrupt
            self._woken = False
            raise

    def send_multipart(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Have a message sent."""
        if not args and kwargs == {"copy": True} and self.holds:  # a large one is not copied, and sent at once
            self._events.append(Outgoing(self, msg))
            self.alarm.set()
        else:
            super().send_multipart(msg, *args, **kwargs)

    def _handle_event(self, msg: Any) -> None:
        self._woken = False
        try:
            with self.turn:
                super()._handle_event(msg)
        except BaseException:
            self.io_loop.add_callback(self._handle_event, msg)  # those behind it were not woken for
            raise
        finally:
            self._look_for_readers()

    def _look(self) -> None:
        self.alarm.is_set = False  # before looking: what comes now sets it again
        for stream in self._streams:
            stream.flush_in_time()
        self._handle_event(None)

    def _look_for_readers(self, *_: Any) -> None:
        """Greet new readers, which the socket tells of once, and perhaps when somebody sends."""
        if not hasattr(self, "_xpub_stream"):
            return
        with self.turn:
            while not self.closed and self.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self._handle_subscription(self.socket.recv_multipart(zmq.NOBLOCK))

    def end(self, publish: Any) -> None:
        """Publish that a request has ended, with all that waits; in the main thread, which nothing interrupts now."""
        ran, self.ending = self.ending, False
        if not self.turn.acquire(blocking=False):  # this thread is about to send something
            for stream in self._streams:
                stream.flush()
            publish()
            self.schedule(int)
            return
        try:
            self._ends = True
            self.alarm.stop()
            for stream in self._streams:
                stream.flush_here()
            publish()
            sent = self._sent_all()
        finally:
            self._ends = False
            self.turn.release()
        if not sent:
            done = threading.Event()
            self.schedule(done.set)
            if ran:
                done.wait(OutStream.flush_timeout)

    def _sent_all(self) -> bool:
        """Send what can be sent without waiting; return whether that was all."""
        events = self._events
        try:
            while events:
                if type(events[0]) is not Outgoing or self.closed:
                    return False
                events[0].send_now()
                events.popleft()
            if self.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self.io_loop.add_callback(self._look_for_readers)
        except zmq.ZMQError:  # a reader is slow, or the socket is closed
            return False
        return True


class OutStreamInParts(OutStream):
    """Hands over what is printed in parts, and waits for its being sent only where something was."""

    _unsent = 0
    _written = True
    _timed = False
    _flushing: list[None] = []  # noqa: RUF012  # one item for each thread that is about to flush, or does
    _buffers: Any = ()  # before ipykernel 7 there is but one, and nothing to look up
    _NOTHING: Any = (None, None, None)
    _last = _NOTHING  # which buffers there were when something was last written, for which request, and its own

    def write(self, string: Any) -> Any:
        """Take text.

        ipykernel looks up the buffer by all fields of the request's header, for each piece of text. As long as nobody
        has taken the buffers away, somebody is going to: what is added goes with the rest.
        """
        buffers, parent, buffer = self._last
        if buffers is self._buffers and parent is self.parent_header and isinstance(string, str):
            length = len(string)
            with self._buffer_lock:
                if buffers is self._buffers and self._unsent + length < PART_CHARACTERS:
                    self._unsent += length
                    return buffer.write(string)
        return self._write(string)

    def _write(self, string: Any) -> Any:
        # Told before, since an interrupt may come in between; and after, since another thread's flush may.
        self._written = True
        self._unsent += len(string) if isinstance(string, str) else 0
        if self._unsent < PART_CHARACTERS:
            length = super().write(string)
            self._written = True
            self._note_buffer()
            return length
        for start in range(0, len(string), PART_CHARACTERS):
            super().write(string[start : start + PART_CHARACTERS])
            self._written = True
            self.flush()
        self._unsent = 0
        return len(string)

    def _note_buffer(self) -> None:
        # A child of the kernel's process has the buffers too, and nobody who would send them.
        if self._buffers and self.echo is None and self._is_master_process():
            buffers, parent = self._buffers, self.parent_header
            buffer = buffers.get(frozenset(parent.items()))
            self._last = self._NOTHING if buffer is None else (buffers, parent, buffer)

    def forget_buffer(self) -> None:
        """Look it up again."""
        self._last = self._NOTHING

    def close(self) -> None:
        """Take no more."""
        self.forget_buffer()
        super().close()

    @property
    def _holder(self) -> Any:
        """The thread that sends, if it lets the main thread keep what it publishes."""
        is_holder = type(self.pub_thread) is HoldingIOPubThread and self._is_master_process()
        return self.pub_thread if is_holder else None

    def _schedule_flush(self) -> None:
        holder = self._holder
        if holder is None:
            super()._schedule_flush()
        elif not self._flush_pending:
            self._flush_pending = True
            holder.alarm.set()

    def flush_in_time(self) -> None:
        """Flush after the usual interval; in the thread that sends."""
        if self._flush_pending and not self._timed:
            self._timed = True
            self._io_loop.call_later(self.flush_interval, self._flush_timed)

    def _flush_timed(self) -> None:
        self._timed = False
        self._flush()

    def flush_here(self) -> None:
        """Put what there is before what is published next; by whoever may use the socket."""
        if (self._written or self._flushing) and not self.closed:
            self._written = False
            self._flush()

    def flush(self) -> None:
        """Wait until what was printed is sent.

        Each time, the sending thread is waited for, and ipykernel asks for it four times with every request. Not
        waited for is only what nobody has begun: what another thread is about to flush may still be overtaken by the
        end of the run.
        """
        if getattr(self.pub_thread, "ending", False) and self.pub_thread.holds:
            return  # the end of the request is about to come, and does it
        if not (self._written or self._flushing):
            return
        self._flushing.append(None)
        self._written = False
        try:
            super().flush()
        except BaseException:  # an interrupt
            self._written = True
            raise
        finally:
            self._flushing.pop()

    def _flush(self) -> None:
        holder = self._holder
        if holder is None:
            super()._flush()
            return
        with holder.turn:  # or what is taken now could be overtaken
            super()._flush()
