"""Program of a process that forks on request: serves requests on a socket, and reports how its children end.

A request is one byte with four descriptors: standard input, output and error, and a channel. What the child is to be
comes over the channel, as a line of JSON, which only the child reads: a later child could find anything that its parent
has ever held in memory. The parent reports on the socket which of its children have ended.

Read by ``fork_parent_program.py`` and, in kernels, where our package need not be installed, by
``in_kernel/checkpoint.py``. `forking_process` is the other end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any


def serve(control: socket.socket) -> list[int]:
    """Fork a child for each request, and report the ends; returns in the children, with a request's descriptors."""
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It does nothing: `set_wakeup_fd` only reports signals that have a handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)  # any byte in the pipe wakes us
    sources = select.poll()  # not `select`: the server that this socket comes from may have thousands of descriptors
    for descriptor in (control.fileno(), awake):
        sources.register(descriptor, select.POLLIN)
    while True:
        readable = {number for number, _ in sources.poll()}
        if awake in readable:
            os.read(awake, 4096)
            for pid, status in _ended():
                _report(control, f"exited {pid} {os.waitstatus_to_exitcode(status)}")
        if control.fileno() not in readable:
            continue
        # One byte a call, or the descriptors of two requests could come together.
        request, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not request:  # the server is gone, or wants no more kernels from here
            os._exit(0)
        try:
            pid = os.fork()
        except OSError as error:
            _report(control, f"failed {error.errno}")
        else:
            if pid == 0:
                signal.set_wakeup_fd(-1)
                # Detached: the socket object would later close its number, which is another descriptor's by then.
                for descriptor in (awake, wake, control.detach()):
                    os.close(descriptor)
                return descriptors
            _report(control, f"forked {pid}")
        for descriptor in descriptors:
            os.close(descriptor)


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the children that have ended, with what the system says of how."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _report(control: socket.socket, line: str) -> None:
    try:
        control.sendall(f"{line}\n".encode())
    except OSError:  # the server is gone
        os._exit(0)


def enter(descriptors: list[int], *, greeting: bytes = b"") -> tuple[socket.socket, dict[str, Any]]:
    """Become a process of its own, in a child; return the channel and what it says, after a greeting."""
    os.setsid()  # Jupyter sends interrupts to the process group
    *standard, number = descriptors
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for name in ("SIGINT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = socket.socket(fileno=number)
    channel.set_inheritable(False)
    if greeting:  # with it, the system tells the server which process has sent it
        channel.sendall(greeting)
    with channel.makefile("rb") as said:
        line = said.readline()
    if not line.endswith(b"\n"):  # the server has closed the channel already
        os._exit(0)
    settings: dict[str, Any] = json.loads(line)
    return channel, settings


def end_with(channel: socket.socket) -> None:
    """End this process when the other end of the channel is closed."""

    def watch() -> None:
        try:
            channel.recv(1)
        finally:
            os._exit(1)

    thread: Any = threading.Thread(target=watch, name="ParentPoller", daemon=True)
    # As ipykernel marks its own threads, so that the debugger leaves them alone.
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()


def reseed_random_generators() -> None:
    """Seed generators anew, so that no two kernels draw the same numbers; `uuid` takes the system's."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        # `tempfile` keeps the directory that it has found in the parent.
        tempfile.tempdir = tempfile._name_sequence = None
