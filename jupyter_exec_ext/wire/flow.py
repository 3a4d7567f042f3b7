"""Let a kernel that writes faster than it is read wait, as a program does on a full pipe.

ZeroMQ has no such thing by itself: a publisher drops what a full queue cannot take, without a word, so our queue has no
bound and a flood fills the server's memory instead. An IPython kernel can be told otherwise (``ZMQ_XPUB_NODROP``): then
its sending thread waits, whoever publishes waits for that thread, and our queue may be short. What is printed is handed
over in parts of bounded size, since ipykernel would keep all that is printed within its flush interval for one message.
And it is told not to wait where nobody gains by it, nor to wake its sending thread for each message, which together is
half of the time that a short run takes.

The kernel is told by code that it runs before anything else, in a namespace of its own, and again when we have
subscribed: a socket that listens gives new connections the queue of a thousand messages that it had when it began to.
A kernel that we make ourselves is told before it begins, and has no connections by then. Where none of it works, as
with kernels in other languages, nothing is dropped either, but only memory bounds the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kernel import execute_request

#: So many messages of one kernel wait in our memory, once the kernel waits for us.
MAX_WAITING_MESSAGES = 4

#: So many wait in the kernel's, for each connection.
MAX_UNSENT_MESSAGES = 16

_WAITS = "waits"
_PART_CHARACTERS = 128 * 1024

_KEEPING = f"""\
import threading, zmq
from IPython import get_ipython

def keep_all():
    thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
    # Counts all that any connection got so far and has perhaps not confirmed. A mark below that would never be left
    # again: a reader confirms only when it reads. An even one is confirmed when it is reached.
    sent = get_ipython().kernel.session.message_count
    thread.socket.setsockopt(zmq.SNDHWM, max({MAX_UNSENT_MESSAGES}, sent + 2 - sent % 2))
    done.set()

thread, done = get_ipython().kernel.iopub_thread, threading.Event()
thread.schedule(keep_all)
if not done.wait(10):
    raise TimeoutError("the thread that sends output does not answer")
"""
#: What an IPython kernel is to run whose sending thread waits from the start, before it runs anything else.
WAITING_CODE = f"""\
import functools, os, sys, threading
from ipykernel import ipkernel
from IPython import get_ipython
from ipykernel.iostream import IOPubThread, OutStream

kernel = get_ipython().kernel

class IOPubThreadInBatches(IOPubThread):
    _holder = None  # a thread that is going to publish something more at once, with which this can go
    _woken = False  # and has not looked since

    def schedule(self, f):
        if not self.thread.is_alive():
            f()
            return
        self._events.append(f)
        if self._woken or self._holder == threading.get_ident():
            return
        try:
            self._woken = True
            self._event_pipe.send(b"")
        except BaseException:  # an interrupt
            self._woken = False
            raise

    def _handle_event(self, message):
        self._woken = False
        try:
            super()._handle_event(message)
        except BaseException:
            self.io_loop.add_callback(self._handle_event, message)  # those behind it were not woken for
            raise

def publish_status(status, channel, *args, publish=kernel._publish_status, **kwargs):
    # Next to 'busy' comes the code, unless it is not shown.
    request = kernel.get_parent(channel) if (status, channel) == ("busy", "shell") else {{}}
    if request.get("header", {{}}).get("msg_type") != "execute_request" or request["content"].get("silent"):
        return publish(status, channel, *args, **kwargs)
    kernel.iopub_thread._holder = threading.get_ident()
    try:
        return publish(status, channel, *args, **kwargs)
    finally:
        kernel.iopub_thread._holder = None

def batch():
    thread.__class__ = IOPubThreadInBatches
    thread._event_puller.on_recv(thread._handle_event)  # it has the former class's

thread = kernel.iopub_thread
if type(thread) is IOPubThread:
    thread.schedule(batch)
    kernel._publish_status = publish_status
