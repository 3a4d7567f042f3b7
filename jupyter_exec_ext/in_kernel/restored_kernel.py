"""Restored kernel: a new IPython kernel around the existing shell, in a fork of a checkpoint's process.

It has sockets, threads and streams of its own. Objects that code may have references to, such as the kernel, the
streams and the event loop, are made anew in place.

``protocol/kernel_checkpoint_messages.py`` sends this source to kernels; see ``checkpoint.py``. Linux alone.
Versions of IPython and ipykernel differ, so some attributes may be missing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import io
import logging
import os
import socket
import sys
import threading
import traceback
from typing import Any

import tornado.ioloop
import zmq
from ipykernel.iostream import OutStream
from IPython import get_ipython

bounded_output: Any = importlib.import_module("jupyter_exec_bounded_output")
hindrances: Any = importlib.import_module("jupyter_exec_checkpoint_hindrances")
requests: Any = importlib.import_module("jupyter_exec_fork_requests")

_LAST_ANSWER_SECONDS = 1.0
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
# Bytes that a kernel sends when it is ready. The second means that it also waits for its readers.
_BOUND, _WAITS = b"b", b"w"
# Objects that are kept alive: their ends would close descriptors whose numbers are in use again.
_kept: list[Any] = []
_kept_loops: set[Any] = set()
_kept_tasks: set[Any] = set()
_streams: dict[str, Any] = {}
#: What the kernel itself has opened in this life, by number.
_own_descriptors: dict[int, str] = {}
#: How deep the stack was at the beginning of each life.
_depths: list[int] = []


def run_restored_kernel(settings: dict[str, Any], channel: socket.socket, before: dict[str, Any]) -> None:
    """Run a kernel around the existing shell until it is shut down.

    Parameters
    ----------
    settings : dict
        What the kernel is to be.
    channel : socket.socket
        Leads to the server.
    before : dict
        Event loop and states of random generators; emptied, since the frames of the caller live as long as the kernel.
    """
    found = set(_open_descriptors())
    application = _make_kernel(settings, before)
    _own_descriptors.clear()
    _own_descriptors.update({number: _identity(number) for number in _open_descriptors() if number not in found})
    channel.send(_WAITS if settings["waits"] else _BOUND)
    _keep_room_on_stack()
    application.start()
    _await_last_answer(application)


def _make_kernel(settings: dict[str, Any], before: dict[str, Any]) -> Any:
    """Make a kernel around the existing shell; return its application, which is yet to be started."""
    loop, random_states = before.pop("loop"), before.pop("random_states")
    shell = get_ipython()
    old, application = shell.kernel, shell.kernel.parent
    # First: what is logged from here on would be sent by the old thread, which waits three seconds for the old process.
    _kept.append(old.iopub_thread.socket)
    old.iopub_thread.socket = None
    _abandon_tasks(loop, old)
    _renew_event_loop(loop)
    hindrances.revive_pools()
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    _streams.update(_output_streams(old))
    sys.stdout, sys.stderr, sys.displayhook = sys.__stdout__, sys.__stderr__, sys.__displayhook__
    _renew_history(shell.history_manager)
    type(old).clear_instance()
    settings["waits"] = _make_sockets(application, settings)
    kernel = application.kernel
    shell.parent = shell.kernel = kernel
    # The old hook and traps may be in use: a request was being answered when the process was forked.
    shell.display_trap.hook, shell.display_trap._nested_level = shell.displayhook, 0
    # Objects of the user, such as widgets and handlers of logs, have references to the old ones.
    old.__dict__ = kernel.__dict__
    bounded_output.bound_streams(kernel)
    publish = getattr(shell, "publish_output_by_descriptor", None)  # of ``unattended.py``
    if publish is not None:
        publish()
    sys.stdout, sys.stderr = streams["stdout"], streams["stderr"]
    # Last: to make sockets at random ports has random_states some.
    if settings["same_random"]:
        for name, state in random_states.items():
            (sys.modules[name].setstate if name == "random" else sys.modules[name].set_state)(state)
    else:
        requests.reseed_random_generators()
    return application


def _open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _identity(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # the one by which the directory was read
        return ""


def find_closable_descriptors(kernel: Any) -> set[int]:
    """Return the descriptors of a kernel from a checkpoint itself, which a process that forks from it can close.

    Nothing uses their numbers any more: ZeroMQ's objects do nothing in another process, and others are kept.
    """
    if not _own_descriptors:  # the kernel's first life
        return set()
    _kept_loops.update(tornado.ioloop.IOLoop._ioloop_for_asyncio)
    closable = {number for number, identity in _own_descriptors.items() if identity and _identity(number) == identity}
    # Some sockets are made later, for each thread that prints.
    for sock in list(getattr(kernel.parent.context, "_sockets", ())):
        with contextlib.suppress(zmq.ZMQError):
            closable.add(sock.getsockopt(zmq.FD))
    closable.update(hindrances.descriptors_of_clients(kernel))
    return closable


def _await_last_answer(application: Any) -> None:
    """Let the control thread finish with the request to exit: it would wait for the output thread, which ends first."""
    control = getattr(application, "control_thread", None)
    if control is not None and control.is_alive():
        has_answered = threading.Event()
        control.io_loop.add_callback(has_answered.set)
        has_answered.wait(_LAST_ANSWER_SECONDS)


def _keep_room_on_stack() -> None:
    """Raise the limit of recursion by what the stack has grown in this life, so that code has as much as before."""
    depth = len(traceback.extract_stack())
    sys.setrecursionlimit(sys.getrecursionlimit() + depth - (_depths[-1] if _depths else 0))
    _depths.append(depth)


def _abandon_tasks(loop: Any, kernel: Any) -> None:
    """Keep tasks that end in the other process: collected as garbage, they would print that they were pending."""
    threads = [getattr(kernel, name, None) for name in ("control_thread", "shell_channel_thread", "iopub_thread")]
    loops = [getattr(getattr(thread, "io_loop", None), "asyncio_loop", None) for thread in threads]
    _kept_tasks.update(asyncio.all_tasks(loop))  # of code, whose `finally` blocks would run
    for each in (loop, *filter(None, loops)):
        for task in asyncio.all_tasks(each):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # not even at the interpreter's end


def _renew_event_loop(loop: Any) -> None:
    """Make the main event loop anew in place: locks, queues and futures of code belong to it."""
    asyncio._set_running_loop(None)
    zmq.Context._instance = None  # that of `zmq.Context.instance()`, whose threads are in the other process
    if not isinstance(loop, asyncio.SelectorEventLoop):
        asyncio.set_event_loop(asyncio.new_event_loop())
        return
    before: Any = dict(loop.__dict__)
    # Never closed: others may have the same numbers by then.
    _kept.extend([before.get("_selector"), before.get("_ssock"), before.get("_csock")])
    loop.__dict__.clear()
    loop.__init__()  # type: ignore[misc]  # of an object that is there already
    for name in ("_default_executor", "_exception_handler", "_task_factory", "_debug", "slow_callback_duration"):
        if name in before:
            setattr(loop, name, before[name])
    asyncio.set_event_loop(loop)
    # Tornado's wrapper has what was read from before.
    tornado.ioloop.IOLoop._ioloop_for_asyncio.pop(loop, None)
    for number, handle in before.get("_signal_handlers", {}).items():
        loop.add_signal_handler(number, handle._callback, *handle._args)


def _output_streams(kernel: Any) -> dict[str, Any]:
    """Return the streams that publish what is printed, by their names."""
    candidates = [sys.stdout, sys.stderr, getattr(kernel, "_stdout", None), getattr(kernel, "_stderr", None)]
    return {stream.name: stream for stream in candidates if isinstance(stream, OutStream)}


def renewed_stream(session: Any, thread: Any, name: str, **options: Any) -> Any:
    """Return a kernel's stream of this name, made anew in place: code may have references to it."""
    stream = _streams.get(name)
    if stream is None:
        return OutStream(session, thread, name, **options)
    # Two files have its descriptor's number; closed a second time, that would be another file's.
    _kept.append(stream.echo)
    stream.__dict__.clear()
    stream.__init__(session, thread, name, **options)
    return stream


