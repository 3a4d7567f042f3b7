"""Let a kernel that writes faster than it is read wait, as a program does on a full pipe.

ZeroMQ has no such thing by itself: a publisher drops what a full queue cannot take, without a word, so our queue has no
bound and a flood fills the server's memory instead. An IPython kernel can be told otherwise (``ZMQ_XPUB_NODROP``): then
its sending thread waits, whoever publishes waits for that thread, and our queue may be short. What is printed is handed
over in parts of bounded size, and without waiting where nobody gains by it (``in_kernel/sending.py``).

The kernel is told by code that it runs before anything else, in a namespace of its own, and again when we have
subscribed: a socket that listens gives new connections the queue of a thousand messages that it had when it began to.
A kernel that we make ourselves is told before it begins, and has no connections by then. Where none of it works, as
with kernels in other languages, nothing is dropped either, but only memory bounds the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .kernel import execute_request

#: So many messages of one kernel wait in our memory, once the kernel waits for us.
MAX_WAITING_MESSAGES = 4

#: So many wait in the kernel's, for each connection.
MAX_UNSENT_MESSAGES = 16

_WAITS = "waits"

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
#: What an IPython kernel runs, for its sending thread to be woken and waited for seldom; it has `begin`.
SENDING = Path(__file__).parent.parent / "in_kernel" / "sending.py"
_BEGINNING = """
from IPython import get_ipython

begin(get_ipython().kernel)
"""


def waiting_request() -> dict[str, Any]:
    """Return the content of a request that makes an IPython kernel wait for its readers."""
    return _silent_request(SENDING.read_text(encoding="utf-8") + _KEEPING + _BEGINNING)


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