if hasattr(ipkernel, "_accepts_parameters"):  # it looks at signatures for each run, which is a twentieth of it
    accepts = functools.lru_cache(8)(ipkernel._accepts_parameters)
    ipkernel._accepts_parameters = lambda method, names: accepts(method, tuple(names))

class OutStreamInParts(OutStream):
    _unsent = 0
    _written = True
    _flushing = []  # one item for each thread that is about to flush, or does
    _buffers = ()  # before ipykernel 7 there is but one, and nothing to look up
    _NOTHING = (None, None, None)
    _last = _NOTHING  # which buffers there were when something was last written, for which request, and its own

    def write(self, string):
        # ipykernel looks up the buffer by all fields of the request's header, for each piece of text. As long as
        # nobody has taken the buffers away, somebody is going to: what is added goes with the rest.
        buffers, parent, buffer = self._last
        if buffers is self._buffers and parent is self.parent_header and isinstance(string, str):
            length = len(string)
            with self._buffer_lock:
                if buffers is self._buffers and self._unsent + length < {_PART_CHARACTERS}:
                    self._unsent += length
                    return buffer.write(string)
        return self._write(string)

    def _write(self, string):
        # Told before, since an interrupt may come in between; and after, since another thread's flush may.
        self._written = True
        self._unsent += len(string) if isinstance(string, str) else 0
        if self._unsent < {_PART_CHARACTERS}:
            length = super().write(string)
            self._written = True
            self._note_buffer()
            return length
        for start in range(0, len(string), {_PART_CHARACTERS}):
            super().write(string[start : start + {_PART_CHARACTERS}])
            self._written = True
            self.flush()
        self._unsent = 0
        return len(string)

    def _note_buffer(self):
        # A child of the kernel's process has the buffers too, and nobody who would send them.
        if self._buffers and self.echo is None and self._is_master_process():
            buffers, parent = self._buffers, self.parent_header
            buffer = buffers.get(frozenset(parent.items()))
            self._last = self._NOTHING if buffer is None else (buffers, parent, buffer)

    def close(self):
        self._last = self._NOTHING
        super().close()

    def flush(self):
        # Each waits for the sending thread, and ipykernel asks for four with every request. Not waited for is only what
        # nobody has begun: what another thread is about to flush may still be overtaken by the end of the run.
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

# Commands go to IPython's history in batches: writing each in a thread beside the next one slows that down.
get_ipython().history_manager.db_cache_size = 100
# After each cell a kernel sleeps for clients that take its reply for the end of its output. We wait for both.
kernel._execute_sleep = 0
# It would make a record of each step that no handler wants.
log = kernel.log
if log.handlers and not log.propagate:
    log.setLevel(max(log.level, min(handler.level for handler in log.handlers)))
for stream in (sys.stdout, sys.stderr):
    if type(stream) is OutStream:
        stream.__class__ = OutStreamInParts
        os.register_at_fork(after_in_child=lambda stream=stream: setattr(stream, "_last", stream._NOTHING))
        vars(stream).pop("write", None)  # the former class's, where IPython has put it back after a cell
"""


def waiting_request() -> dict[str, Any]:
    """Return the content of a request that makes an IPython kernel wait for its readers."""
    return _silent_request(_KEEPING + WAITING_CODE)


def keeping_request() -> dict[str, Any]:
    """Return the content of a request that makes a kernel which has agreed to wait do so for new connections, too."""
    return _silent_request(_KEEPING)


def _silent_request(code: str) -> dict[str, Any]:
    request = execute_request("", allow_input=False)
    # As an expression, not as code: IPython replaces the streams' `write` while it runs a cell, and puts it back.
    expressions = {_WAITS: f"exec({code!r}, {{}})"}
    return {**request, "silent": True, "store_history": False, "user_expressions": expressions}


def agrees_to_wait(reply: Mapping[str, Any]) -> bool:
    """Return whether a kernel's reply to the request says that it waits from now on."""
    answers = reply.get("user_expressions")
    answer = answers.get(_WAITS) if isinstance(answers, Mapping) else None
    return isinstance(answer, Mapping) and answer.get("status") == "ok"