def _make_sockets(application: Any, settings: dict[str, Any]) -> bool:
    """Have ipykernel's application make sockets, streams and a kernel; return whether the kernel waits for readers."""
    limit, waits = settings["max_unsent_messages"], False
    bind = application._try_bind_socket

    def bind_waiting(sock: Any, port: int) -> Any:
        nonlocal waits
        if limit and sock.type in (zmq.PUB, zmq.XPUB):
            sock.setsockopt(zmq.XPUB_NODROP, 1)
            sock.setsockopt(zmq.SNDHWM, limit)
            waits = True
        return bind(sock, port)

    replaced = {
        "_try_bind_socket": bind_waiting,
        "patch_io": lambda: None,  # it is done once for a process
        "announce": lambda said: None,  # of a forked kernel; it announced its first life
    }
    application.context = application.poller = None
    application.connection_file = settings["connection_file"]
    for name in _PORTS:
        setattr(application, name, 0)  # as the connection file has them
    application.made_shell = None
    stream_class, application.outstream_class = application.outstream_class, f"{__name__}.{renewed_stream.__name__}"
    application.session.pid = os.getpid()  # it sends nothing for another process
    atexit.unregister(application.close)
    _log_to_stderr(application.log)
    application.__dict__.update(replaced)
    try:
        for step in ("connection_file", "sockets", "heartbeat"):
            getattr(application, f"init_{step}")()
        application.write_connection_file()
        for step in ("io", "signal", "kernel"):
            getattr(application, f"init_{step}")()
    finally:
        application.outstream_class = stream_class
        for name in replaced:
            del application.__dict__[name]
    return waits


def _log_to_stderr(log: Any) -> None:
    """Have the kernel's own log written to the new standard error; ipykernel moves it on from there."""
    for handler in log.handlers:
        if type(handler) is logging.StreamHandler and isinstance(handler.stream, io.TextIOWrapper):
            _kept.append(handler.stream)
            handler.stream = sys.__stderr__


def _renew_history(manager: Any) -> None:
    """Open the history's database anew, for a session of its own; the lists that code can see stay."""
    if not getattr(manager, "enabled", False) or str(manager.hist_file) == ":memory:":
        return
    # Closing a database that another process has opened could remove what that one still needs.
    _kept.append(manager.db)
    finalizer = getattr(manager, "_finalizer", None)
    if finalizer is not None:
        finalizer.detach()
    thread = getattr(manager, "save_thread", None)
    if thread is not None:
        atexit.unregister(thread.stop)
        _kept.append(getattr(thread, "db", None))
        thread._stop_now = thread._stopped = True
    manager.db_input_cache_lock, manager.db_output_cache_lock = threading.Lock(), threading.Lock()
    manager.init_db()
    manager.new_session()
    if thread is not None:
        manager.save_thread = type(thread)(manager)
        manager.save_thread.start()
