"""Backpressure for kernels: one that writes faster than it is read waits, as a program does on a full pipe.

ZeroMQ has no such thing by itself: a publisher silently drops what a full queue cannot take. An IPython kernel can be
told otherwise (``ZMQ_XPUB_NODROP``). Then its sending thread waits for its readers, and whatever publishes waits for
that thread. What is printed is handed over in parts of bounded size (``in_kernel/sending.py``).

The kernel is told by code that it runs before anything else, in a namespace of its own, and again when there is a
subscription: a socket that listens gives new connections the queue of a thousand messages that it had when it began to.
A forked kernel is told before it begins, and has no connections by then. Where none of it works, as with kernels in
other languages, the server reads ahead instead, up to a bound. Beyond that, such a kernel drops output.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .kernel_messages import execute_request

#: So many messages of one kernel wait in our memory, once the kernel waits for us.
MAX_WAITING_MESSAGES = 4

#: So many wait in the kernel's, for each connection.
MAX_UNSENT_MESSAGES = 16

_WAITS = "waits"

# Run by the thread that sends output: a socket belongs to one thread at a time.
_IN_SENDING_THREAD = """
thread, done = get_ipython().kernel.iopub_thread, threading.Event()
thread.schedule(keep_all)
if not done.wait(10):
    raise TimeoutError("the thread that sends output does not answer")
"""
# Leaves alone the connections that are there by then: ZeroMQ crashes where the queue of a connection that is being
# closed, such as the host's own, is made shorter.
_WAITING = f"""\
import threading, zmq
from IPython import get_ipython

def keep_all():
    thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
    done.set()
{_IN_SENDING_THREAD}"""
_KEEPING = f"""\
import threading, zmq
from IPython import get_ipython

def keep_all():
    # Counts all that any connection got so far and has perhaps not confirmed. A mark below that would never be left
    # again: a reader confirms only when it reads. An even one is confirmed when it is reached.
    sent = get_ipython().kernel.session.message_count
    thread.socket.setsockopt(zmq.SNDHWM, max({MAX_UNSENT_MESSAGES}, sent + 2 - sent % 2))
    done.set()
{_IN_SENDING_THREAD}"""
#: What an IPython kernel runs, for its sending thread to be woken and waited for seldom; it has `begin`.
SENDING = Path(__file__).parent.parent / "in_kernel" / "sending.py"
#: Its defaults, such as no colours; it has `set_defaults`.
DEFAULTS = SENDING.with_name("defaults.py")
_SETTING = """
from IPython import get_ipython

set_defaults(get_ipython().kernel, draws_plots={})
"""
_BEGINNING = """
from IPython import get_ipython

begin(get_ipython().kernel)
"""


def waiting_request(*, draws_plots: bool | None) -> dict[str, Any]:
    """Return the content of a request that makes an IPython kernel wait for its readers, and sets its defaults.

    Parameters
    ----------
    draws_plots : bool or None
        Whether plots that are shown as data alone get pictures; see ``in_kernel/defaults.py``. None sets no defaults.
    """
    request = _silent_request(SENDING.read_text(encoding="utf-8") + _WAITING + _BEGINNING)
    # Apart from each other, so that neither depends on what the other finds.
    defaults = {} if draws_plots is None else default_expressions(draws_plots=draws_plots)
    return {**request, "user_expressions": {**request["user_expressions"], **defaults}}


def default_expressions(*, draws_plots: bool) -> dict[str, str]:
    """Return the expressions that set the defaults, for a request to a kernel that is not made to wait."""
    code = DEFAULTS.read_text(encoding="utf-8") + _SETTING.format(draws_plots)
    return {"defaults": f"exec({code!r}, {{}})"}


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
